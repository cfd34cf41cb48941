"""The sentences on top of a report, over made-up summaries: they say what the verdicts say, and nothing else."""

from dataclasses import replace

import pytest

from lightning_tfm.report.findings import findings
from lightning_tfm.report.summary import Difference, LastEighth, Percent, Scores
from lightning_tfm.report.verdict import Word
from tests.records import summary, summary_row


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


def test_verdicts_effects_and_seeds():
    found = findings(
        report(
            row("a", "reproduced", 12.0),
            row("b", "contradicted", -4.0),
            row("c", "undecided", -30.0),
            row("d", "reproduced", 20.0),
        )
    )
    assert found == [
        "In perplexity, of 4 rows beside base, 2 reproduce the paper's difference to base (a, d), 1 goes against the "
        "paper's (b) and 1 is undecided (over seeds: this corpus, this scale).",
        "The largest gain found is b, -4.0 % PPL [-6.0, -2.0]; the largest loss d, +20.0 % PPL [+18.0, +22.0].",
        "The rows stand on 5 seeds each.",
    ], "the undecided row is no gain, however large its estimate"


def test_nothing_found_says_what_would_have_been():
    first, second, _ = findings(report(row("a", "undecided", 1.0, smallest=3.0), row("b", "undecided", 9, smallest=5)))
    assert first == "In perplexity, of 2 rows beside base, 2 are undecided (over seeds: this corpus, this scale)."
    assert second == (
        "No row is found to differ from base; a true difference of 4.0 % PPL would typically have been found with a "
        "probability of about 70%."
    )
    assert findings(report(row("a", "worse", 3.0)))[1].startswith("No row is found to be better than base; the largest")
    assert findings(report(row("a", "better", -3.0)))[1].endswith("; no row is found to be worse.")


def test_one_seed_has_numbers_and_no_verdict():
    found = findings(report(row("a", "not testable", -40.0, n=1)))
    assert found[0] == "No difference to base can be tested: a single seed."
    assert found[1] == "The lowest mean perplexity is that of a, 4.60 (base 5.00), without a test."


@pytest.mark.parametrize("count, said", [(1, "1 of 10 cells is empty: out of memory (1)"), (3, "3 of 10 cells are")])
def test_failed_cells_come_first(count, said):
    missing = {str(seed): "out of memory" for seed in range(count)}
    found = findings(report(row("a", "worse", 3.0, n=5 - count, missing=missing), finished=10 - count))
    assert found[2].startswith(said) and found[2].endswith(f"the rows stand on {5 - count} to 5 seeds.")


def test_many_reasons_are_counted_and_long_ones_cut():
    missing = {"1": "x" * 500, "2": "x" * 500, "3": "b", "4": "c", "5": "d"}
    third = findings(report(row("a", "undecided", missing=missing, n=0), finished=5))[2]
    assert third.startswith("5 of 10 cells are empty: xxx") and "… (2), b (1), and 2 other reasons" in third
    assert len(third) < 300


def test_warnings_before_figures():
    still = LastEighth(0.11, 0.05, True)
    third = findings(report(row("big", "undecided", 1.0, far_above=[25]), last_eighth=still))[2]
    assert third == (
        "1 seed of big is far above the others of its row, which all numbers include; base still fell 11.0 % over "
        "the last eighth of its training: this table shows the speed of learning; the rows stand on 5 seeds each."
    )


def test_rows_of_other_pieces_are_judged_by_nll_per_word():
    rows = [row(name, "not comparable") for name in ("a", "b")]
    words = [
        Difference(word, "", None, estimate=by, lower=by - 0.1, upper=by + 0.1)
        for word, by in (("worse", 0.5), ("better", -0.25))
    ]
    rows = [replace(r, more={"word": Scores(3.0, 0.1, {}, d)}) for r, d in zip(rows, words, strict=True)]
    first, second, _ = findings(replace(report(*rows), foreign=["a", "b"]))
    assert first == (
        "In nll per word, of 2 rows beside base, 1 is better than base (b) and 1 is worse than base (a) "
        "(over seeds: this corpus, this scale)."
    )
    assert second.startswith(
        "The largest gain found is b, -0.250 nats per word [-0.350, -0.150]; the largest loss a, +0.5"
    )


def test_no_run_no_base_no_other_row():
    empty = findings(report(row("a", "not testable"), finished=0))
    assert empty[0] == "No run has finished, so nothing is known yet."
    assert findings(report(row("a", "worse", 3.0), base=False))[0].startswith("No row of this study is base")
    assert findings(report())[0] == "There is no row beside base, so nothing is compared."


def test_another_reference_is_named_and_a_name_with_braces_stays():
    rows = [row("{to}", "better", -3.0), replace(summary_row("ref", base=False), name="ref")]
    made = replace(report(*rows), reference="ref")
    made = replace(
        made,
        rows=[r.with_metrics({"ppl": replace(r.ppl, difference=None)}) if r.name == "ref" else r for r in made.rows],
    )
    assert findings(made)[0] == (
        "In perplexity, of 1 row beside ref, 1 is better than ref ({to}) (over seeds: this corpus, this scale)."
    )


def test_every_verdict_has_words():
    for word in Word:
        (first, *_) = findings(report(row("a", word, 1.0), row("b", "undecided", 1.0)))
        assert first.count("beside base") == 1 and "{" not in first
