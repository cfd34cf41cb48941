"""The rule that says whether a training diverged."""

import json
import math

import pytest

from lightning_tfm.runs.divergence import Divergence, Undefined, diverged


def curve(values: list[float], every: int = 50) -> list[dict[str, float]]:
    return [
        {"step": every * i, "loss": x, "nll": x, "lr": i / 1000, "grad_norm": i / 10} for i, x in enumerate(values, 1)
    ]


def test_a_training_that_learns_has_not_diverged():
    assert diverged(curve([6.0 * 0.95**i for i in range(40)]), 800) is None


def test_one_that_ends_half_a_nat_above_its_lowest_block_has():
    found = diverged(curve([3.0] * 30 + [3.4, 3.6] * 5), 800)
    assert found is None, "b_20 is the limit itself"
    found = diverged(curve([3.0] * 30 + [3.4, 3.7] * 5), 800)
    assert isinstance(found, Divergence)
    assert (found.step, found.before, found.after) == (50 * 31, 3.0, pytest.approx(3.55))
    assert (found.rate, found.grad_norm) == (0.031, 3.1)


def test_a_spike_that_it_recovers_from_is_no_divergence_and_is_not_where_one_began():
    assert diverged(curve([3.0] * 10 + [9.0] * 10 + [2.5] * 20), 800) is None
    found = diverged(curve([3.0] * 10 + [9.0] * 4 + [3.0] * 6 + [9.0] * 20), 10**6)
    assert isinstance(found, Divergence) and found.step == 50 * 21


def test_one_that_ends_worse_than_guessing_has_even_where_it_never_rose():
    values = [math.log(100) + 0.1] * 40
    assert isinstance(found := diverged(curve(values), 100), Divergence)
    assert found.step == 50 and "no better than guessing" in str(found)
    assert diverged(curve(values), None) is None, "log V is not known"
    assert diverged(curve(values), 120) is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, "Infinity"])
def test_a_loss_that_is_not_finite_is_divergence_however_few_points_there_are(bad):
    lines = [*curve([5.0, 4.0]), {"step": 150, "nll": bad, "lr": 0.5}]
    found = diverged(lines, 800)
    assert isinstance(found, Divergence)
    assert (found.step, found.before, found.rate, found.grad_norm) == (150, 4.0, 0.5, None)
    assert not math.isfinite(found.after) and "4.00 before" in str(found)


def test_with_fewer_than_twenty_losses_it_is_undefined_and_said():
    lines = [line for one in curve([3.0] * 18 + [9.0]) for line in (one, {"step": one["step"], "dev_ppl": 9.0})]
    found = diverged(lines, 800)
    assert found == Undefined(19) and "19 losses were logged" in str(found)
    assert isinstance(diverged(curve([3.0] * 19 + [9.0]), 800), Divergence)
    assert diverged([], None) == Undefined(0)


def test_blocks_are_equal_in_steps_not_in_points():
    dense = curve([3.0] * 400, every=1)  # the first 400 steps logged one by one, the rest every 400th
    sparse = [line | {"step": 400 + 400 * i} for i, line in enumerate(curve([3.0] * 18 + [9.0]), 1)]
    assert isinstance(diverged(dense + sparse, 800), Divergence)


def test_it_says_where_it_came_to_that_and_what_to_try():
    said = str(diverged(curve([3.0] * 30 + [9.0] * 10), 10**6))
    assert "rose from 3.00 to 9.00 from step 1550 on (learning rate 0.031, gradient norm 3.1)" in said
    assert "lr_factor" in said and "warmup" in said


def test_the_lines_may_come_from_the_file_as_they_are():
    lines = [json.loads(json.dumps(line)) for line in curve([3.0] * 40)]
    assert diverged(iter(lines), 800) is None
