"""What is said beside rows: that one is base or another row, so that nothing is corrected for it; what others print."""

import html
import json
from dataclasses import replace

import pytest

from lightning_tfm.queue.time_estimate import text as planned
from lightning_tfm.report.build import make, render_table, write_table
from lightning_tfm.report.build_summary import summarise, tabulate
from lightning_tfm.report.records import collect
from lightning_tfm.report.sequential import further
from lightning_tfm.report.tables.data_lines import lines
from lightning_tfm.study.rows import Paper, Row, all_rows
from lightning_tfm.study.sequential import Course, Look, late
from lightning_tfm.study.study_file import save
from tests.helpers.studies import Generator

NOT_PRINTED = Paper(None, None, None)
TWINS = [
    Row("also-base", "X", {"model.h": 8}, NOT_PRINTED, "mine.yaml:1"),
    Row("also-h4", "X", {"model.d_v": 128, "model.d_k": 128, "model.h": 4}, NOT_PRINTED, "mine.yaml:2"),
    Row("empty", "X", {}, NOT_PRINTED, "mine.yaml:3"),
]
NAMES = ("A-h4", "A-h1", "C-N2", "base", "D-Pdrop0.0", "D-Pdrop0.2", "E-learned")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """One study without twins, one with, of the same runs."""
    rows, root = [all_rows()[name] for name in NAMES], tmp_path_factory.mktemp("twins")
    found = []
    for name, chosen in (("without", rows), ("with", [TWINS[0], *rows[:2], *TWINS[1:], *rows[2:]])):
        made = Generator(root, chosen, [1, 2, 3], name)
        made.write_all(
            {"A-h1": 0.2, "C-N2": 0.3, "A-h4": 0.03}, skip=[(row.name, s) for row in TWINS for s in (1, 2, 3)]
        )
        found.append(made)
    return found


def rows_of(report):
    return {row.name: row for row in report.rows}


def test_nothing_is_corrected_for_twins(pair):
    without, with_twins = (make(made.study.name, made.root).summary for made in pair)
    found = rows_of(with_twins)
    for row in without.rows:
        assert row == found[row.name]
    for row in TWINS:
        twin = found[row.name]
        assert twin.n == 3 and not twin.base and twin.ppl.difference is None and twin.metric("bleu").difference is None
    assert [found[row.name].same_as for row in TWINS] == ["base", "A-h4", "base"]
    assert found["also-h4"].ppl.by_seed == found["A-h4"].ppl.by_seed
    assert (with_twins.finished, with_twins.cells) == (without.finished, without.cells) == (21, 21)
    assert with_twins.claims == without.claims and with_twins.analyses["agreement"] == without.analyses["agreement"]
    assert with_twins.analyses["agreement"] is not None


def test_nor_by_looks_and_no_look_asks_for_them(pair):
    both = []
    for made in pair:
        cells = make(made.study.name, made.root).cells
        seen = {row.name: [1, 2, 3] for row in made.study.rows}
        course = Course(late(5, 8), [Look(seen)], None)
        summary = summarise(cells, course)
        both.append((summary, further(course, summary, seen, list(range(1, 9)))))
    (without, next_without), (with_twins, next_with) = both
    for row in without.rows:
        assert row == rows_of(with_twins)[row.name]
    for row in TWINS:
        assert next_with.asked is not None and next_with.asked[row.name] == [1, 2, 3]
    assert {k: v for k, v in next_with.asked.items() if k not in [row.name for row in TWINS]} == next_without.asked


def test_every_format_says_so(pair):
    made = pair[1]
    table = tabulate(made.study, collect(made.study, made.root))
    for width in (80, 140):
        flat = " ".join(render_table(table, "text", width).split())
        assert "also-base is base, also-h4 is A-h4, empty is base: the same runs, so no comparison of their own" in flat
        assert flat.count("is A-h4") == 2
    assert "also-h4 (is A-h4)" in render_table(table, "markdown")
    assert render_table(table, "csv").splitlines()[1].endswith(",base") and render_table(table, "csv").splitlines()[
        0
    ].endswith(",is")
    assert [row.get("is") for row in json.loads(render_table(table, "json"))["rows"]][:3] == ["base", None, None]
    report = make(made.study.name, made.root)
    same = {line["row"]: (line["is"], line["ppl difference verdict"]) for line in lines(report.summary)}
    found = [same[name] for name in ("base", "also-base", "also-h4", "empty")]
    assert found == [(None, None), ("base", None), ("A-h4", None), ("base", None)]
    words = {
        line["row"]: line["bleu difference verdict"] for line in lines(make(made.study.name, made.root, "A-h4").summary)
    }
    assert words["A-h4"] is None and words["base"]
    assert "<bdi>is A-h4: the same runs, no comparison</bdi>" in report.render("html")
    assert "| also-h4 (is A-h4) |  | is A-h4 | 3 |" in report.render("markdown")
    assert "also-h4 (is A-h4)" in report.render("latex")
    assert report.render("csv").splitlines()[1].endswith(",base")
    assert json.loads(report.render("json"))["rows"][0]["is"] == "base"


def test_a_plan_counts_their_runs_once(pair):
    study = pair[1].study
    told = planned(study.cells(), pair[1].root, 1, None)
    assert "21 runs: 21 finished, 0 to run" in told
    assert any(line.startswith("also-h4") and line.endswith("the run of A-h4") for line in told.splitlines()) or any(
        line.startswith("A-h4") and line.endswith("the run of also-h4") for line in told.splitlines()
    )


def test_what_others_print_stands_beside_the_table_and_is_compared_with_nothing(tmp_path):
    said = "25.9 BLEU, <base> 25.8 (Shaw et al. 2018, table 2)"
    rows = [all_rows()["base"], all_rows()["E-learned"], replace(all_rows()["A-h1"], name="one"), all_rows()["C-N2"]]
    made = Generator(tmp_path, rows, [1, 2], "plain")
    made.write_all({"one": 0.2})
    before = make("plain", tmp_path)
    told = [replace(row, elsewhere=said) if row.name in ("one", "C-N2") else row for row in made.study.rows]
    study = save(replace(made.study, rows=told), tmp_path)  # as the same command does, after the file has changed
    after = make("plain", tmp_path)
    line = f"one head, a third of the depth, elsewhere: {said}"
    assert [line in html.unescape(one.render("markdown")).replace("\\", "") for one in (before, after)] == [False, True]
    assert html.escape(line) in after.render("html")
    assert json.loads(after.render("json"))["rows"][2]["elsewhere"] == said
    table = write_table(study, tmp_path)
    assert (
        line in " ".join(render_table(table, "text", 80).split())
        and json.loads(render_table(table, "json"))["rows"][2]["elsewhere"] == said
    )
    silent = replace(after.summary, rows=[replace(row, elsewhere=None) for row in after.summary.rows])
    assert silent == before.summary
