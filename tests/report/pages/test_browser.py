"""The page in a real browser: 20 rows at 5 seeds; asks nobody, logs nothing, and every control does its work."""

import re
from xml.etree import ElementTree

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from lightning_tfm.cli.show.wandb import verdicts_of
from lightning_tfm.report import archive
from lightning_tfm.report import search_report as search
from lightning_tfm.report.study_report import make
from lightning_tfm.study.rows import all_rows
from tests.helpers.browser import axe_violations, in_page
from tests.helpers.calling import ROOT
from tests.helpers.studies import Generator, write_search
from tests.helpers.waiting import wait_for
from tests.report.charts.test_pictures import put, put_extras

pytestmark = pytest.mark.long
HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    found = Generator(tmp_path_factory.mktemp("r"), list(all_rows()), [1, 2, 3, 4, 5])
    found.write_all({"A-h1": 0.3, "C-N2": 0.3}, skip=[("big", 5)])
    bins = [{"confidence": 0.1 * i, "accuracy": 0.09 * i, "count": i} for i in range(1, 11)]
    words = ["<b>", HOSTILE, "c"]
    square = [[[[1000, 0, 0], [300, 700, 0], [200, 300, 500]]] * 2] * 3  # 3 layers, 2 heads
    sentence = {"source": words, "target_in": words, "encoder": square, "decoder": square, "cross": square}
    for row in found.study.rows[:3]:
        put(found, row, 1, "calibration", {"ece": 0.02, "bins": bins})
        put(found, row, 1, "attention", {"sentences": [sentence] * 2})
    put_extras(found)
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
    shown.set_default_timeout(120_000)
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
    """Codes of the rows that are shown, which stand after their labels."""
    codes = "rows => rows.map(row => [...row.querySelectorAll('th a, th code')].at(-1).innerText)"
    return page.locator("#table tbody tr:visible").evaluate_all(codes)


def test_table_sorts_and_filters(page):
    whole = names(page)
    assert whole == list(all_rows())
    head = page.locator("#table thead th.c-parameters")
    for order in ("ascending", "descending"):
        head.locator("button").focus()
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == order
        values = [int(cell.get_attribute("data-v")) for cell in page.locator("#table tbody td.c-parameters").all()]
        assert values == sorted(values, reverse=order == "descending") and len(set(values)) > 5
    head.locator("button").click()
    assert names(page) == whole
    page.fill("#find", "dmodel")
    assert names(page) == ["C-dmodel256", "C-dmodel1024"] and "2 of 20" in page.locator("#count").inner_text()
    page.fill("#find", "")
    page.select_option("#verdict", "same direction")
    assert {"A-h1", "C-N2"} <= set(names(page)) < set(whole)


