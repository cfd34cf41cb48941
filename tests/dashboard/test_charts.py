"""Charts of the dashboard in a real browser: read by mouse, keyboard and touch, and left to their reader by news."""

import json
import re

import pytest
from playwright.sync_api import expect

from lightning_tfm.study.rows import apply
from tests.helpers.browser import in_page
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.long


def test_what_a_chart_says_of_the_last_step_is_not_smoothed(open_page, served):
    page = open_page("running")
    run = served.board.look().runs[page.url.rsplit("/", 1)[1]]
    expect(page.locator("#chart-loss .readout")).to_contain_text(f"loss {run.loss:.4g}"[:9])


def test_a_drag_shows_a_part_and_a_click_in_the_key_hides_a_curve(open_page):
    page = open_page("curves")
    chart, now = page.locator("#chart-curves"), lambda: page.evaluate(in_page("chart"), "chart-curves")
    whole = now()
    assert whole["curves"] == 3 and whole["bands"] > 0
    key = chart.get_by_role("button", name="one head")
    key.click()
    assert now()["curves"] == 2 and key.get_attribute("aria-pressed") == "false"
    key.press("Enter")
    assert now()["curves"] == 3
    box = chart.locator(".plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=4)
    page.mouse.up()
    part = now()
    assert whole["x"][0] < part["x"][0] < part["x"][1] < whole["x"][1] and part["curves"] == 3
    left, right = page.evaluate(in_page("edges"), "chart-curves")
    assert left and right, "lines go on to the edges of the plot"
    chart.get_by_role("button", name="Whole").click()
    assert now()["x"] == whole["x"]
    box = chart.locator(".plot").bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 10, box["y"] + box["height"] + 120, steps=4)
    page.mouse.up()
    assert page.evaluate("getSelection().toString()") == "", "beside an axis nothing is selected"
    chart.locator(".plot").focus()
    page.keyboard.press("Home")
    page.keyboard.press("+")
    assert now()["x"] != whole["x"]
    page.keyboard.press("-")
    assert now()["x"] == whole["x"]
    for axis in ("target_tokens", "seconds", "flops"):
        page.get_by_label("Across").select_option(axis)
        assert now()["x"] != whole["x"] and now()["curves"] > 0, axis
    page.get_by_label("Group by").fill("")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**by=&**")
    assert page.locator(".toggles button").count() > 3


def test_a_study_s_curves_are_differences_to_base_until_the_raw_ones_are_asked_for(open_page):
    page = open_page("", "/study/other")
    chart, now = page.locator("#chart-dev"), page.evaluate(in_page("differences"))
    assert now["distr"] == 4 and all(now["whole"]) and "base" not in now["names"]
    assert now["end"] == pytest.approx([100, 100 * (now["raw"] - 1)])
    assert " %" in chart.locator(".readout").inner_text() and not chart.get_by_role("button", name="base").is_visible()
    assert not chart.get_by_label("logarithmic").is_visible()
    chart.get_by_label("raw curves").check()
    now = page.evaluate(in_page("differences"))
    assert now["distr"] == 3 and "base" in now["names"] and now["end"][0] > 1
    assert chart.get_by_role("button", name="base").is_visible() and " %" not in chart.locator(".readout").inner_text()


