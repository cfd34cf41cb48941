"""The dashboard in a real browser: every page accessible, no wider than a phone, live, and quick at 1,000 runs."""

import json
import shutil
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from lightning_tfm.study.rows import apply
from tests.helpers.browser import axe_violations, in_page
from tests.helpers.studies import SMALL, Generator, write_search

pytestmark = pytest.mark.long


NAMES = ["index", "table", "search", "broken", "running", "finished", "runs", "curves", "wrong"]
NAMES += ["report", "missing", "compare", "row"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_nothing_to_mend_and_nothing_is_wider_than_a_phone(open_page, name, scheme):
    page = open_page(name, width=400, color_scheme=scheme, reduced_motion="reduce")
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.evaluate(in_page("broken_heads")) == []
    assert axe_violations(page) == []
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.evaluate(in_page("broken_heads")) == []
    assert axe_violations(page) == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 200) == (scheme == "dark")


@pytest.mark.parametrize("width", [768, 900, 1280, 1920])
def test_no_column_reaches_into_the_next_or_is_cut_at_any_width(open_page, width):
    page = open_page("index", width=width)
    for table in ("#table-studies", "#table-runs"):
        assert page.locator(table).evaluate(in_page("fits")) == [0, []], table
    page.goto(page.url + "study/many")
    assert page.locator("#table-cells td").count() > 128
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "64 seeds that wait widen their table alone"
    for name in ("curves", "running", "runs", "search"):
        assert open_page(name, width=width).evaluate("document.documentElement.scrollWidth") <= width, name


def row_ids(page) -> list[str]:
    return page.locator("#table-runs tbody tr").evaluate_all("rows => rows.map(row => row.id)")


def cell_values(page, column: int) -> list[float]:
    cells = page.locator(f"#table-runs tbody td:nth-child({column})")
    return [float(v) for v in cells.evaluate_all("cells => cells.map(cell => cell.dataset.v)") if v]


def test_runs_are_sorted_and_filtered_by_keyboard_and_the_address_remembers_it(open_page):
    page = open_page("index")
    whole = row_ids(page)
    for order in ("ascending", "descending"):
        page.locator("#table-runs thead button", has_text="dev PPL").press("Enter")
        page.locator(f"#table-runs thead th[aria-sort={order}]", has_text="dev PPL").wait_for()
        values = cell_values(page, 7)
        assert values == sorted(values, reverse=order == "descending") and len(values) > 10
        assert page.evaluate("document.activeElement.textContent") == "dev PPL", "the focus stays"
    page.get_by_label("State").select_option("failed")
    count = page.locator(".count")
    count.get_by_text(f" of {len(whole)} runs").wait_for()
    failed = row_ids(page)
    assert 0 < len(failed) < len(whole) and f"{len(failed)} of {len(whole)} runs" in count.inner_text()
    with page.expect_response("**/runs?*find=one*"):
        page.get_by_label("Find").fill("one head")
    page.reload()
    expect(page.get_by_label("State")).to_have_value("failed")
    expect(page.get_by_label("Find")).to_have_value("one head")
    assert "sort=-ppl" in page.url and len(row_ids(page)) <= len(failed)
    page.get_by_label("Find").fill("")
    page.get_by_label("State").select_option("")
    page.get_by_label("Study").select_option("other")
    count.get_by_text(f"4 of {len(whole)} runs").wait_for()
    page.locator("#table-runs thead button", has_text="dev PPL").click()
    page.get_by_label("Study").select_option("")
    count.get_by_text(f"{len(whole)} runs", exact=True).wait_for()
    assert sorted(row_ids(page)) == sorted(whole) and page.url.endswith("/")
    sorts = page.locator("#table-runs thead th").evaluate_all("heads => heads.map(head => head.ariaSort)")
    assert {*sorts[1:]} == {"none", None}


