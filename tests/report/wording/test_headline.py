"""The sentences over a report: verdicts, seeds that stand apart, how long was trained, and nothing else."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lightning_tfm.cli.train.carry_out import _print_report
from lightning_tfm.report import study_report
from lightning_tfm.report.analyses.agreement import LastEighth
from lightning_tfm.report.analyses.factors import Effect, FactorSummary
from lightning_tfm.report.analyses.training_setup import PAPER, Regime, notes
from lightning_tfm.report.study_report import make
from lightning_tfm.report.summary import Difference, Percent, Scores
from lightning_tfm.report.wording import notes as below
from lightning_tfm.report.wording.headline import NO_BASE, base_apart, headline, trust
from lightning_tfm.report.wording.outlier_seeds import outlier_clauses, outlier_seeds
from lightning_tfm.report.wording.verdict_words import Verdict
from lightning_tfm.study.ratios import EPOCHS, UNIQUE, WARMUP
from lightning_tfm.study.rows import Paper
from tests.helpers.studies import BASE, difference, summary, summary_row
from tests.helpers.tables import read_tables


def row(name, verdict, percent=None, n=5, smallest=None, **changes):
    """A row with a tested difference of so many percent."""
    shown = None if percent is None else Percent(percent, percent - 2, percent + 2, smallest)
    d = Difference(verdict, "a single seed", None, percent=shown)
    made = summary_row(name, verdict)
    ppl = Scores(5.0 + (percent or 0) / 100, 0.1, {}, d)
    return replace(made.with_metrics({"ppl": ppl}), n=n, **changes)


def report(*rows, base=True, **changes):
    first = [replace(summary_row("base", base=True), n=5)] if base else []
    whole = {"cells": 10, "finished": 10} | changes
    return replace(summary([*first, *rows]), **whole)


def of_another_reference():
    reference = replace(summary_row("ref"), name="ref")
    reference = reference.with_metrics({"ppl": replace(reference.ppl, difference=None)})
    return replace(report(row("a", "better", -3.0), reference), reference="ref")


def of_other_pieces():
    rows = []
    for name, word, by in (("a", "worse", 0.5), ("b", "better", -0.25)):
        tested = difference(word, estimate=by, lower=by - 0.1, upper=by + 0.1)
        rows.append(replace(row(name, "not comparable"), more={"word": Scores(3.0, 0.1, {}, tested)}))
    return replace(report(*rows), foreign=["a", "b"])


def effect(kind, words, estimate, p=None, **changes):
    log = [math.log1p(x / 100) for x in (estimate, estimate - 5, estimate + 5)]
    return replace(Effect(kind, "ppl", words, *log, p), **changes)


def of_factors(*effects):
    made = report(row("a", "undecided", 1.0, smallest=3.0))
    return replace(made, analyses={"factors": FactorSummary([], list(effects), [])})


def with_empty_cells(count):
    missing = {str(seed): "out of memory" for seed in range(count)}
    return report(row("a", "worse", 3.0, n=5 - count, missing=missing), finished=10 - count)


NORM, LATE = "model.norm: pre against post", "training.warmup: 8 against 4"
EFFECTS = [effect("main", [NORM], -24.7, 0.012), effect("main", [LATE], 2.0, 0.4)]
UNTESTED = [replace(e, p=None) for e in (*EFFECTS, effect("interaction", [NORM, LATE], 30.0))]
LONG = {"1": "x" * 500, "2": "x" * 500, "3": "b", "4": "c", "5": "d"}
STILL = {"last eighth": LastEighth(0.11, 0.05, True)}
SUMMARIES = {
    "largest effects": report(
        row("a", "reproduced", 12.0, label="half the width"),
        row("b", "contradicted", -4.0),
        row("c", "undecided", -30.0),
        row("d", "reproduced", 20.0, label="no dropout"),
        row("e", "reproduced", 8.0),
        row("f", "same direction", 2.0),
    ),
    "nothing found": report(row("a", "undecided", 1.0, smallest=3.0), row("b", "undecided", 9, smallest=5)),
    "nothing found far off": report(row("a", "undecided", 1.0, smallest=284.0)),
    "one seed": report(row("a", "not testable", -40.0, n=1)),
    "one empty cell": with_empty_cells(1),
    "three empty cells": with_empty_cells(3),
    "many reasons": report(row("a", "undecided", missing=LONG, n=0), finished=5),
    "warnings": report(row("big", "undecided", 1.0, far_above=[25]), analyses=STILL),
    "other pieces": of_other_pieces(),
    "no run": report(row("a", "not testable"), finished=0),
    "no base": report(row("a", "worse", 3.0), base=False),
    "no other row": report(),
    "another reference": of_another_reference(),
    "factors": of_factors(*EFFECTS),
    "factors that interact": of_factors(*UNTESTED),
    "factors without effect": of_factors(EFFECTS[1]),
}
SAID = read_tables(Path(__file__).with_name("headlines.txt"))


@pytest.mark.parametrize("name", SUMMARIES)
def test_the_sentences_over_a_report(name):
    assert [*headline(SUMMARIES[name]), trust(SUMMARIES[name])] == [line for (line,) in SAID[name]]


def test_every_verdict_has_words():
    for word in Verdict:
        *_, last = headline(report(row("a", word, 1.0), row("b", "undecided", 1.0)))
        assert last.startswith("Of 2 rows ") and word.clause[word == "undecided"] in last


@pytest.mark.parametrize(("seeds", "said"), [((1, 2), "lie on two levels"), ((1, 2, 3, 4, 5), "alike, and agree")])
def test_a_base_that_stands_apart_is_named_everywhere(generator, seeds, said):
    made = generator(["base", "A-h1", "A-h4", "A-h16"], [1, 2, 3, 4, 5])
    made.write_all()
    report = study_report.make("made", made.root)
    assert base_apart(report.summary) == []
    for seed in seeds:
        made.write(next(row for row in made.study.rows if row.name == "base"), seed, 0.9)
    report = study_report.make("made", made.root)
    base, *others = report.summary.rows
    gone = [replace(base, diverged=[1]), replace(base, name="another", base=False), *others]
    assert base_apart(replace(report.summary, rows=gone)) == [], "of another row nothing is said"
    told = [report.render("html"), report.render("markdown"), study_report.render_table(report.summary, "text", 300)]
    assert all("base may be what stands apart" in " ".join(x.split()) and said in " ".join(x.split()) for x in told)


# --- seeds far above the others of their row are marked, and nothing else is ---


def test_a_seed_far_above_its_row_is_marked_and_one_below_is_not():
    rows = {"a": {1: 0.70, 2: 0.71, 3: 0.72, 4: 1.9}, "b": {1: 0.5, 2: 0.51, 3: 0.49, 4: 0.1}, "few": {1: 0.1, 2: 9.0}}
    assert outlier_seeds(rows) == {"a": [4], "b": []}
    assert outlier_seeds({}) == {} and outlier_seeds({"a": {1: 1.0, 2: 1.0, 3: 2.0}}) == {"a": []}


def test_three_seeds_that_chance_put_close_together_condemn_no_third():
    steady = {str(i): {1: 0.0, 2: 0.1, 3: -0.1} for i in range(5)}
    assert outlier_seeds(steady | {"a": {1: 0.0, 2: 0.001, 3: 0.1}})["a"] == []
    assert outlier_seeds({"a": {1: 0.0, 2: 0.001, 3: 0.1}})["a"] == [3]


def test_as_many_are_marked_as_it_says():
    rng, marked, hit, rows = np.random.default_rng(0), 0, [], 400
    for _ in range(rows // 20):
        y = rng.normal(size=(20, 5))
        marked += sum(map(bool, outlier_seeds({str(i): dict(enumerate(r)) for i, r in enumerate(y)}).values()))
        y[np.arange(20), rng.integers(0, 5, 20)] += 10
        hit += map(bool, outlier_seeds({str(i): dict(enumerate(r)) for i, r in enumerate(y)}).values())
    assert marked / rows < 0.06 and np.mean(hit) > 0.6


def test_a_sweep_ends_with_differences_and_verdicts(generator, capsys):
    made = generator(["base", "A-h1", "A-h4"], [1, 2, 3])
    made.write_all({"A-h1": 0.3})
    _print_report(make("made", made.root), several=True, smoke=False)
    told = capsys.readouterr().out
    assert told.startswith("differences to base") and "PPL, 2 rows: 1 same direction" in told
    assert told.index("Δ, %") < told.index("PPL, 2 rows")


def test_more_seeds_are_no_remedy_where_base_is_missing(generator, capsys):
    made = generator(["A-h1", "A-h4"], [7])
    made.write_all()
    report = make("made", made.root)
    assert headline(report.summary)[0] == f"N{NO_BASE[1:]}."
    _print_report(report, several=True, smoke=False)
    for said in (capsys.readouterr().out, report.render("text"), report.render("markdown")):
        assert " ".join(said.split()).lower().count("is base") == 1 and NO_BASE in " ".join(said.split())
    assert "is base" not in make("made", made.root, reference="A-h1").render("text")


def test_a_seed_that_is_far_above_in_many_rows_is_said_once():
    rows = [replace(summary_row(f"r{i}", "undecided"), far_above=[1]) for i in range(4)]
    rows.append(replace(summary_row("s", "undecided"), far_above=[2]))
    assert outlier_clauses(rows) == [
        "seed 1 is far above the others in 4 rows",
        "seed 2 of s is far above the others of its row",
    ]
    assert outlier_clauses(rows[:2]) == ["seeds 1 of r0, 1 of r1 are far above the others of their rows"]


# --- how long a study trains is said beside the paper, from its records and its text ---


OF_THE_PAPER = summary([replace(summary_row("C-N2"), paper=Paper(6.11, 23.7, 36))])


def test_it_is_read_off_records_and_text(generator, tmp_path):
    made = generator(["base", "A-h1"], [1, 2])
    made.write_all()
    for row in made.study.rows[:1]:
        for seed, pieces in ((1, 4_000_000), (2, 4_400_000)):
            path = made.folder(row, seed).result
            plain = json.loads(path.read_bytes()) | {"target_tokens": pieces}
            path.write_text(json.dumps(plain))
    report = make("made", tmp_path)
    base, t = report.summary.base, BASE.scaled().training
    pieces = int((made.prepared.train.target_lengths + 1).sum())
    found = report.summary.analyses["regime"]
    assert found.trained == pytest.approx(4_200_000 / base.parameters)
    assert found.unique == pytest.approx(pieces / base.parameters), "none of them is above data.max_len"
    assert (found.warmup, found.last_rate) == (t.warmup / t.steps, 1.0), "its rate still rises at the end"
    assert json.loads(report.render("json"))["regime"]["trained"] == found.trained
    (tmp_path / "data" / made.study.store / "card.json").unlink()
    assert make("made", tmp_path).summary.analyses["regime"] == replace(found, unique=None)


def test_the_sentence():
    said = "training: 2 unique (2) and 40 training target tokens per parameter of base (the paper 40), 20 epochs (20); "
    said += "warm-up 4 % of the steps (4 %), rate at the end 0.20 of its peak (0.20)"
    assert notes(PAPER, OF_THE_PAPER) == [said]
    short = (
        "training: 1.5 training target tokens per parameter of base (the paper 40); warm-up 15 % of the steps (4 %), "
    )
    assert notes(Regime(1.5, None, 0.15, 0.39), OF_THE_PAPER) == [short + "rate at the end 0.39 of its peak (0.20)"]
    own = "training: 1.5 training target tokens per parameter of base; warm-up 15 % of the steps, "
    assert notes(Regime(1.5, None, 0.15, 0.39), summary([summary_row("mine")])) == [
        own + "rate at the end 0.39 of its peak"
    ]


def test_the_paper_is_what_ratios_hold():
    assert (PAPER.unique, PAPER.trained, PAPER.warmup) == (UNIQUE, UNIQUE * EPOCHS, WARMUP)
    assert PAPER.last_rate == math.sqrt(WARMUP)


def test_a_note_on_scores_ends_where_no_text_is_translated():
    made = report(row("a", "better", -3.0))
    (of_scores,) = (note for note in below.tested_notes(made) if "bold:" in note)
    assert of_scores.endswith("bold: by Holm too; BLEU is not known yet")
    alone = replace(made, rows=[replace(one, scores={"ppl": one.ppl}) for one in made.rows])
    (of_scores,) = (note for note in below.tested_notes(alone) if "bold:" in note)
    assert of_scores.endswith("bold: by Holm too")
