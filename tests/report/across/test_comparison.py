"""`compare`: what rows do in several studies, and the test of the difference of differences."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.plural_words import MINUS
from lightning_tfm.queue.studies import hide
from lightning_tfm.report.across.comparison import changes_between, compare, difference_of
from lightning_tfm.report.across.long_table import check_same_texts, interval, long_table, metrics_of, why_incomparable
from lightning_tfm.report.render.every_format import render
from lightning_tfm.report.stats import statistics
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg
from lightning_tfm.report.stats.statistics import Estimate
from lightning_tfm.report.study_report import make
from lightning_tfm.study.sequential import Course, Look, late
from lightning_tfm.study.study_file import save
from tests.golden.synthetic import diverging, write_looks
from tests.helpers.studies import TWICE_THE_STEPS, Generator, summary_row, write_lines

ROWS = ["base", "A-h1", "A-h4", "C-N2"]


@pytest.fixture
def two(tmp_path):
    """The second study's miniature has other steps, so that no run is shared; there A-h1 is worse by 0.3."""
    one = Generator(tmp_path, ROWS, [1, 2, 3], "one")
    one.write_all({"C-N2": 0.5})
    return one, Generator(tmp_path, ROWS[:3], [1, 2, 3, 4], "other", base=TWICE_THE_STEPS), tmp_path


def lines_of(analysis, study="other", metric="ppl"):
    """Row -> its line in a study that is not the first."""
    return {line["row"]: line for line in analysis.data if (line["study"], line["metric"]) == (study, metric)}


def test_a_row_that_does_more_in_one_study_is_found_and_the_others_are_not(two):
    _, other, root = two
    other.write_all({"A-h1": 0.3})
    reports = [make("one", root), make("other", root)]
    found = compare(reports)
    rows, first = lines_of(found), lines_of(found, "one")
    assert set(rows) == {"A-h1", "A-h4"} and found.found["left out"] == ["C-N2: only in one"]
    assert not found.found["shared"]
    ppl = rows["A-h1"]
    assert ppl["lower"] < 0.3 < ppl["upper"] and ppl["p (BH)"] < 0.001 and ppl["lower"] > 0.1
    assert ppl["difference of differences"] == pytest.approx(
        ppl["difference to base"] - first["A-h1"]["difference to base"]
    )
    assert (ppl["verdict"], rows["A-h4"]["verdict"]) == ("grows", "cannot tell") and rows["A-h4"]["p (BH)"] > 0.05
    assert found.headline == ["One head grows from one to other."]
    assert found.scope == "Of 2 changes 1 grows; 1 is unclear."
    assert found.found["sides"][1]["apart"] == ["training.steps is 200000, one has 100000"]
    reverse = lines_of(compare([make("other", root), make("one", root)]), "one")["A-h1"]
    assert reverse["difference of differences"] == pytest.approx(-ppl["difference of differences"])
    assert reverse["verdict"] == "shrinks"

    lines, _ = long_table(reports)
    assert list(lines) == ["row", "study", "metric", "n", "estimate", "se", "df", "lower", "upper", "p"]
    d = reports[1].summary.rows[1].ppl.difference
    line = lines[(lines.row == "A-h1") & (lines.study == "other") & (lines.metric == "ppl")].iloc[0]
    assert [line[key] for key in ("estimate", "se", "df", "p")] == [d.estimate, d.se, d.df, d.p]

    assert main(["compare", "one", "other", "--out", str(root), "--format", "json", "--to", str(root / "x.json")]) == 0
    written = json.loads((root / "x.json").read_text())
    assert written["rows"][2]["p (BH)"] == pytest.approx(ppl["p (BH)"]) and written["schema"] == 3


