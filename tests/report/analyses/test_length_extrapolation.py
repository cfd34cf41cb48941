"""Scores by length beyond the training length: what is read, tested and said; no training, planted rises."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from lightning_tfm.report.analyses import length_extrapolation
from lightning_tfm.report.analyses.length_extrapolation import ANALYSIS
from lightning_tfm.report.analyses.length_extrapolation_statistics import (
    CARRIES,
    FALLS_OFF,
    IN_PART,
    SUPPORTED,
    sentence_verdict,
)
from lightning_tfm.report.blocks import Widest
from lightning_tfm.report.charts.panels import row_classes
from lightning_tfm.report.render.text import to_text
from lightning_tfm.report.study_report import make
from lightning_tfm.report.summary import Interval
from lightning_tfm.report.wording.verdict_words import Verdict
from lightning_tfm.study.sequential import Course, Look, late
from tests.golden.synthetic import RISES, beyond, write_looks
from tests.helpers.studies import own_row

SEEDS = [1, 2, 3, 4, 5, 6]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return beyond(tmp_path_factory.mktemp("beyond"))


@pytest.fixture(scope="module")
def report(made):
    return make("made", made.root)


def test_rises_are_found_less_the_controls_with_words_and_reach(report):
    found = report.summary.of(ANALYSIS)
    rows = {row.row: row for row in found.rows}
    assert found.control == "seen" and rows["seen"].word == "control" and rows["seen"].excess is None
    for name, word in (("base", FALLS_OFF), ("E-learned", FALLS_OFF), ("alibi", CARRIES)):
        excess = rows[name].excess
        assert excess.lower < RISES[name] < excess.upper and excess.upper - excess.lower < 0.2
        assert rows[name].word == word
    assert rows["base"].reach == 1.0 and rows["alibi"].reach == max(p.upto for p in rows["alibi"].points["longer"])
    assert rows["E-learned"].compared == "worse" and rows["alibi"].compared == "better"
    assert rows["base"].beyond - rows["base"].within == pytest.approx(0.8, abs=0.05)
    assert rows["base"].early == 1.0 and rows["base"].ratio == pytest.approx(0.4, abs=0.07)
    assert (found.verdict, rows["alibi"].n) == (IN_PART, 5)
    assert found.missing == ["not scored by length, which lightning-tfm report made --collect does: alibi/4"]


def test_long_names_fit_a_terminal(report):
    """What people and programs read: tests/golden/made/beyond."""
    long, found = "n" * 20, report.summary.of(ANALYSIS)
    rows = [replace(row, name=f"{row.name}-{long}") for row in report.summary.rows]
    named = replace(found, rows=[replace(row, row=f"{row.row}-{long}") for row in found.rows])
    named = to_text(blocks(named, replace(report.summary, rows=rows)), 80).splitlines()
    assert max(map(len, named)) <= 80 and any("[+0." in line and "degrades" in line for line in named)


def test_the_figure_has_a_line_and_a_band_for_each_row_by_source_and_by_target(report):
    found = length_extrapolation.pictures(report.summary.of(ANALYSIS), report.summary.rows)
    assert len(found) == 6
    for picture, title in found:
        assert picture.count('class="band"') == 2 * len(RISES) and "length" in title, "for screens and for phones"
    many = [replace(report.summary.rows[1], name=f"r{i}", base=False) for i in range(9)]
    classes = row_classes([replace(many[0], name="base", base=True), *many])
    assert len(set(classes.values())) == 10 and classes["r7"] == "g1 again"


def test_a_text_without_a_source_has_no_picture_by_its_length(report):
    found, rows = report.summary.of(ANALYSIS), []
    for row in found.rows:
        points = {side: [replace(p, bleu=None, ratio=None) for p in line] for side, line in row.points.items()}
        rows.append(replace(row, points=points, bleu_within=None, bleu_beyond=None, ratio=None, early=None))
    drawn = length_extrapolation.pictures(replace(found, rows=rows), report.summary.rows)
    assert [title for _, title in drawn] == ["NLL per token, by the target's length"]


def test_a_metric_that_is_zero_everywhere_is_drawn(report):
    """BLEU after a handful of steps."""
    found, rows = report.summary.of(ANALYSIS), []
    for row in found.rows:
        points = {side: [replace(p, bleu=p.bleu and replace(p.bleu, mean=0.0, lowest=0.0, highest=0.0)) for p in line]
                  for side, line in row.points.items()}  # fmt: skip
        rows.append(replace(row, points=points))
    assert len(length_extrapolation.pictures(replace(found, rows=rows), report.summary.rows)) == 6


@pytest.mark.parametrize(("form", "width", "letter"), [("on-screens", 620, 7.2), ("on-phones", 380, 6.4)])
def test_the_names_at_the_ends_of_curves_fit(report, form, width, letter):
    rows = [replace(row, label="" if row.base else f"{row.name}, a long label") for row in report.summary.rows]
    for picture, _ in length_extrapolation.pictures(report.summary.of(ANALYSIS), rows):
        drawn = re.search(rf'<div class="{form}">.*?</div>', picture, re.DOTALL).group()
        found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" class="end">([^<]+)<', drawn)
        names = " ".join(name for *_, name in found)
        assert all(row.label in names for row in rows) and (len(found) == len(RISES)) is (form == "on-screens")
        assert all(float(x) + letter * len(name) <= width for x, _, name in found)
        places = sorted(float(y) for _, y, _ in found)
        assert all(after - before >= 14 for before, after in pairwise(places))


def blocks(found, report):
    (part,) = length_extrapolation.sections(found, report)
    return part.blocks


def again(made, rises, skip=(), sd=0.01):
    for path in made.root.glob("runs/*/scores/*/val.json"):
        if json.loads(path.read_bytes()).get("by_length"):
            for name in ("val.json", "val.sentences.tsv"):
                path.with_name(name).unlink()
            path.parent.rmdir()
    made.write_long(rises, sd, skip)
    return make("made", made.root).summary.of(ANALYSIS)


@pytest.mark.parametrize(
    ("base", "gain", "word"),
    [
        (CARRIES, (-0.1, 0.0, 0.1), SUPPORTED),
        (FALLS_OFF, (0.3, 0.4, 0.5), IN_PART),
        (FALLS_OFF, (0.01, 0.04, 0.07), Verdict.CONTRADICTED),
        (FALLS_OFF, (-0.5, -0.4, -0.3), Verdict.CONTRADICTED),
        (FALLS_OFF, (-0.1, 0.1, 0.3), Verdict.UNDECIDED),
        (FALLS_OFF, (0.4, None, None), Verdict.UNTESTABLE),
        (Verdict.UNDECIDED, (0.3, 0.4, 0.5), Verdict.UNDECIDED),
        (Verdict.UNTESTABLE, (0.3, 0.4, 0.5), Verdict.UNTESTABLE),
    ],
)
def test_the_sentence(made, report, base, gain, word):
    rows = {row.row: row for row in report.summary.of(ANALYSIS).rows}
    interval = Interval(gain[1], gain[0], gain[2]) if gain[1] is not None else Interval(*gain)
    rows["base"] = replace(rows["base"], word=base)
    rows["E-learned"] = replace(rows["E-learned"], against=interval)
    assert sentence_verdict(made.study, rows)[0] == word
    other = own_row("other", {"model.positions": "learned"})
    two = rows | {"other": replace(rows["E-learned"], row="other", against=Interval(0.4, 0.3, 0.5))}
    found, why = sentence_verdict(replace(made.study, rows=[*made.study.rows, other]), two)
    assert found == word and ("other" in why) == (word == IN_PART), "it says it of the rows that it is true of"
    del rows["E-learned"]
    assert sentence_verdict(made.study, rows) == (None, "")


def test_one_seed_tests_nothing_and_without_a_control_the_rise_itself_counts(made, report):
    one = [(row.name, seed) for row in made.study.rows for seed in SEEDS[1:]]
    found = again(made, RISES, one)
    assert found.verdict == Verdict.UNTESTABLE and {row.word for row in found.rows} == {Verdict.UNTESTABLE, "control"}
    assert ANALYSIS.lead(found, report.summary) == ["Beyond the training length 3 cannot be tested."]
    found = again(made, RISES | {"base": 0.2}, [("seen", seed) for seed in SEEDS])
    base = found.rows[0]
    assert found.control is None and base.excess.lower < 0.5 < base.excess.upper and base.word == FALLS_OFF
    tables = [block for block in blocks(found, report.summary) if isinstance(block, Widest)]
    assert "rise [95 %]" in [column.head for column in tables[0].views[0][0].columns]


def test_a_row_a_control_or_a_base_with_one_seed_has_no_interval_no_p_and_no_word(made):
    def single(name):
        found = again(made, RISES, [(name, seed) for seed in SEEDS[1:]])
        return found, {row.row: row for row in found.rows}

    found, rows = single("E-learned")
    one, other = rows["E-learned"], rows["alibi"]
    assert (one.word, one.compared, one.p) == (Verdict.UNTESTABLE, Verdict.UNTESTABLE, None)
    assert one.excess.estimate == pytest.approx(0.9, abs=0.1)
    assert one.excess.lower is None and one.against.lower is None
    assert other.word == CARRIES and other.p is not None and other.against.lower is not None
    assert (found.verdict, found.why) == (Verdict.UNTESTABLE, "base degrades; too few seeds of learned positions")
    found, rows = single("seen")
    assert {row.word for row in found.rows} == {Verdict.UNTESTABLE, "control"} and found.verdict == Verdict.UNTESTABLE
    assert rows["base"].excess.lower is None and rows["E-learned"].compared == "worse"
    found, rows = single("base")
    assert found.verdict == Verdict.UNTESTABLE and {row.compared for row in found.rows} == {"", Verdict.UNTESTABLE}
    assert {row.p for row in found.rows} == {None} and rows["E-learned"].word == FALLS_OFF


def test_seeds_that_were_added_after_looking_leave_intervals_and_no_p(made):
    seen = {row.name: SEEDS for row in made.study.rows}
    write_looks(made, Course(late(6, 8), [Look(seen)], seen))
    rows = {row.row: row for row in again(made, RISES).rows}
    (made.root / "studies/made/looks.json").unlink()
    assert {row.p for row in rows.values()} == {None} and rows["alibi"].compared == Verdict.UNTESTABLE
    assert rows["alibi"].against.lower is not None and rows["alibi"].word == CARRIES


def test_four_seeds_leave_an_interval_and_no_p(made):
    rows = {row.row: row for row in again(made, RISES, [("alibi", seed) for seed in SEEDS[4:]]).rows}  # of six
    four, others = rows["alibi"], [rows["E-learned"], rows["seen"]]
    assert (four.n, four.p, four.compared) == (4, None, Verdict.UNTESTABLE) and four.against.lower is not None
    assert all(row.p is not None for row in others)


def test_without_a_control_a_row_with_one_seed_has_no_interval(made):
    skip = [("seen", seed) for seed in SEEDS] + [("E-learned", seed) for seed in SEEDS[1:]]
    rows = {row.row: row for row in again(made, RISES, skip).rows}
    assert rows["E-learned"].excess.lower is None and rows["E-learned"].word == Verdict.UNTESTABLE
    assert rows["base"].excess.lower is not None


def test_lines_of_another_evaluation_or_damaged_ones_are_left_out(made):
    again(made, RISES)
    cell = made.folder(made.study.rows[0], 2)
    (table,) = [p for p in cell.path.glob("scores/*/val.sentences.tsv") if "source" in p.read_text()[:40]]
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:-1]))
    (other,) = made.folder(made.study.rows[1], 3).path.glob("result.json")
    whole = json.loads(other.read_bytes())
    whole["scores"]["long"]["evaluation_hash"] = "f" * 64
    (made.folder(made.study.rows[1], 3).scores("f" * 64)).mkdir()
    for path in made.folder(made.study.rows[1], 3).path.glob("scores/*/val.*"):
        if "by_length" in path.read_text() or "source" in path.read_text()[:40]:
            (made.folder(made.study.rows[1], 3).scores("f" * 64) / path.name).write_bytes(path.read_bytes())
    other.write_text(json.dumps(whole))
    missing = make("made", made.root).summary.of(ANALYSIS).missing
    assert missing == [
        "its lines do not add up to the score by length: base/2",
        "scored on other lines, or otherwise: E-learned/3",
    ]