def test_charts_smooth_change_their_axes_and_are_read_by_keyboard(open_page):
    page = open_page("finished")
    chart, now = page.locator("#chart-loss"), lambda: page.evaluate(in_page("chart"), "chart-loss")
    assert page.locator(".smooth").input_value() == "0" and now()["raw"] == 0
    first = now()
    page.locator(".smooth").fill("0.6")
    assert now()["raw"] == 2
    page.locator(".smooth").fill("0")
    assert now() == first
    page.get_by_label("Across").select_option("seconds")
    assert now()["x"] != first["x"]
    page.get_by_label("Across").select_option("step")
    chart.get_by_label("logarithmic").check()
    assert now()["log"] and not first["log"]
    chart.locator(".plot").focus()
    page.keyboard.press("Home")
    readout = chart.locator(".readout")
    expect(readout).to_have_text(re.compile("^50: loss "))
    page.keyboard.press("ArrowRight")
    expect(chart.locator(".plot")).to_have_attribute("aria-label", re.compile("100: loss"))
    expect(chart.locator(".u-cursor-x:not(.u-off)")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(readout).to_have_text(re.compile("^last: "))
    chart.locator(".plot").hover()
    expect(readout).to_have_text(re.compile("^[0-9]+: .*loss"))
    canvases = "[...document.querySelectorAll('.plot')].map(plot => plot.querySelectorAll('canvas').length)"
    assert set(page.evaluate(canvases)) == {1}


def test_a_chart_that_news_draws_anew_stays_where_its_reader_is(open_page):
    page = open_page("finished")
    chart, news = page.locator("#chart-loss"), "charts.forEach(chart => { chart.look = ''; chart.draw(); })"
    plot, readout = chart.locator(".plot"), chart.locator(".readout")
    plot.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.evaluate(news)
    expect(readout).to_have_text(re.compile("^100: loss "))
    page.keyboard.press("ArrowRight")
    expect(readout).to_have_text(re.compile("^150: loss "))
    whole = page.evaluate(in_page("chart"), "chart-loss")["x"]
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 50)
    page.evaluate(news)
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 50)
    page.mouse.up()
    expect(chart.get_by_role("button", name="Whole")).to_be_visible()
    page.evaluate(news)
    part = page.evaluate(in_page("chart"), "chart-loss")["x"]
    assert 0.25 < (part[1] - part[0]) / (whole[1] - whole[0]) < 0.5, "to where the drag ended"


def test_a_chart_is_read_by_touch_and_turns_dark_with_the_page(open_page):
    page = open_page("finished", width=400, has_touch=True)
    page.locator("#chart-loss .u-over").tap()
    expect(page.locator("#chart-loss .readout")).not_to_have_text(re.compile("^last"))
    stroke = "charts.get('chart-loss').drawn.series[1].stroke()"
    light = page.evaluate(stroke)
    page.emulate_media(color_scheme="dark")
    wait_for(lambda: page.evaluate(stroke) != light, what="the dark page's colour")


def test_in_the_key_of_a_search_s_curves_each_has_the_colour_of_its_line(open_page):
    page = open_page("search")
    classes = page.locator("#chart-dev .toggles li span").evaluate_all("marks => marks.map(mark => mark.className)")
    drawn = page.evaluate("charts.get('chart-dev').shown.map(kind)")
    assert classes == drawn and len(set(classes)) > 1


def test_news_leave_what_a_reader_holds_of_a_chart(new_page, serve, folder, tmp_path):
    study = folder.table("table", ["base", "A-h1"], seeds=[1, 2])
    going = folder.run(apply(study.base, study.rows[0], 1), "running")
    page = new_page()
    page.set_viewport_size({"width": 1280, "height": 1400})  # all of it is seen: a page that scrolls hides its tooltip
    page.goto(f"{serve(tmp_path).url}/run/{going.path.name}")
    page.locator("#chart-loss").get_by_role("button", name="NLL").click()
    for id in ("chart-lr", "chart-loss"):  # one part of an axis, one curve hidden, one cursor by keyboard
        page.locator(f"#{id} .plot").focus()
        page.keyboard.press("Home")
        page.keyboard.press("+")
    page.evaluate("charts.forEach(chart => { chart.drawn.mine = 1; })")
    before = {id: rest for id, *rest in page.evaluate(in_page("held"))}
    assert before["chart-loss"][1:5] == [before["chart-loss"][1], 50, 1, True] and before["chart-lr"][1] is not None
    tip = page.locator(".tip:not([hidden])")
    expect(tip).to_contain_text("50 steps")
    with going.metrics.open("a") as file:
        file.write(json.dumps({"step": 1999, "dev_ppl": 1.2345, "dev_nll": 0.2}) + "\n")
    page.locator("#part-head dd", has_text="1.23").wait_for()
    after = {id: rest for id, *rest in page.evaluate(in_page("held"))}
    more = [*before["chart-dev"][:-1], before["chart-dev"][-1] + 1]
    assert after == before | {"chart-dev": more}, "one chart has a point more, none was made anew"
    expect(tip).to_contain_text("50 steps")