@pytest.mark.parametrize("role", ["train", "dev", "test"])
def test_studies_whose_text_was_edited_between_them_are_not_compared(two, role, capsys):
    _, other, root = two
    other.write_all({})
    study = make("other", root).cells.study
    prints = replace(study.prints, **{role: "e" * 64})
    if role != "train":  # whose runs have other names
        (root / "studies/other/study.json").unlink()
        save(replace(study, prints=prints), root)
    studies = [make("one", root).cells.study, replace(study, prints=prints)]
    if role == "test":
        assert main(["compare", "one", "other", "--out", str(root)]) == 0
        return
    with pytest.raises(UserError, match=rf"one and other cannot be compared: .* data\.{role}=\w+, but that text was"):
        check_same_texts(studies)
    folder = replace(studies[1].base, data=replace(studies[1].base.data, folder="elsewhere"))
    check_same_texts([studies[0], replace(studies[1], base=folder)])
    if role == "dev":
        assert main(["compare", "one", "other", "--out", str(root)]) == 2
        assert "one and other cannot be compared" in capsys.readouterr().err


def test_studies_of_one_title_have_it_once_before_their_folders(two):
    """Those of two titles: tests/golden/made/across/compare.*."""
    one, other, root = two
    other.write_all({})
    for study in (one.study, other.study):
        save(replace(study, title="Both", question="What?"), root)
    found = compare([make("one", root), make("other", root)])
    page, tex = (" ".join(render(found, kind).split()) for kind in ("html", "latex"))
    assert "<title>Both: one, other side by side: comparison report</title>" in page and page.count("What?") == 1
    assert r"\caption{Both: one, other side by side; other against one" in tex


def test_the_picture_has_95_percent_intervals_of_a_study_with_looks_too(two):
    one, other, root = two
    other.write_all({"A-h1": 0.3})
    reports = make("other", root), make("one", root)
    write_looks(one, Course(late(3, 8), [Look({name: [1, 2, 3] for name in ROWS})], None))
    looked = make("other", root), make("one", root)
    wide, narrow = (make_.summary.rows[1].ppl.difference for _, make_ in (looked, reports))
    assert wide.upper - wide.lower > 1.2 * (narrow.upper - narrow.lower)
    pictures = [
        [
            (line.name, [(e.estimate, e.lower, e.upper) for e in line.entries])
            for line in compare(pair).sections[0].blocks[0].picture.lines
        ]
        for pair in (looked, reports)
    ]
    assert pictures[0] == pictures[1] != []


def test_runs_that_are_the_same_are_said_and_not_tested(tmp_path):
    one = Generator(tmp_path, ROWS[:2], [1, 2, 3], "one")
    one.write_all()
    save(replace(one.study, name="again"), tmp_path)
    found = compare([make("one", tmp_path), make("again", tmp_path)])
    line = lines_of(found, "again")["A-h1"]
    assert len(found.found["shared"]) == 6
    assert (line["verdict"], line["difference of differences"]) == ("the same runs", None)
    assert found.headline == ["Nothing in again can be compared with one."]
    assert "6 runs shared (A-h1 3)" in " ".join(render(found, "text").split())
    page = render(found, "html")
    assert "the same runs" in page and page.count("<figure") == 2


@pytest.mark.parametrize("study", [0, 1])
def test_a_row_that_diverged_in_either_study_is_said_to_have(two, study):
    two[1].write_all()
    made = two[study]
    write_lines(made.write(made.study.rows[1], 2, 100.0).metrics, diverging(4.9))
    lines = lines_of(compare([make("one", two[2]), make("other", two[2])]))
    assert (lines["A-h1"]["verdict"], lines["A-h1"]["difference of differences"]) == ("diverged", None)
    assert lines["A-h4"]["difference of differences"] is not None


def test_a_hidden_row_is_compared_too_and_flagged(tmp_path):
    """Else hiding one would make the p of the others smaller."""
    for seed, name in enumerate(("one", "other")):
        made = Generator(tmp_path, ["base", "A-h1", "A-h4"], [1 + seed, 3 + seed, 5 + seed, 7 + seed, 9 + seed], name)
        made.write_all()
    before = compare([make("one", tmp_path), make("other", tmp_path)])
    hide(tmp_path, "other", "A-h4")
    after = compare([make("one", tmp_path), make("other", tmp_path)])
    assert list(lines_of(after)) == ["A-h1", "A-h4 (hidden)"]
    assert [line | {"row": ""} for line in after.data] == [line | {"row": ""} for line in before.data]