@pytest.mark.parametrize("width", [1280, 1920])
def test_the_table_fits_its_page(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    inner, box = page.evaluate("[one('#table').scrollWidth, one('#table').clientWidth]")
    assert inner <= box
    for key in ("ppl-paper", "ppl-word", "bleu-word", "bleu-pd", "parameters", "paper-size"):
        assert page.locator(f"#table th.c-{key}").is_visible(), key


def test_columns_are_chosen_and_kept_without_a_script_too(browser, path):
    context = browser.new_context()
    page = context.new_page()
    page.goto(path.as_uri())
    p = page.locator("#table th.c-ppl-p")
    assert not p.is_visible()
    page.locator("summary", has_text="Columns").click()
    page.check("#col-ppl-p")
    page.uncheck("#col-bleu")
    page.reload()
    assert p.is_visible() and not page.locator("#table th.c-bleu").is_visible()
    page.locator("summary", has_text="Columns").click()
    page.get_by_role("button", name="as at first").click()
    page.reload()
    assert not p.is_visible() and page.locator("#table th.c-bleu").is_visible()
    context.close()
    plain = browser.new_context(java_script_enabled=False)
    page = plain.new_page()
    page.goto(path.as_uri())
    assert not page.locator("#table th.c-ppl-p").is_visible() and page.locator("#table th.c-bleu").is_visible()
    page.locator("summary", has_text="Columns").click()
    page.check("#col-ppl-p")
    assert page.locator("#table th.c-ppl-p").is_visible()
    page.locator("summary", has_text="Dev perplexity itself").click()
    assert page.locator("#section-curves details svg").first.is_visible()
    plain.close()


def test_pictures_highlight_a_row(page):
    for control, section in (("#pick-curve", "#section-curves"), ("#pick-calibration", "#section-calibration")):
        page.select_option(control, "A-h1")
        lit = page.locator(f"{section} .series.on").all()
        assert lit and {one.get_attribute("data-row") for one in lit} == {"A-h1"}
        page.select_option(control, "")
        assert page.locator(f"{section} .series.on, {section} svg.picking").count() == 0


def pointed(page, mark: str) -> str:
    """What the tooltip says of the first of these marks; scrolling hides it."""
    page.locator(mark).first.scroll_into_view_if_needed()
    frame = "new Promise(done => requestAnimationFrame(done))"
    page.evaluate(f"{frame}.then(() => {frame})")  # by the end of the next frame the page knows that it was scrolled
    page.locator(mark).first.hover()
    page.locator(".tip").wait_for()
    return page.locator(".tip").inner_text()


def test_one_tooltip_says_the_same_of_a_row_in_every_picture(page):
    """By the pointer, beside a thin line too, and by the arrow keys."""
    tip = page.locator(".tip")
    forest = pointed(page, ".on-screens.forest .forest-row[data-row=A-h1] text").splitlines()
    assert (
        forest[0] == "one head (A-h1)" and any("95 % " in line for line in forest) and "the paper" in tip.inner_text()
    )
    assert "same direction" in forest
    size = pointed(page, "#section-quality .on-screens [data-row=A-h1] text")
    assert size.splitlines()[-len(forest) + 1 :] == forest[1:] and "parameters, perplexity" in size
    page.mouse.move(0, 0)
    assert not tip.is_visible()
    curves = page.locator("#section-curves .on-screens svg").first
    curves.focus()
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    assert "in the course of training" in tip.inner_text() and curves.locator(".lit").count() == 1
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    assert page.locator("svg title").count() == 0, "the browser's own would lie over it"


def test_a_trial_says_what_its_line_of_the_table_says(search_page):
    said = pointed(search_page, "#section-course [data-trial=t0000] circle")
    assert said.startswith("t0000\nstate: ✓ finished\nlearning rate factor: ") and "dev perplexity: " in said


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_picture_is_downloaded_as_on_white_paper(page, scheme):
    page.emulate_media(color_scheme=scheme)
    figure = page.locator("#section-forest figure").first
    with page.expect_download() as got:
        figure.get_by_role("button", name="SVG").click()
    text = got.value.path().read_text()
    assert got.value.suggested_filename == "made-one-head-and-a-third-of-the-depth-are-worse.svg"
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg") and len(root.findall(".//*")) > 100
    assert 'fill="#fff"' in text and "currentColor" not in text and "var(" not in text
    assert "fill:rgb(27, 31, 36)" in text and "class=" not in text.split("><", 1)[0]
    with page.expect_download() as got:
        figure.get_by_role("button", name="PNG").click()
    data = got.value.path().read_bytes()
    assert data.startswith(b"\x89PNG") and int.from_bytes(data[16:20], "big") == 3 * 1000
    assert page.evaluate("document.documentElement.className") == ""


def test_the_picture_that_wandb_shows_is_as_narrow_as_its_panel(browser, made, tmp_path):
    (tmp_path / "differences.html").write_text(verdicts_of(make("made", made.root))[2]["differences"])
    page = browser.new_page(viewport={"width": 700, "height": 500})
    page.goto((tmp_path / "differences.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == 700
    page.close()


def test_every_picture_and_every_table_has_its_buttons(page):
    figures = page.locator("main figure")
    assert figures.count() > 8
    for figure in figures.all():
        assert figure.get_by_role("button", name="SVG", include_hidden=True).count() == 1
        assert figure.get_by_role("button", name="PNG", include_hidden=True).count() == 1
    tables = page.locator("main table").count()
    for kind in ("TSV", "LaTeX: "):
        assert page.get_by_role("button", name=f"Copy as {kind}", include_hidden=True).count() == tables


def test_a_table_is_copied_as_it_is_shown(browser, path):
    context = browser.new_context()
    page = context.new_page()
    page.goto(path.as_uri())
    page.evaluate("navigator.clipboard.writeText = async text => { document.copied = text }")
    page.evaluate("window.setTimeout = () => 0")  # what it says goes away after four seconds
    page.fill("#find", "A-h")
    page.get_by_role("button", name="Copy as TSV: Table of all rows").click()
    expect(page.locator("#said")).to_contain_text("as TSV")
    heads, *lines = [line.split("\t") for line in page.evaluate("document.copied").splitlines()]
    assert [re.search(r"A-h\d+", line[0])[0] for line in lines] == ["A-h1", "A-h4", "A-h16", "A-h32"]
    assert lines[0][0].startswith("one head A-h1 ")
    assert {len(line) for line in lines} == {len(heads)} and "paper PPL" in heads and "p (BH)" not in heads
    assert lines[0][heads.index("paper PPL")] == "5.29"
    page.get_by_role("button", name="Copy as LaTeX: Table of all rows").click()
    copied = page.evaluate("document.copied")
    assert "\\toprule" in copied and copied.count("\\\\") == 5 and "$\\pm$" in copied and "P_" not in copied
    page.locator("summary", has_text="As LaTeX").click()
    page.get_by_role("button", name="Copy the whole table as LaTeX").click()
    assert page.evaluate("document.copied").rstrip().endswith("\\end{table*}")
    context.close()


def test_attention_of_two_runs_with_their_words(page):
    sides = [page.locator("section.side").nth(i) for i in (0, 1)]
    runs = [page.locator(f"#attention-run-{i}") for i in (0, 1)]
    chosen = [run.evaluate("e => e.selectedOptions[0].text") for run in runs]
    assert chosen == ["base, seed 1", "one head, seed 1"], "another row beside base at first"
    for side in sides:
        heads = side.get_by_role("button", name="layer")
        assert heads.count() == 6 and side.locator(".heads canvas").count() == 6
        assert heads.first.get_attribute("aria-pressed") == "true"
        words = side.locator(".attended svg text").all_text_contents()
        assert words == [*(["<b>", f"{HOSTILE[:13]}…", "c"] * 2)]
    last = sides[0].get_by_role("button", name="layer 3, head 2, entropy 0.79 bit")
    last.focus()
    page.keyboard.press("Enter")
    for side in sides:
        assert "Layer 3, head 2, entropy 0.79 bit" in side.locator("figcaption").inner_text()
    assert last.evaluate("e => e === document.activeElement")
    assert pointed(page, "#attention-map-0 rect.cell >> nth=4") == f"{HOSTILE} → {HOSTILE}: 0.70"
    for kind in ("decoder", "cross"):
        page.select_option("#attention-kind", kind)
        assert kind in sides[1].locator(".attended svg").get_attribute("aria-label")
    runs[1].select_option("2")
    page.select_option("#attention-sentence", "1")
    assert "four heads, seed 1" in sides[1].locator(".attended svg").get_attribute("aria-label")


def test_translations_of_two_rows_side_by_side(page):
    first = page.locator("details.sentence").first
    assert first.locator(".cards li").count() == 20
    page.select_option("#translated-left", "C-N2")
    page.select_option("#translated-right", "base")
    for sentence in page.locator("details.sentence").all():
        shown = sentence.locator(".cards li:visible")
        assert [one.get_attribute("data-row") for one in shown.all()] == ["C-N2", "base"]
    left, right = (one.bounding_box() for one in first.locator(".cards li:visible").all())
    assert left["y"] == right["y"] and left["x"] < right["x"]
    page.select_option("#translated-left", "")
    page.select_option("#translated-right", "")
    assert [one.get_attribute("data-row") for one in first.locator(".cards li").all()] == list(all_rows())


def test_every_link_leads_somewhere_and_rows_open_to_their_runs(page):
    for link in page.locator("a").all():
        assert page.locator(f'[id="{link.get_attribute("href")[1:]}"]').count() == 1
    page.locator("#table tbody th a", has_text="big").click()
    runs = page.locator("#section-runs .chosen:visible")
    page.locator("#section-runs h3", has_text="big").wait_for()
    assert runs.count() == 1 and "seed 5: not run yet" in runs.inner_text()
    assert "lightning-tfm fit" in runs.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_paper(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 800})
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("one('#table').scrollWidth <= one('#table').clientWidth")
    assert "\N{NO-BREAK SPACE}% perplexity" in page.locator(".headline").text_content()
    page.check("#col-all")
    assert page.locator("#table th.c-bleu-word").is_visible()
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 200) == (scheme == "dark")
    page.emulate_media(media="print", color_scheme=scheme)
    assert not page.locator("nav").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "paper is white"


def test_paper_cuts_nothing_off(any_page):
    any_page.emulate_media(media="print")
    for width, those in ((703, ":not(#table > *)"), (1032, "#table > *")):  # A4, A4 across: within margins
        any_page.set_viewport_size({"width": width, "height": 1000})
        found = f"[...document.querySelectorAll('table, svg')].filter(e => e.matches('{those}'))"
        assert any_page.evaluate(f"{found}.length") > 0
        wide = f"{found}.filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
        assert any_page.evaluate(f"{wide}.map(e => e.outerHTML.slice(0, 200))") == []
    small = "[...document.querySelectorAll('#table *')].filter(e => parseFloat(getComputedStyle(e).fontSize) < 10)"
    assert any_page.evaluate(f"{small}.map(e => e.outerHTML)") == [], "7.5 pt"


def test_table_3_takes_eight_pages_of_paper_with_perplexity_and_bleu_on_the_first(browser, tmp_path):
    """The committed records of the front page's report, printed from a dark screen."""
    pdfium = pytest.importorskip("pypdfium2")
    archive.unpack(ROOT / "experiments" / "results" / "miniature-8-epochs" / "records.tar.xz", tmp_path)
    file = tmp_path / "report.html"
    file.write_text(make("table3-8-epochs", tmp_path).render("html"))
    page = browser.new_page(color_scheme="dark")
    page.goto(file.as_uri())
    printed = pdfium.PdfDocument(page.pdf(prefer_css_page_size=True))
    page.close()
    assert len(printed) <= 8
    first = printed[0].get_textpage().get_text_range()
    for words in ("Perplexity against base", "BLEU", "Is it sure?", "half the width", "+37 %", "\N{MINUS SIGN}12.6"):
        assert words in first, words


def test_on_paper_a_head_stays_with_what_it_heads(any_page):
    any_page.emulate_media(media="print")
    heads = "[...document.querySelectorAll('h2, h3, h2 + p, h3 + p, h2 + .key')]"
    assert (
        any_page.evaluate(f"{heads}.map(e => getComputedStyle(e).breakAfter)")
        == ["avoid"] * any_page.locator("h2, h3, h2 + p, h3 + p, h2 + .key").count()
    )
    first = "[...document.querySelectorAll('h2 + p, h2 + .key')].map(e => getComputedStyle(e).breakInside)"
    assert set(any_page.evaluate(first)) <= {"avoid"}, "no line of it is left behind alone"
    broken = "[...document.querySelectorAll('th, td')].filter(e => getComputedStyle(e).overflowWrap === 'anywhere')"
    assert any_page.evaluate(f"{broken}.length") == 0, "no word is broken to save room for a column"
    found = re.findall(rb"MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", any_page.pdf(prefer_css_page_size=True))
    sizes = [tuple(round(float(side)) for side in size) for size in found]
    assert sizes[0] == (595, 842) and set(sizes) == {(595, 842), (842, 595)}, "the main table's pages lie across"


@pytest.mark.parametrize(("width", "media"), [(400, "screen"), (768, "screen"), (1280, "screen"), (703, "print")])
def test_names_at_the_ends_of_curves_are_whole_and_cover_no_other(browser, tmp_path, width, media):
    few = Generator(tmp_path, ["base", "A-h1", "B-dk16", "C-N4", "C-dff1024", "C-dff4096", "D-eps0.0"], [1, 2])
    few.write_all()
    file = tmp_path / "report.html"
    file.write_text(make("made", tmp_path).render("html"))
    for page in opened(browser, file):
        page.emulate_media(media=media)
        page.set_viewport_size({"width": width, "height": 900})
        ((count, beyond, near),) = page.evaluate(in_page("line_ends"))
        assert count == 6 and beyond <= 0 and near > 0.7


@pytest.mark.parametrize("width", [400, 768, 1280, 1920])
def test_no_letter_is_below_nine_pixels(any_page, width):
    any_page.set_viewport_size({"width": width, "height": 900})
    assert any_page.evaluate(in_page("small_letters")) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_mend(any_page, scheme):
    any_page.emulate_media(color_scheme=scheme)
    any_page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert axe_violations(any_page, "label", "svg-img-alt") == []


def test_axe_would_see_a_fault(page):
    axe = Axe()
    page.evaluate("document.querySelector('#find').parentNode.replaceWith(document.querySelector('#find'))")
    page.add_style_tag(content="p{color:#ccc!important;background:#fff!important}")
    assert {"label", "color-contrast"} <= {v["id"] for v in axe.run(page).response["violations"]}


def test_the_page_is_painted_from_its_own_file(browser, path):
    """How fast depends on the machine, and is printed; that nothing else is asked for is held by `opened`."""
    times = [first_paint(browser, path) for _ in range(5)]
    print(f"first paint after {sorted(round(t) for t in times)} ms")


def first_paint(browser, path) -> float:
    """In milliseconds. Its policy forbids what Playwright waits with."""
    page = browser.new_page()
    page.goto(path.as_uri())
    paint = "performance.getEntriesByType('paint')[0]?.startTime"
    began = wait_for(lambda: page.evaluate(paint), what="the first paint")
    page.close()
    return began


def test_every_control_there_is_takes_every_value_without_an_error(any_page):
    """What each does is tested one by one elsewhere; this finds those that nobody thought of."""
    used = 0
    for summary in any_page.locator("summary").all():
        if not summary.evaluate("e => e.parentNode.open"):
            summary.focus()
            any_page.keyboard.press("Enter")
        assert summary.evaluate("e => e.parentNode.open")
    for control in any_page.locator("select").all():
        for value in [o.get_attribute("value") for o in control.locator("option").all()][:30]:
            control.select_option(value) if value is not None else control.select_option(index=0)
            used += 1
        control.select_option(index=0)
    for box in any_page.locator("input[type=checkbox]:visible").all():
        for _ in range(2):
            box.click()
        used += 1
    for slider in any_page.locator("input[type=range]").all():
        slider.focus()
        any_page.keyboard.press("ArrowRight")
        used += 1
    for button in any_page.locator("button:visible").element_handles():
        if button.is_visible():  # one that undoes what the sliders did is gone when they are back
            button.evaluate("e => e.click()")
            assert button.evaluate("e => !e.closest('thead') || e.closest('th').ariaSort") in (True, "ascending")
            used += 1
    for field in any_page.locator("input[type=search]").all():
        field.fill("zzz")
        assert any_page.locator("#table tbody tr:visible").count() == 0
        field.fill("")
    assert used > 25
    known = ", ".join(f"input[type={kind}]" for kind in ("checkbox", "search", "range"))
    assert any_page.locator(f":is(input, textarea):not({known})").count() == 0, "a control unknown here"


def test_search_page_sorts_filters_and_highlights(search_page):
    rows = search_page.locator("#table tbody tr:visible")
    assert rows.count() == 120
    search_page.select_option("#verdict", "stopped early")
    assert rows.count() == 20 and "20 of 120" in search_page.inner_text("#count")
    search_page.select_option("#verdict", "")
    search_page.fill("#find", "t0007")
    assert rows.count() == 1
    search_page.fill("#find", "")
    search_page.locator("#table thead button", has_text="dev perplexity").click()
    values = [float(v) for c in rows.all() if (v := c.locator("td").nth(6).get_attribute("data-v"))]
    assert len(values) > 80 and values == sorted(values)
    picture = search_page.locator("#section-parallel figure").first
    search_page.select_option("#pick-parallel-0", "t0000")
    lit = picture.locator(".series.on")
    assert lit.count() == 1 and lit.get_attribute("data-trial") == "t0000"
    assert search_page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_range_on_an_axis_keeps_its_trials_everywhere(search_page):
    figure = search_page.locator("figure.brushed").first
    handle = figure.locator("svg .handle").first
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    middle = box["x"] + box["width"] / 2
    search_page.mouse.move(middle, box["y"] + 1)
    search_page.mouse.down()
    search_page.mouse.move(middle, box["y"] + box["height"] / 2)
    search_page.mouse.up()
    assert figure.locator("svg .brush").count() == 1
    kept = search_page.locator("#table tbody tr:visible")
    rates = kept.evaluate_all("rows => rows.map(row => +row.children[2].dataset.v)")
    assert 20 < len(rates) < 100 and min(rates) > 0.9 * (0.1 * 2) ** 0.5
    names = set(kept.evaluate_all("rows => rows.map(row => row.dataset.trial)"))
    for section in ("parallel", "course", "training"):
        left = search_page.locator(f"#section-{section} svg [data-trial]:not(.off)")
        trials = left.evaluate_all("marks => marks.map(mark => mark.dataset.trial)")
        assert trials and set(trials) <= names, section
    figure.get_by_role("button", name="all trials").click()
    assert kept.count() == 120 and search_page.locator(".off").count() == 0
    figure.locator("summary", has_text="Ranges by keyboard").click()
    to = figure.locator("fieldset", has_text="training.lr_factor").get_by_label("to")
    to.focus()
    search_page.keyboard.press("Home")
    assert to.get_attribute("aria-valuetext") == "0 % of the axis" and kept.count() < 5
