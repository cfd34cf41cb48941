"""`compare`: what rows do in several studies, and the test of the difference of differences."""

import csv
import io
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.queue.rows import hide
from lightning_tfm.report.across import comparison_text
from lightning_tfm.report.across.comparison import _incomparable, check_same_texts, compare, minus
from lightning_tfm.report.across.comparison_figure import forest
from lightning_tfm.report.build import make
from lightning_tfm.report.render.analysis import render
from lightning_tfm.report.row import Difference
from lightning_tfm.report.stats import statistics
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg
from lightning_tfm.study.sequential import Course, Look, late, looks_to_json
from lightning_tfm.study.study_file import save
from tests.helpers.records import summary_row
from tests.report.synthetic import BASE, Generator

ROWS = ["base", "A-h1", "A-h4", "C-N2"]


@pytest.fixture
def two(tmp_path):
    """The second study's miniature has other steps, so that no run is shared; there A-h1 is worse by 0.3."""
    one = Generator(tmp_path, ROWS, [1, 2, 3], "one")
    one.write_all({"C-N2": 0.5})
    other = Generator(tmp_path, ROWS[:3], [1, 2, 3, 4], "other")
    (tmp_path / "studies/other/study.json").unlink()
    base = replace(BASE, training=replace(BASE.training, steps=200_000))
    other.base, other.study = base, replace(other.study, base=base)
    save(other.study, tmp_path)
    return one, other, tmp_path


def test_a_row_that_does_more_in_one_study_is_found_and_the_others_are_not(two):
    _, other, root = two
    other.write_all({"A-h1": 0.3})
    found = compare([make("one", root), make("other", root)])
    rows = {row.name: row for row in found.rows}
    assert set(rows) == {"A-h1", "A-h4"} and found.left_out == ["C-N2: only in one"] and not found.shared
    ppl = rows["A-h1"].places[1].against["ppl"]
    assert ppl.lower < 0.3 < ppl.upper and ppl.p < 0.001 and ppl.lower > 0.1
    ours = [place.difference["ppl"].estimate for place in rows["A-h1"].places]
    assert ppl.estimate == pytest.approx(ours[1] - ours[0])
    assert rows["A-h4"].places[1].against["ppl"].p > 0.05
    assert found.sides[1].apart == ["training.steps is 200000, one has 100000"]
    reverse = {row.name: row for row in compare([make("other", root), make("one", root)]).rows}["A-h1"]
    assert reverse.places[1].against["ppl"].estimate == pytest.approx(-ppl.estimate)

    assert main(["compare", "one", "other", "--out", str(root), "--format", "json", "--to", str(root / "x.json")]) == 0
    written = json.loads((root / "x.json").read_text())
    assert written["rows"][0]["places"][1]["against"]["ppl"]["p"] == pytest.approx(ppl.p)
    text = render(comparison_text.analysis(found), "text")
    assert all(len(line) <= 80 for line in text.splitlines()) and "C-N2: only in one" in text
    line = next(x for x in text.splitlines() if x.startswith("A-h1"))
    assert f"{100 * math.expm1(ppl.estimate):+.1f}" in line and "3/4" in line
    read = list(csv.DictReader(io.StringIO(render(comparison_text.analysis(found), "csv"))))
    assert len(read) == 2 * 2 * 2 and float(read[2]["difference of differences"]) == pytest.approx(ppl.estimate)
    assert "<script>alert" not in render(comparison_text.analysis(found), "html") and "A-h1" in render(
        comparison_text.analysis(found), "markdown"
    )


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


def test_studies_are_named_by_what_people_call_them_with_their_folder_beside_it(two):
    one, other, root = two
    other.write_all({})

    def shown(*kinds):
        said = comparison_text.analysis(compare([make("one", root), make("other", root)]))
        return [" ".join(render(said, kind).split()) for kind in kinds]

    one.study, other.study = (
        replace(g.study, title=title, question=title + "?") for g, title in ((one, "Heads"), (other, "Depth & width"))
    )
    for study in (one.study, other.study):
        save(study, root)
    page, tex, text = shown("html", "latex", "text")
    both = "Heads (one), Depth &amp; width (other) side by side"
    assert f"<title>{both}: comparison report</title>" in page and f"<h1><bdi>{both}</bdi></h1>" in page
    assert '<p class="question"><bdi>Heads? Depth &amp; width?</bdi></p>' in page
    assert page.count("Depth &amp; width (other)</text>") == 2, "in the key of each picture"
    assert r"\caption{Heads (one), Depth \& width (other) side by side; Depth \& width (other) against" in tex
    assert "Depth & width (other) against Heads (one): dev PPL" in text

    for study in (one.study, other.study):
        save(replace(study, title="Both", question="What?"), root)
    page, tex = shown("html", "latex")
    assert "<title>Both: one, other side by side: comparison report</title>" in page and page.count("What?") == 1
    assert r"\caption{Both: one, other side by side; other against one" in tex


def test_the_picture_has_95_percent_intervals_of_a_study_with_looks_too(two):
    _, other, root = two
    other.write_all({"A-h1": 0.3})
    fixed = compare([make("one", root), make("other", root)])
    looks = Course(late(3, 8), [Look({name: [1, 2, 3] for name in ROWS})], None)
    (root / "studies/one/looks.json").write_text(json.dumps(looks_to_json(looks)))
    looked = compare([make("one", root), make("other", root)])
    wide, narrow = (found.rows[0].places[0].difference["ppl"] for found in (looked, fixed))
    assert wide.upper - wide.lower > 1.2 * (narrow.upper - narrow.lower)
    for metric in ("ppl", "bleu"):
        assert forest(looked, metric) == forest(fixed, metric) != ""