def test_a_long_title_in_the_legend_stays_within_a_phone(two):
    _, other, root = two
    other.write_all({})
    save(replace(other.study, title="What a title of very many words says of a study " * 3), root)
    page = render(compare([make("one", root), make("other", root)]), "html")
    narrow = re.search(r'viewBox="0 0 380 .*?</svg>', page, re.S)
    legend = re.findall(r'<text x="(\d+)" y="[\d.]+"[^>]*>([^<]*…)</text>', narrow.group())
    assert legend and all(int(x) + 7.2 * len(words) <= 380 for x, words in legend)


def test_two_studies_of_one_name_are_told_apart(tmp_path):
    for folder in "ab":
        made = Generator(tmp_path / folder, ROWS[:2], [1 + (folder == "b"), 3, 5], "study")
        made.write_all({"A-h1": 0.1})
    found = compare([make("study", tmp_path / folder) for folder in "ab"])
    assert {line["study"] for line in found.data} == {"study", "study (2)"} and "A-h1" in lines_of(found, "study (2)")


def test_what_cannot_be_compared_is_refused(tmp_path, capsys):
    one = Generator(tmp_path, ["base", "A-h1"], [1], "one")
    one.write_all()
    other = Generator(tmp_path, ["base", "A-h4"], [1], "other")
    other.write_all()
    with pytest.raises(UserError, match="no row is in two of the studies one, other") as refusal:
        compare([make("one", tmp_path), make("other", tmp_path)])
    assert f"table of all rows over the same base: lightning-tfm sweep FILE --name one --out {tmp_path}" in str(
        refusal.value
    )
    save(replace(other.study, name="one"), tmp_path)  # as that sweep does
    joined = make("one", tmp_path).summary
    assert [row.name for row in joined.rows] == ["base", "A-h1", "A-h4"] and joined.finished == joined.cells == 3
    rows = [replace(row, name=row.name.replace("A-h1", "one-head")) for row in one.study.rows]
    save(replace(one.study, name="renamed", rows=rows), tmp_path)
    hint = "A-h1: only in one; renamed calls it one-head"
    with pytest.raises(UserError, match=hint):
        compare([make("one", tmp_path), make("renamed", tmp_path)])
    for argv, words in (
        (["one"], "name a second study"),
        (["one", "one"], "appears twice"),
        (["one", "x"], "no study 'x'"),
    ):
        assert main(["compare", *argv, "--out", str(tmp_path)]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(("spread", "of_base"), [(1.0, 1.0), (3.0, 1.0), (1.0, 3.0)])
def test_where_nothing_differs_one_study_in_twenty_at_most_finds_anything(spread, of_base):
    """19 rows at 5 seeds; `spread`: noise of the second study, `of_base`: of base, in units of a row's.

    Over 1,000 studies: 2.6 %, 2.6 %, 3.8 %.
    """
    rng, studies, rows, n = np.random.default_rng(4), 300, 20, 5
    sd = np.ones(rows) * 0.02
    sd[0] *= of_base
    sides = []
    for scale in (1.0, spread):
        y = rng.normal(0, 1, (studies, rows, n)) * sd[:, None] * scale
        noise = statistics.SentenceNoise(np.zeros((studies, rows)), np.zeros((studies, rows)))
        d = statistics.compare(y.mean(-1), y.var(-1, ddof=1), np.full(rows, n), noise)
        sides.append(Estimate(d.estimate[:, 1:], d.se[:, 1:], d.df[:, 1:]))
    one, other = sides
    hits = (benjamini_hochberg(difference_of(other, one).two_sided) < 0.05).any(-1).mean()
    assert hits < 0.05 + 2 * math.sqrt(0.05 * 0.95 / studies), hits
    print(f"{hits:.3f}")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, "cannot tell"),
        ({"n": None, "estimate": None}, "no such row"),
        ({"estimate": None}, "no interval"),
        ({"se": None, "df": None, "p": None}, "no interval"),
        ({"df": None, "p": None}, "no interval"),
        ({"p": None}, "not testable"),
    ],
)
def test_where_there_is_no_test_it_says_why(changed, why):
    known = {"metric": "ppl", "n": 5, "estimate": 0.1, "se": 0.02, "df": 8.0, "lower": 0.05, "upper": 0.15, "p": 0.001}
    lines = [{"row": row, "study": study} | known for row in "ab" for study in ("one", "other")]
    lines[1] |= changed | ({"study": "nobody"} if why == "no such row" else {})
    both = changes_between(
        pd.DataFrame(lines).astype({"estimate": float, "se": float, "df": float, "p": float, "n": float})
    )
    line = both[(both.row == "a") & (both.study == "other")].iloc[0]
    assert line.verdict == why and np.isnan(line.p_BH) == (why != "cannot tell")
    assert np.isnan(line.low) == (why not in ("cannot tell", "not testable"))