def test_of_many_runs_those_that_one_looks_at_are_rows_and_all_are_sorted(new_page, serve, folder, tmp_path):
    for seed in range(230):
        folder.run(replace(SMALL, training=replace(SMALL.training, seed=seed)), texts=False)
    served, page = serve(tmp_path), new_page()
    page.goto(served.url)
    rows = page.locator("#table-runs tbody tr")
    assert rows.count() == 100 and "230 runs" in page.inner_text(".count")
    worst = max(served.board.look().runs.values(), key=lambda run: run.ppl)
    best = min(served.board.look().runs.values(), key=lambda run: run.ppl)
    page.locator("#table-runs thead button", has_text="dev PPL").click()
    page.locator(f"#table-runs tbody tr:first-child[id=run-{best.name}]").wait_for()
    rows.first.locator("input").check()
    page.locator("#table-runs thead button", has_text="dev PPL").click()
    page.locator(f"#table-runs tbody tr:first-child[id=run-{worst.name}]").wait_for()
    rows.first.locator("input").check()
    for most in (200, 230):
        page.locator(".scroll.tall").evaluate("e => e.scrollTop = e.scrollHeight")
        rows.nth(most - 1).wait_for()
    values = cell_values(page, 7)
    assert len(values) == 230 and values == sorted(values, reverse=True)
    assert rows.first.locator("input").is_checked() and rows.last.locator("input").is_checked()
    page.get_by_label("Find").fill(best.name)
    page.get_by_text("1 of 230 runs").wait_for()
    page.get_by_role("button", name="Compare 2").click()
    page.wait_for_url("**/diff?**")
    assert best.name in page.url and worst.name in page.url, "ticked ones are compared wherever they are"


def test_ticked_runs_are_compared(open_page):
    page = open_page("index")
    button = page.locator("button.compare").nth(1)
    assert button.is_disabled()
    boxes = page.locator("#table-runs tbody tr[data-state=finished] input[type=checkbox]")
    boxes.nth(0).focus()
    page.keyboard.press("Space")
    assert button.is_disabled()
    boxes.nth(1).check()
    expect(button).to_have_text("Compare 2")
    page.evaluate("document.addEventListener('submit', event => event.preventDefault(), {once: true})")
    button.click()
    expect(button).to_have_text("Comparing 2…")  # until the page that answers is there
    button.click()
    page.wait_for_url("**/diff?run=*&run=*")
    assert page.locator("h2", has_text="The same sentences").count() == 1 and page.locator("mark").count() > 3
    rows = page.locator("table.fields tbody tr")
    few = page.locator("table.fields tbody tr:visible").count()
    page.get_by_label("fields that are alike").check()
    assert 0 < few < page.locator("table.fields tbody tr:visible").count() == rows.count()


def test_a_condition_and_columns_of_any_field_are_asked_for_and_the_address_remembers_them(open_page, served):
    page = open_page("index")
    whole = row_ids(page)
    seen = served.board.look().runs
    page.get_by_label("Where").fill("h = 1 and row != 'base'")
    wanted = {f"run-{name}" for name, run in seen.items() if run.experiment.get("model", {}).get("h") == 1}
    page.get_by_text(f"{len(wanted)} of {len(whole)} runs").wait_for()
    assert set(row_ids(page)) == wanted and 0 < len(wanted) < len(whole)
    page.get_by_label("Columns").fill("lr_factor, training.seed")
    button = page.locator("#table-runs th.own button", has_text="training.seed")
    button.wait_for()
    for order in ("ascending", "descending"):
        button.click()
        page.locator(f"#table-runs th.own[aria-sort={order}]").wait_for()
        seeds = [int(cell) for cell in page.locator("#table-runs tbody tr td.own:last-child").all_inner_texts()]
        assert seeds == sorted(seeds, reverse=order == "descending") and len(set(seeds)) > 1
    page.reload()
    page.get_by_text(f"{len(wanted)} of {len(whole)} runs").wait_for()
    assert set(row_ids(page)) == wanted and page.locator("#table-runs th.own").count() == 2
    page.route("**/runs?*", lambda route: route.fulfill(status=400, body="did you mean 'd_model'?"))
    page.get_by_label("Where").fill("d_modl = 1")
    page.locator(".wrong", has_text="did you mean 'd_model'?").wait_for()
    assert set(row_ids(page)) == wanted, "as it was"
    page.unroute("**/runs?*")
    page.get_by_label("Where").fill("")
    page.locator(".count").get_by_text(f"{len(whole)} runs", exact=True).wait_for()
    page.get_by_label("State").select_option("finished")
    page.get_by_role("button", name="Curves").click()
    page.wait_for_url("**/curves?where=state*")
    assert page.locator(".toggles button").count() == sum(run.state == "finished" for run in seen.values())


