"""The page in a real browser: 20 rows at 5 seeds; asks nobody, logs nothing, and every control does its work."""

import json

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from lightning_tfm.report import search
from lightning_tfm.report.build import make
from lightning_tfm.study.rows import all_rows
from tests.browser import chromium
from tests.report.synthetic import Generator, write_search

pytestmark = pytest.mark.long
HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    found = Generator(tmp_path_factory.mktemp("r"), list(all_rows()), [1, 2, 3, 4, 5])
    found.write_all({"A-h1": 0.3, "C-N2": 0.3}, skip=[("big", 5)])
    bins = [{"confidence": 0.1 * i, "accuracy": 0.09 * i, "count": i} for i in range(1, 11)]
    words = ["<b>", HOSTILE, "c"]
    square = [[[[1000, 0, 0], [300, 700, 0], [200, 300, 500]]] * 2] * 3  # 3 layers, 2 heads
    sentence = {"source": words, "target_in": words, "encoder": square, "decoder": square, "cross": square}
    for row in found.study.rows[:2]:
        folder = found.folder(row, 1).path / "report"
        folder.mkdir()
        (folder / "calibration.json").write_text(json.dumps({"ece": 0.02, "bins": bins}))
        (folder / "attention.json").write_text(json.dumps({"sentences": [sentence] * 2}))
    return found


@pytest.fixture(scope="module")
def path(made):
    page = make("made", made.root).render("html")
    assert len(page.encode()) <= 5_000_000
    file = made.root / "report.html"
    file.write_text(page)
    return file


@pytest.fixture(scope="module")
def search_path(tmp_path_factory):
    root = tmp_path_factory.mktemp("s")
    write_search(root, 120, HOSTILE)
    file = root / "report.html"
    file.write_text(search.make("found", root).render("html"))
    assert file.stat().st_size <= 5_000_000
    return file


@pytest.fixture
def page(browser, path):
    yield from opened(browser, path)


@pytest.fixture
def search_page(browser, search_path):
    yield from opened(browser, search_path)


@pytest.fixture(params=["path", "search_path"])
def any_page(request, browser):
    yield from opened(browser, request.getfixturevalue(request.param))


def opened(browser, path):
    """The page, opened from its file; at the end nothing was asked for and nothing went wrong."""
    shown = browser.new_page()
    asked, wrong = [], []
    shown.on("request", lambda request: asked.append(request.url))
    shown.on("console", lambda message: wrong.append(message.text))
    shown.on("pageerror", lambda error: wrong.append(str(error)))
    shown.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    shown.goto(path.as_uri())
    yield shown
    assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
    assert wrong == []
    shown.close()


def names(page) -> list[str]:
    return [link.inner_text() for link in page.locator("#table tbody tr:visible th a").all()]


def test_table_sorts_and_filters(page):
    whole = names(page)
    assert whole == list(all_rows())
    button = page.locator("#table thead button", has_text="params").first
    head = page.locator("#table thead th").nth(13)
    column = "#table tbody tr td:nth-child(14)"
    for order in ("ascending", "descending"):
        button.focus()
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == order
        values = [int(cell.get_attribute("data-v")) for cell in page.locator(column).all()]
        assert values == sorted(values, reverse=order == "descending") and len(set(values)) > 5
    button.click()
    assert names(page) == whole
    page.fill("#find", "dmodel")
    assert names(page) == ["C-dmodel256", "C-dmodel1024"] and "2 of 20" in page.locator("#count").inner_text()
    page.fill("#find", "")
    page.select_option("#verdict", "reproduced")
    assert {"A-h1", "C-N2"} <= set(names(page)) < set(whole)


def test_pictures_highlight_and_change_their_axis(page):
    figure = page.locator("#section-curves figure")
    assert figure.locator(".linear").is_visible() and not figure.locator(".log").is_visible()
    figure.get_by_label("logarithmic axis").check()
    assert figure.locator(".log").is_visible() and not figure.locator(".linear").is_visible()
    for control, section in (("#pick-curve", "#section-curves"), ("#pick-calibration", "#section-calibration")):
        page.select_option(control, "A-h1")
        lit = page.locator(f"{section} .series.on").all()
        assert lit and {one.get_attribute("data-row") for one in lit} == {"A-h1"}
        page.select_option(control, "")
        assert page.locator(f"{section} .series.on, {section} svg.picking").count() == 0


