"""Compute multipliers from curves: exact on curves that are straight in the logarithm of the step."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lightning_tfm.report.analyses.compute_multiplier import MeanCurve, crossing, mean_curve, multiplier, times
from lightning_tfm.report.records import read_cells
from lightning_tfm.report.study_report import make, render_table, write_table
from lightning_tfm.report.summary import Multiplier
from lightning_tfm.report.tables.columns import FACTS
from lightning_tfm.study.rows import load_rows
from tests.golden.synthetic import fast
from tests.helpers.studies import Generator, own_row

ROOT = Path(__file__).parents[3]

STEPS = np.arange(250, 2001, 250)


def curve(shift=1.0, steps=STEPS, slope=0.4):
    """Base's where `shift` is 1; it is `shift` times as fast."""
    return MeanCurve(np.log(steps), 4.0 - slope * np.log(shift * np.array(steps)))


@pytest.mark.parametrize("m", [0.3, 0.77, 1.0, 1.31, 2.0, 6.5])
def test_a_row_that_is_m_times_as_fast_is_worth_m(m):
    found = multiplier(curve(), curve(m), 0.02)
    assert found.estimate == pytest.approx(m)
    assert math.log(found.upper / m) == pytest.approx(0.02 / 0.4)
    assert math.log(m / found.lower) == pytest.approx(0.02 / 0.4)