def test_an_interval_that_says_nothing_is_no_row_of_digits():
    assert interval("ppl", math.log(0.01), math.log(10954)) == "no information"
    assert interval("ppl", math.log(0.5), math.log(9.0)) == f"[{MINUS}50.0, +800.0]"
    assert interval("bleu", -101.0, 3.0) == "no information" and interval("bleu", math.nan, 3.0) == ""


def test_a_study_with_fewer_seeds_than_a_verdict_needs_has_intervals_alone(tmp_path, monkeypatch):
    for module in ("stats.statistics", "across.long_table"):
        monkeypatch.setattr(f"lightning_tfm.report.{module}.LEAST", 5)
    few = Generator(tmp_path, ROWS, [1, 2, 3], "few")
    few.write_all({"A-h1": 0.3})
    Generator(tmp_path, ROWS, [1, 2, 3, 4, 5], "many", base=TWICE_THE_STEPS).write_all()
    found = compare([make("many", tmp_path), make("few", tmp_path)])
    told = lines_of(found, "few")
    assert {(line["p (BH)"], line["verdict"]) for line in told.values()} == {(None, "not testable")}
    assert told["A-h1"]["lower"] > 0.1 and told["A-h4"]["lower"] < 0 < told["A-h4"]["upper"]
    assert found.headline[0].endswith("between many and few, but nothing is tested.")
    assert found.scope == "A verdict takes 5 seeds in each; few has 3."
    for kind, words in {"text": "not testable", "markdown": "not testable", "html": "not testable</span>"}.items():
        assert render(found, kind).count(words) == 6


def test_rows_that_follow_base_are_the_same_change_over_bases_of_other_sizes():
    def row(depth, **more):
        return replace(summary_row("C-N2"), change={"model.N": depth}, **more)

    def told(a, b):
        return why_incomparable("C-N2", {"a": a, "b": b}, {"a": {"C-N2": a}, "b": {"C-N2": b}})

    third = {"ties": {"model.N": {"of_base": "1/3"}}}
    assert told(row(2, **third), row(1, **third)) == ""
    assert told(row(2), row(2, **third)) == ""  # a study from before rows could follow base
    assert told(row(2), row(1, **third)) == "C-N2: changes {'model.N': 1} in b, {'model.N': 2} in a"
    assert told(row(2), row(2, same_as="base")) == "C-N2: is base in b"


def test_a_metric_that_was_added_to_both_is_compared_and_tested(two, capsys):
    _, other, root = two
    other.write_all({"A-h1": 0.3})
    assert main(["validate", "one", "--add", "chrf", "--out", str(root)]) == 0
    assert metrics_of([make("one", root), make("other", root)]) == ["ppl", "bleu"]
    assert main(["validate", "other", "--add", "chrf", "--out", str(root)]) == 0
    reports = [make("one", root), make("other", root)]
    found = compare(reports)
    first, line = (lines_of(found, study, "chrf")["A-h1"] for study in ("one", "other"))
    assert line["difference of differences"] == pytest.approx(line["difference to base"] - first["difference to base"])
    assert line["p (BH)"] < 0.05 and "base chrf" in found.found["sides"][1]
    assert main(["compare", "one", "other", "--out", str(root)]) == 0
    assert "other against one: dev chrF to base" in capsys.readouterr().out