STYLES = {  # of what the report page's sheets style, too: they may be cut otherwise one day
    "table": {".u-over": ("position", "absolute"), ".stack": ("height", "10px")},
    "finished": {".plot": ("user-select", "none"), "ul.dots": ("display", "flex"), "rect.g1": ("fill", None)},
    "index": {
        ".spark polyline": ("fill", "none"),
        ".scroll.tall": ("overflow-y", "auto"),
        "h2": ("border-top-width", "0px"),
    },
}


@pytest.mark.parametrize("name", STYLES)
def test_what_the_report_s_style_sheets_give_arrives(open_page, name):
    page = open_page(name)
    for query, (key, value) in STYLES[name].items():
        page.locator(query).first.wait_for(state="attached")  # and read in one step: a live page draws its parts anew
        style = page.evaluate("([q, key]) => getComputedStyle(document.querySelector(q))[key]", [query, key])
        assert style == value or (value is None and style not in ("none", "rgb(0, 0, 0)")), query
    free = """[...document.querySelectorAll('.scroll.full, .scroll.tall')].map(
      e => document.querySelector('main').clientWidth - e.offsetWidth)"""
    assert all(width < 2 for width in page.evaluate(free))


def test_an_open_page_shows_what_happens_without_being_asked_again(new_page, serve, folder, tmp_path):
    study = folder.table("table", ["base", "A-h1"], seeds=[1, 2])
    going = folder.run(apply(study.base, study.rows[0], 1), "running")
    served = serve(tmp_path)
    pages = {path: new_page() for path in ("/", "/study/table", f"/run/{going.path.name}")}
    for path, page in pages.items():
        page.goto(served.url + path)
    index, table, run = pages.values()
    box = index.locator(f"#run-{going.path.name} input")
    box.check()
    with going.metrics.open("a") as file:
        file.write(json.dumps({"step": 1999, "dev_ppl": 1.2345, "dev_nll": 0.2}) + "\n")
    expect(index.locator(f"#run-{going.path.name}")).to_contain_text("1.23")
    expect(box).to_be_checked()
    table.locator("#table-cells td", has_text="1.23").wait_for()
    run.locator("#part-head dd", has_text="1.23").wait_for()
    expect(run.locator("#chart-dev .readout")).to_contain_text("1.234")
    folder.run(apply(study.base, study.rows[1], 1))
    folder.run(replace(SMALL, training=replace(SMALL.training, seed=9)))
    index.get_by_text("3 runs").wait_for()
    folder.run(apply(study.base, study.rows[0], 1), "finished")
    run.locator("#part-head .s-finished").first.wait_for()