@pytest.mark.parametrize(("m", "steps"), [(3.0, STEPS * 2), (0.4, STEPS // 2), (0.6, STEPS * 3)])
def test_a_row_of_other_steps_is_worth_the_same(m, steps):
    """The scale of the row's own steps cancels: at each step it is where base is at m times that step."""
    assert multiplier(curve(), curve(m, steps), None, True) == Multiplier(pytest.approx(m), None, None, True)


def test_a_curve_whose_rate_was_still_falling_where_it_is_read_is_marked():
    falling = replace(curve(2.0), to_zero=True)
    assert multiplier(curve(), falling, None).marked and not multiplier(falling, curve(3.0), None).marked
    assert multiplier(falling, curve(), None).marked


def test_nothing_is_extrapolated():
    assert multiplier(curve(), curve(9.0), 0.02) == Multiplier(None, pytest.approx(8.0), None, False)
    assert multiplier(curve(), curve(1 / 9), 0.02) == Multiplier(None, None, pytest.approx(1 / 8), False)
    assert str(multiplier(curve(), curve(9.0), 0.02)) == "> 8.00"
    assert str(multiplier(curve(), curve(1 / 9), 0.02, True)) == "< 0.12*"


def test_a_curve_that_rises_again_is_crossed_where_it_first_comes_down():
    risen = curve(2.0)
    risen.log_ppl_V[5:] = risen.log_ppl_V[4] + 0.01
    assert multiplier(curve(), risen, 0.02).estimate == pytest.approx(2.0)


def test_without_a_falling_curve_there_is_no_interval():
    flat = replace(curve(), log_ppl_V=np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.9]))
    flat.log_ppl_V[4] = 0.8
    assert crossing(flat, 0.85).slope == pytest.approx(0.0)
    found = multiplier(replace(curve(), log_ppl_V=np.full(8, 0.92)), flat, 0.02)
    assert found.estimate > 1
    assert (found.lower, found.upper) == (None, None)


def test_the_slope_reaches_over_the_neighbouring_segments():
    y = np.array([3.0, 2.5, 2.2, 2.0, 1.9, 1.85, 1.8, 1.78])
    x = np.log(STEPS)
    assert crossing(MeanCurve(x, y), 1.95).slope == pytest.approx((y[5] - y[2]) / (x[5] - x[2]))
    assert crossing(MeanCurve(x, y), 1.78).slope == pytest.approx((y[7] - y[5]) / (x[7] - x[5]))


def row_of(scores, steps=2000):
    by_seed = {str(seed): ppl for seed, ppl in scores.items()}
    return SimpleNamespace(name="r", ppl=SimpleNamespace(by_seed=by_seed), values={"train steps": steps})


def test_curves_are_averaged_geometrically_over_all_scored_seeds():
    curves = {("r", 1): {1000: 4.0, 1500: 3.0, 2000: 2.0}, ("r", 2): {1000: 9.0, 2000: 8.0}}
    found = mean_curve(row_of({1: 2.0, 2: 8.0}), curves)
    assert np.exp(found.log_ppl_V) == pytest.approx([6.0, 4.0])
    assert np.exp(found.log_step_V) == pytest.approx([1000, 2000])
    assert mean_curve(row_of({1: 2.0, 2: 8.0, 3: 5.0}), curves) is None, "a seed without a curve"
    assert mean_curve(row_of({1: 2.0, 2: 7.9}), curves) is None, "scored with other weights"
    assert mean_curve(row_of({1: 2.0, 2: 8.0}, steps=2500), curves) is None, "it does not reach the end"


def test_flops_are_steps_times_their_price():
    assert times(Multiplier(2.0, 1.0, 4.0, True), 0.5) == Multiplier(1.0, 0.5, 2.0, True)
    assert times(Multiplier(None, 8.0, None, False), 0.5) == Multiplier(None, 4.0, None, False)


@pytest.fixture
def study(tmp_path):
    return fast(tmp_path)


def test_a_row_s_worth_is_that_of_its_difference_on_base_s_curve(study, tmp_path):
    """How it is shown: tests/golden/made/fast."""
    summary = make("made", tmp_path).summary
    rows = {row.name: row for row in summary.rows}
    worth = rows["A-h1"].worth
    assert worth.estimate == pytest.approx(math.exp(rows["A-h1"].ppl.difference.estimate * -math.log(2) / 0.2))
    assert worth.lower < worth.estimate < worth.upper
    assert rows["base"].worth is None and rows["big"].worth.marked and not worth.marked
    price = rows["base"].flops / rows["C-N4"].flops
    assert rows["C-N4"].worth_flops.estimate == pytest.approx(rows["C-N4"].worth.estimate * price)
    without = {row.name: row.worth for row in write_table(read_cells(study.study, tmp_path)).rows}
    assert without["A-h1"] == replace(worth, lower=None, upper=None)
    assert "A-h1's steps to the row's perplexity" in make("made", tmp_path, "A-h1").summary.analyses["worth"][0]


def test_rows_without_curves_have_no_column(generator, tmp_path):
    made = generator(["base", "A-h1"], [1, 2])
    made.write_all({"A-h1": 0.1})  # whose curves do not end in their scores
    summary = make("made", tmp_path).summary
    assert all(row.worth is None for row in summary.rows) and "worth" not in summary.analyses
    assert "worth" not in render_table(summary, "markdown")
    assert "worth" in [fact.name for fact in FACTS] and "worth" in render_table(summary, "csv").split("\n")[0]


def test_a_diverged_row_has_none(study, tmp_path):
    path = study.folder(study.study.rows[1], 1).path / "metrics.jsonl"
    path.write_text(path.read_text() + json.dumps({"step": 100, "nll": "Infinity"}) + "\n")
    found = {r.name: r for r in make("made", tmp_path).summary.rows}
    assert found["A-h1"].diverged == [1] and found["A-h1"].worth is None and found["C-N4"].worth is not None


def test_rows_that_cost_as_much_as_base_say_what_is_left(tmp_path):
    rows = load_rows(ROOT / "experiments/modern-equal.yaml")
    chosen = [row for row in rows if row.name in ("M-gqa-flops", "M-untied-parameters")]
    made = Generator(tmp_path, [own_row("base", group="base"), *chosen], [1, 2])
    made.write_all()
    summary = make("made", tmp_path).summary
    by_flops, by_parameters = summary.analyses["worth"]
    base, gqa, untied = summary.rows
    left = gqa.flops / base.flops - 1
    assert by_flops == f"model.d_ff solved for base's flops: M-gqa-flops ({100 * left:+.2f} %)"
    assert abs(untied.parameters / base.parameters - 1) < 0.01
    assert by_parameters.startswith("model.d_ff solved for base's parameters: M-untied-parameters (")
    assert by_flops in render_table(summary, "markdown")