def test_attention_shows_every_layer_and_head_and_the_weight_pointed_at(page):
    maps = page.locator("#attention-maps figure")
    assert maps.count() == 6
    assert "layer 3, head 2, entropy 0.79 bit" in maps.last.inner_text()
    maps.first.locator("rect").nth(2).hover()
    assert "layer 1, head 1" in page.locator("#attention-said").inner_text()
    assert ": 0.700" in page.locator("#attention-said").inner_text() and HOSTILE in page.inner_text("#attention-said")
    for kind in ("decoder", "cross"):
        page.select_option("#attention-kind", kind)
        assert kind in maps.first.locator("svg").get_attribute("aria-label")
    page.select_option("#attention-run", "1")
    page.select_option("#attention-sentence", "1")
    assert maps.count() == 6


def test_every_link_leads_somewhere_and_rows_open_to_their_runs(page):
    for link in page.locator("a").all():
        assert page.locator(f'[id="{link.get_attribute("href")[1:]}"]').count() == 1
    page.locator("#table tbody th a", has_text="big").click()
    runs = page.locator("#section-runs details[open]")
    runs.first.wait_for()
    assert runs.count() == 1 and "seed 5: not run yet" in runs.inner_text()
    assert "lightning-tfm fit" in runs.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_paper(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 200) == (scheme == "dark")
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_mend(any_page, scheme):
    any_page.emulate_media(color_scheme=scheme)
    any_page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    asked = {"runOnly": {"type": "tag", "values": tags}, "resultTypes": ["violations", "passes"]}
    found = Axe().run(any_page, options=asked).response
    said = [
        f"{v['id']} ({v['impact']}): {v['nodes'][0]['html'][:200]} ({len(v['nodes'])})" for v in found["violations"]
    ]
    assert said == []
    assert {"color-contrast", "label", "region", "svg-img-alt"} <= {one["id"] for one in found["passes"]}


def test_axe_would_see_a_fault(page):
    axe = Axe()
    page.evaluate("document.querySelector('#find').parentNode.replaceWith(document.querySelector('#find'))")
    page.add_style_tag(content="p{color:#ccc!important;background:#fff!important}")
    assert {"label", "color-contrast"} <= {v["id"] for v in axe.run(page).response["violations"]}


def test_the_page_is_painted_from_its_own_file(browser, path):
    """How fast depends on the machine, and is printed; that nothing else is asked for is held by `opened`."""
    times = []
    for _ in range(5):
        shown = browser.new_page()
        shown.goto(path.as_uri())
        while not shown.evaluate("performance.getEntriesByType('paint').length"):  # its policy forbids eval
            shown.wait_for_timeout(50)
        times.append(shown.evaluate("performance.getEntriesByType('paint')[0].startTime"))
        shown.close()
    print(f"first paint after {sorted(round(t) for t in times)} ms")
    assert min(times) > 0


def test_every_control_there_is_takes_every_value_without_an_error(any_page):
    """What each does is tested one by one elsewhere; this finds those that nobody thought of."""
    used = 0
    for control in any_page.locator("select").all():
        for value in [o.get_attribute("value") for o in control.locator("option").all()][:30]:
            control.select_option(value) if value is not None else control.select_option(index=0)
            used += 1
        control.select_option(index=0)
    for box in any_page.locator("input[type=checkbox]").all():
        box.check()
        box.uncheck()
        used += 1
    for button in any_page.locator("button").all():
        button.click()
        assert button.locator("xpath=..").get_attribute("aria-sort") == "ascending"
        used += 1
    for field in any_page.locator("input[type=search]").all():
        field.fill("zzz")
        assert any_page.locator("#table tbody tr:visible").count() == 0
        field.fill("")
    for summary in any_page.locator("summary").all():
        summary.focus()
        any_page.keyboard.press("Enter")
        assert summary.evaluate("e => e.parentNode.open")
    assert used > 25
    assert any_page.locator("input:not([type=checkbox]):not([type=search]), textarea").count() == 0, (
        "a control unknown here"
    )


def test_search_page_sorts_filters_and_highlights(search_page):
    rows = search_page.locator("#table tbody tr:visible")
    assert rows.count() == 120
    search_page.select_option("#verdict", "stopped early")
    assert rows.count() == 20 and "20 of 120" in search_page.inner_text("#count")
    search_page.select_option("#verdict", "")
    search_page.fill("#find", "t0007")
    assert rows.count() == 1
    search_page.fill("#find", "")
    search_page.locator("#table thead button", has_text="dev/ppl").click()
    values = [float(v) for c in rows.all() if (v := c.locator("td").nth(6).get_attribute("data-v"))]
    assert len(values) > 80 and values == sorted(values)
    picture = search_page.locator("#section-parallel figure").first
    search_page.select_option("#pick-parallel-0", "t0000")
    lit = picture.locator(".series.on")
    assert lit.count() == 1 and lit.get_attribute("data-row") == "t0000"
    assert search_page.evaluate("document.documentElement.scrollWidth <= innerWidth")