def test_a_run_that_is_removed_while_its_page_is_open_is_said_to_be_gone(new_page, serve, folder, tmp_path):
    folder.fill(folder.table("table", ["base", "A-h1"], seeds=range(16)))
    page, served = new_page(), serve(tmp_path)
    name = next(iter(served.board.look().runs))
    page.goto(f"{served.url}/run/{name}")
    shutil.rmtree(tmp_path / "runs" / name)
    page.get_by_text("no longer there").wait_for()
    page.goto(served.url)
    boxes = page.locator("#table-runs tbody input")
    assert boxes.count() == 31
    for i in range(31):
        boxes.nth(i).check()
    button = page.locator("button.compare").last
    expect(button).to_have_text("Compare at most 30")
    expect(button).to_be_disabled()
    boxes.nth(0).uncheck()
    button.click()
    page.get_by_role("heading", name="Configuration").wait_for()
    expect(page.locator("#part-scores thead th")).to_have_count(30)


@pytest.mark.parametrize("width", [400, 768, 1280, 1920])
def test_what_a_study_asks_and_found_is_seen_without_scrolling_sideways(open_page, width):
    study, page = "#table-studies #study-table", open_page("index", width=width)
    found = page.evaluate(in_page("right"), [".scroll", f"{study} td:nth-of-type(4)", f"{study} .question"])
    for table in ("#table-studies", "#table-runs"):
        assert page.locator(table).evaluate(in_page("fits"))[0] == 0, table
    assert 0 < found[1] <= found[0] + 1, "the best"
    assert (found[2] > 0) == (width > 700)
    queries = ["#part-cells .scroll", "#table-cells caption span"]
    edge, words = open_page("table", width=width).evaluate(in_page("right"), queries)
    assert 0 < words <= edge + 1, "its words wrap"


def test_a_row_s_name_opens_a_panel_over_the_page(new_page, serve, tmp_path):
    Generator(tmp_path, ["base", "A-h1"], [4, 5]).write_all()
    page = new_page()
    page.goto(serve(tmp_path).url + "/study/made")
    page.locator("#forest > *").first.wait_for(state="attached")
    page.locator("a.panel", has_text="one head").focus()
    page.keyboard.press("Enter")
    panel = page.locator("dialog[open]")
    panel.get_by_role("heading", name="one head").wait_for()
    assert panel.locator("svg").count() > 0 and panel.get_by_role("link", name="seed 4").count() == 1
    assert axe_violations(page) == []
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)


def test_a_hundred_studies_are_a_list_that_can_be_searched(new_page, serve, folder, tmp_path):
    for number in range(100):
        folder.table(f"study-{number:03d}", ["base"], seeds=[1])
    page = new_page()
    page.goto(serve(tmp_path).url)
    assert page.get_by_role("heading", name="Runs", exact=True).bounding_box()["y"] < 700
    page.locator(".within").fill("study-07 waiting")
    expect(page.locator("#table-studies tbody tr:visible")).to_have_count(10)
    expect(page.locator(".studies")).to_have_text("10 of 100")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_an_empty_page_a_table_with_verdicts_a_row_of_it_and_a_search_s_report(
    new_page, serve, tmp_path, scheme
):
    page, url = new_page(color_scheme=scheme), serve(tmp_path).url
    for path in ("/", "/study/made", "/study/made/row?name=A-h1", "/study/found/report"):
        page.goto(url + path)
        if path == "/study/made":
            page.locator("#forest svg").first.wait_for(state="attached")
        for width in (400, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert axe_violations(page) == [], (path, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        if path == "/":
            Generator(tmp_path, ["base", "A-h1"], [4, 5]).write_all()
            write_search(tmp_path, 20)


def test_a_report_s_own_script_runs_under_its_policy_and_no_other(open_page):
    page = open_page("report", "/study/other/report")
    assert page.locator("figure .tools button").count() > 0, "its script ran"
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.x = 1'}))"
    )
    assert page.evaluate("window.x") is None
    page.goto(page.url.replace("/study/other/report", "/compare?study=table&study=other"))
    assert page.locator("h1").count() == 1


def test_a_page_says_when_the_server_is_gone(open_page, served):
    page = open_page("index")
    page.route("**/news*", lambda route: route.abort())
    page.get_by_text("the server does not answer").wait_for()