def test_runs_that_are_the_same_are_said_and_not_tested(tmp_path):
    one = Generator(tmp_path, ROWS[:2], [1, 2, 3], "one")
    one.write_all()
    save(replace(one.study, name="again"), tmp_path)
    found = compare([make("one", tmp_path), make("again", tmp_path)])
    assert len(found.shared) == 6 and found.rows[0].same_runs == 3
    assert found.rows[0].places[1].against["ppl"].why == "the same runs"
    assert "6 runs shared (A-h1 3)" in " ".join(render(comparison_text.analysis(found), "text").split())
    page = render(comparison_text.analysis(found), "html")
    assert "the same runs" in page and page.count("<svg") == 2


def test_a_hidden_row_is_compared_too_and_flagged(tmp_path):
    """Else hiding one would make the p of the others smaller."""
    for seed, name in enumerate(("one", "other")):
        made = Generator(tmp_path, ["base", "A-h1", "A-h4"], [1 + seed, 3 + seed, 5 + seed, 7 + seed, 9 + seed], name)
        made.write_all()
    before = compare([make("one", tmp_path), make("other", tmp_path)])
    hide(tmp_path, "other", "A-h4")
    after = compare([make("one", tmp_path), make("other", tmp_path)])
    assert [row.name for row in after.rows] == ["A-h1", "A-h4 (hidden)"]
    assert [row.places for row in after.rows] == [row.places for row in before.rows]


def test_what_cannot_be_compared_is_refused(tmp_path, capsys):
    one = Generator(tmp_path, ["base", "A-h1"], [1], "one")
    one.write_all()
    other = Generator(tmp_path, ["base", "A-h4"], [1], "other")
    other.write_all()
    with pytest.raises(UserError, match="no row is in two of the studies one, other"):
        compare([make("one", tmp_path), make("other", tmp_path)])
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
        sides.append(statistics.compare(y.mean(-1), y.var(-1, ddof=1), np.full(rows, n), noise))
    one, other = sides
    p = np.full((studies, rows - 1), np.nan)
    for s in range(studies):
        for r in range(1, rows):
            a, b = (of(d, s, r) for d in (other, one))
            p[s, r - 1] = minus(a, b).p
    hits = (benjamini_hochberg(p) < 0.05).any(-1).mean()
    assert hits < 0.05 + 2 * math.sqrt(0.05 * 0.95 / studies), hits
    print(f"{hits:.3f}")


def of(d: statistics.Differences, s: int, r: int) -> Difference:
    return Difference("", "", None, estimate=d.estimate[s, r], se=d.se[s, r], df=d.df[s, r], p=d.p[s, r])


def test_a_study_with_fewer_seeds_than_a_verdict_needs_has_intervals_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("lightning_tfm.report.stats.statistics.LEAST", 5)
    few = Generator(tmp_path, ROWS, [1, 2, 3], "few")
    few.write_all({"A-h1": 0.3})
    many = Generator(tmp_path, ROWS, [1, 2, 3, 4, 5], "many")
    base = replace(BASE, training=replace(BASE.training, steps=200_000))
    many.base, many.study = base, replace(many.study, base=base)
    (tmp_path / "studies/many/study.json").unlink()
    save(many.study, tmp_path)
    many.write_all()
    found = compare([make("many", tmp_path), make("few", tmp_path)])
    told = {row.name: row.places[1].against["ppl"] for row in found.rows}
    assert {(one.p, one.why) for one in told.values()} == {(None, "not testable")}
    assert told["A-h1"].lower > 0.1 and told["A-h4"].lower < 0 < told["A-h4"].upper
    for kind in ("text", "markdown", "html"):
        assert render(comparison_text.analysis(found), kind).count("not testable") == 6


def test_rows_that_follow_base_are_the_same_change_over_bases_of_other_sizes():
    def place(study, depth, **more):
        row = replace(summary_row("C-N2"), change={"model.N": depth}, **more)
        return row, SimpleNamespace(study=study)

    def told(*places):
        return _incomparable("C-N2", [row for row, _ in places], [summary for _, summary in places])

    third = {"ties": {"model.N": {"of_base": "1/3"}}}
    assert told(place("a", 2, **third), place("b", 1, **third)) == ""
    assert told(place("a", 2), place("b", 2, **third)) == ""  # a study from before rows could follow base
    assert told(place("a", 2), place("b", 1, **third)) == "C-N2: changes {'model.N': 1} in b, {'model.N': 2} in a"
    assert told(place("a", 2), place("b", 2, same_as="base")) == "C-N2: is base in b"


def test_a_metric_that_was_added_to_both_is_compared_and_tested(two, capsys):
    _, other, root = two
    other.write_all({"A-h1": 0.3})
    assert main(["validate", "one", "--add", "chrf", "--out", str(root)]) == 0
    assert compare([make("one", root), make("other", root)]).metrics == ["ppl", "bleu"]
    assert main(["validate", "other", "--add", "chrf", "--out", str(root)]) == 0
    reports = [make("one", root), make("other", root)]
    found = compare(reports)
    assert found.metrics == ["ppl", "bleu", "chrf"]
    (row,) = [row for row in found.rows if row.name == "A-h1"]
    ours = [place.difference["chrf"].estimate for place in row.places]
    assert row.places[1].against["chrf"].estimate == pytest.approx(ours[1] - ours[0])
    assert row.places[1].against["chrf"].p < 0.05 and "chrf" in found.sides[1].base
    assert main(["compare", "one", "other", "--out", str(root)]) == 0
    assert "other against one: dev chrF to base" in capsys.readouterr().out
