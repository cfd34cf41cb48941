"""The sentences over a report: verdicts, seeds that stand apart, how long was trained, and nothing else."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from lightning_tfm.cli.train.carry_out import _print_report
from lightning_tfm.report import study_report
from lightning_tfm.report.analyses.agreement import LastEighth
from lightning_tfm.report.analyses.factors import Effect, FactorSummary
from lightning_tfm.report.analyses.training_setup import PAPER, Regime, notes
from lightning_tfm.report.row import Difference, Percent, Scores
from lightning_tfm.report.study_report import make
from lightning_tfm.report.wording.headline import base_apart, headline, trust
from lightning_tfm.report.wording.notes import to_words
from lightning_tfm.report.wording.outlier_seeds import outlier_clauses, outlier_seeds
from lightning_tfm.report.wording.verdict_words import Verdict
from lightning_tfm.study.ratios import EPOCHS, UNIQUE, WARMUP
from lightning_tfm.study.rows import Paper
from tests.helpers.studies import BASE, difference, summary, summary_row


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


def test_the_largest_effects_in_words_of_the_rows_then_the_verdicts():
    assert headline(
        report(
            row("a", "reproduced", 12.0, label="half the width"),
            row("b", "contradicted", -4.0),
            row("c", "undecided", -30.0),
            row("d", "reproduced", 20.0, label="no dropout"),
            row("e", "reproduced", 8.0),
            row("f", "same direction", 2.0),
        )
    ) == [
        "No dropout, half the width and e cost most (+20, +12, +8.0 % perplexity). b gains (−4.0 % perplexity).",
        "Of 6 rows 3 are reproduced, 1 goes in the same direction (f), 1 is contradicted (b) and 1 is undecided "
        "(over seeds: this corpus, this scale).",
    ], "the undecided row is no gain, however large its estimate"
    assert trust(report(row("a", "reproduced", 1.0))) == "5 seeds per row."


def test_nothing_found_says_what_would_have_been():
    first, second = headline(report(row("a", "undecided", 1.0, smallest=3.0), row("b", "undecided", 9, smallest=5)))
    assert first == (
        "No change differs significantly from base. A true difference of 4.0 % PPL would typically be detected with a "
        "probability of about 70 %."
    )
    assert second == "Of 2 rows 2 are undecided (over seeds: this corpus, this scale)."
    (beyond_all, _) = headline(report(row("a", "undecided", 1.0, smallest=284.0)))
    assert ". A true perplexity 3.8 times as high would typically be detected" in beyond_all


def test_one_seed_has_numbers_and_no_verdict():
    found = headline(report(row("a", "not testable", -40.0, n=1)))
    assert found[0] == "No difference to base can be tested: a single seed."
    assert found[1] == "The lowest mean perplexity is 4.60 with a (base 5.00), without a test."


@pytest.mark.parametrize("count, said", [(1, "1 of 10 cells is empty: out of memory (1)"), (3, "3 of 10 cells are")])
def test_failed_cells_come_first(count, said):
    missing = {str(seed): "out of memory" for seed in range(count)}
    found = trust(report(row("a", "worse", 3.0, n=5 - count, missing=missing), finished=10 - count))
    assert found.startswith(said) and found.endswith(f"{5 - count} to 5 seeds per row.")


def test_many_reasons_are_counted_and_long_ones_cut():
    missing = {"1": "x" * 500, "2": "x" * 500, "3": "b", "4": "c", "5": "d"}
    found = trust(report(row("a", "undecided", missing=missing, n=0), finished=5))
    assert found.startswith("5 of 10 cells are empty: xxx") and "… (2), b (1), and 2 other reasons" in found
    assert len(found) < 300


def test_warnings_before_figures():
    still = LastEighth(0.11, 0.05, True)
    assert trust(report(row("big", "undecided", 1.0, far_above=[25]), analyses={"last eighth": still})) == (
        "Seed 25 of big is far above the others of its row; base still fell 11.0 % over the last eighth of its "
        "training: not converged, so differences partly reflect how fast rows learn; 5 seeds per row."
    )


def test_rows_of_other_pieces_are_judged_by_nll_per_word():
    rows = [row(name, "not comparable") for name in ("a", "b")]
    words = [
        difference(word, estimate=by, lower=by - 0.1, upper=by + 0.1)
        for word, by in (("worse", 0.5), ("better", -0.25))
    ]
    rows = [replace(r, more={"word": Scores(3.0, 0.1, {}, d)}) for r, d in zip(rows, words, strict=True)]
    assert headline(replace(report(*rows), foreign=["a", "b"])) == [
        "a costs (+0.500 nll per word). b gains (−0.250 nll per word).",
        "In nll per word, of 2 rows 1 is better (b) and 1 is worse (a) (over seeds: this corpus, this scale).",
    ]


def test_no_run_no_base_no_other_row():
    empty = headline(report(row("a", "not testable"), finished=0))
    assert empty[0] == "No run has finished, so nothing is known yet."
    assert headline(report(row("a", "worse", 3.0), base=False))[0].startswith("No row of this study is base")
    assert headline(report())[0] == "There is no row beside base, so nothing is compared."


def test_another_reference_is_named():
    rows = [row("a", "better", -3.0), replace(summary_row("ref", base=False), name="ref")]
    made = replace(report(*rows), reference="ref")
    made = replace(
        made,
        rows=[r.with_metrics({"ppl": replace(r.ppl, difference=None)}) if r.name == "ref" else r for r in made.rows],
    )
    assert headline(made)[1] == "Of 1 row beside ref 1 is better (a) (over seeds: this corpus, this scale)."


def test_every_verdict_has_words():
    for word in Verdict:
        *_, last = headline(report(row("a", word, 1.0), row("b", "undecided", 1.0)))
        assert last.startswith("Of 2 rows ") and word.clause[word == "undecided"] in last


def effect(kind, words, estimate, p=None, **changes):
    log = [math.log1p(x / 100) for x in (estimate, estimate - 5, estimate + 5)]
    return replace(Effect(kind, "ppl", words, *log, p), **changes)


def test_a_factorial_leads_with_its_fields_and_says_where_they_interact():
    norm, late = "model.norm: pre against post", "training.warmup: 8 against 4"
    effects = [effect("main", [norm], -24.7, 0.012), effect("main", [late], 2.0, 0.4)]
    made = replace(
        report(row("a", "undecided", 1.0, smallest=3.0)), analyses={"factors": FactorSummary([], effects, [])}
    )
    said = "Perplexity averaged over the other fields: norm pre instead of post, −24.7 %."
    assert headline(made)[0] == said
    both = [replace(e, p=None) for e in (*effects, effect("interaction", [norm, late], 30.0))]
    assert headline(replace(made, analyses={"factors": FactorSummary([], both, [])}))[0] == (
        f"{said} But effects differ with the other fields: read the combinations."
    )
    nothing = replace(made, analyses={"factors": FactorSummary([], effects[1:], [])})
    assert headline(nothing)[0] == "No field has a significant effect of its own."


@pytest.mark.parametrize(("seeds", "said"), [((1, 2), "lie on two levels"), ((1, 2, 3, 4, 5), "alike, and agree")])
def test_a_base_that_stands_apart_is_named_everywhere(generator, seeds, said):
    made = generator(["base", "A-h1", "A-h4", "A-h16"], [1, 2, 3, 4, 5])
    made.write_all()
    report = study_report.make("made", made.root)
    assert base_apart(report.summary) == []
    for seed in seeds:
        made.write(next(row for row in made.study.rows if row.name == "base"), seed, 0.9)
    report = study_report.make("made", made.root)
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


def test_a_seed_far_above_is_in_the_summary_and_its_csv(generator):
    """What people read of it: tests/golden/made/paper."""
    made = generator(["base", "A-h1", "A-h4"], [1, 2, 3, 4])
    made.write_all()
    made.write(made.study.rows[1], 3, 0.9)
    report = make("made", made.root)
    assert [r.far_above for r in report.summary.rows] == [[], [3], []]
    assert ",3," in report.render("csv").splitlines()[2]


def test_a_sweep_ends_with_differences_and_verdicts(generator, capsys):
    made = generator(["base", "A-h1", "A-h4"], [1, 2, 3])
    made.write_all({"A-h1": 0.3})
    _print_report(make("made", made.root), several=True)
    told = capsys.readouterr().out
    assert told.startswith("differences to base") and "PPL, 2 rows: 1 same direction" in told
    assert told.index("Δ, %") < told.index("PPL, 2 rows")


def test_more_seeds_are_no_remedy_where_base_is_missing(generator):
    made = generator(["A-h1", "A-h4"], [7])
    made.write_all()
    assert to_words(make("made", made.root).summary, 100).splitlines() == [
        "No row of this study is base, so nothing is compared."
    ]


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
