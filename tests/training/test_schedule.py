"""The learning rate against values worked out by hand from eq. 3."""

import math
import os
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from lightning_tfm.config import Experiment, Hardware, Training
from lightning_tfm.config_validation import check
from lightning_tfm.errors import UserError
from lightning_tfm.registry import SCHEDULES
from lightning_tfm.testing import ScheduleSuite
from lightning_tfm.training import module
from lightning_tfm.training.schedule import Schedule, check_schedule, learning_rate
from tests.helpers.tiny import attempt, experiment, in_child, metrics, train, weights, write_corpus

# d_model^-0.5 min(n^-0.5, n 4000^-1.5): 512^-0.5 = 0.0441941738, 4000^-1.5 = 3.95284708e-6, 4000^-0.5 = 0.0158113883
BY_HAND = {1: 1.74692811e-7, 1000: 1.74692811e-4, 4000: 6.98771243e-4, 16000: 3.49385621e-4, 100000: 1.39754249e-4}


@pytest.mark.parametrize(("n", "rate"), BY_HAND.items())
def test_the_papers_schedule(n, rate):
    assert learning_rate(n - 1, 512, Training()) == pytest.approx(rate, rel=1e-8)


def test_width_warmup_and_factor():
    assert learning_rate(0, 128, Training()) == pytest.approx(2 * BY_HAND[1], rel=1e-8)
    assert learning_rate(3999, 512, Training(lr_factor=2.5)) == pytest.approx(2.5 * BY_HAND[4000], rel=1e-8)
    assert learning_rate(99, 64, Training(warmup=100)) == pytest.approx(0.0125, rel=1e-12)  # 1 / (8 * 10)
    assert learning_rate(399, 64, Training(warmup=100)) == pytest.approx(0.00625, rel=1e-12)


def test_linear_falls_from_the_same_peak_to_nothing():
    t = Training(schedule="linear", steps=1000, warmup=100)
    rates = [learning_rate(step, 64, t) for step in range(1001)]
    assert max(rates) == rates[99] == pytest.approx(0.0125, rel=1e-12)
    assert rates[549] == pytest.approx(0.0125 * 451 / 901, rel=1e-12)
    assert rates[999] == pytest.approx(0.0125 / 901, rel=1e-12) and rates[1000] == 0
    assert all(a > b for a, b in pairwise(rates[99:]))


def test_cosine_falls_from_the_same_peak_to_nothing():
    t = Training(schedule="cosine", steps=999, warmup=100)
    rates = [learning_rate(step, 64, t) for step in range(1000)]
    assert max(rates) == rates[99] == pytest.approx(0.0125, rel=1e-12)
    assert rates[549] == pytest.approx(0.0125 / 2, rel=1e-12) and rates[999] == pytest.approx(0, abs=1e-15)
    assert rates[324] == pytest.approx(0.0125 * (1 + 0.5**0.5) / 2, rel=1e-12)  # a quarter of the way


def test_wsd_holds_the_peak_and_falls_at_the_end():
    t = Training(schedule="wsd", steps=1000, warmup=100, cooldown=0.2)
    rates = [learning_rate(step, 64, t) for step in range(1001)]
    assert rates[49] == pytest.approx(0.00625, rel=1e-12)
    assert set(rates[99:800]) == {rates[99]} and rates[99] == pytest.approx(0.0125, rel=1e-12)
    assert rates[899] == pytest.approx(0.0125 * 101 / 201, rel=1e-12) and rates[1000] == 0
    with pytest.raises(UserError, match=r"a warm-up of 900 steps and a fall of 200 do not fit"):
        check(Experiment(training=Training(schedule="wsd", steps=1000, warmup=900, average_last=0)))


class Cycles(Schedule):
    """Half a cosine again and again, never below a tenth of the peak, after a warm-up on a square."""

    def rate(self, n: int) -> float:
        t = self.training
        return self.peak * (n / t.warmup) ** 2 if n <= t.warmup else self.after_warmup(n)

    def after_warmup(self, n: int) -> float:
        part = (n - self.training.warmup) % 50 / 50
        return self.peak * (0.1 + 0.9 * (1 + math.cos(math.pi * part)) / 2)


class Counts(Schedule):
    """Its rate depends on how often it was asked."""

    asked = 0

    def after_warmup(self, n: int) -> float:
        self.asked += 1
        return self.peak / self.asked


class Negative(Schedule):
    def after_warmup(self, n: int) -> float:
        return -self.peak


class Broken(Schedule):
    def after_warmup(self, n: int) -> float:
        return self.peak / (n - self.training.steps)


class Unscaled(Schedule):
    def rate(self, n: int) -> float:
        return 1e-3

    def after_warmup(self, n: int) -> float:
        return 1e-3


@pytest.mark.parametrize("name", [*SCHEDULES, f"{__name__}.Cycles"])
@pytest.mark.parametrize("check", [name for name in vars(ScheduleSuite) if name.startswith("test_")])
def test_what_ships_and_a_class_of_one_s_own_pass_the_suite(name, check):
    getattr(type("Suite", (ScheduleSuite,), {"schedule": name})(), check)()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Counts", "when steps are asked backwards: it must depend on n alone"),
        ("Negative", r"step 11 has the rate -.*: expected a finite number, 0 or above"),
        ("Broken", "ZeroDivisionError"),
    ],
)
def test_a_schedule_that_would_not_resume_or_gives_no_rate_is_refused_by_its_name(name, words):
    with pytest.raises(UserError, match=f"training.schedule='{__name__}.{name}': .*{words}"):
        check_schedule(Training(schedule=f"{__name__}.{name}", steps=100, warmup=10), 64)


def test_the_suite_sees_a_factor_that_does_not_act():
    suite = type("Suite", (ScheduleSuite,), {"schedule": f"{__name__}.Unscaled"})()
    with pytest.raises(AssertionError, match="lr_factor acts on no rate"):
        suite.test_the_factor_of_the_settings_acts()


def test_a_class_of_one_s_own_has_its_warm_up_its_cycles_and_its_least_rate():
    t = Training(schedule=f"{__name__}.Cycles", steps=1000, warmup=100)
    rates = [learning_rate(step, 64, t) for step in range(1000)]
    assert rates[49] == pytest.approx(0.0125 / 4) and max(rates) == rates[99] == rates[149] == pytest.approx(0.0125)
    assert 0.00125 < min(rates[100:]) < 0.00127


def test_a_run_with_a_schedule_of_one_s_own_is_resumed_bit_for_bit(tmp_path):
    """Killed in the middle of a cycle, after seven of twelve steps."""
    e = experiment(write_corpus(tmp_path / "text"), training__schedule=f"{__name__}.Cycles")
    whole = in_child(train, e, tmp_path / "whole", Hardware(checkpoint_every=5))
    with pytest.raises(AssertionError, match="exit code 9"):
        in_child(_killed_at_step_8, e, tmp_path / "killed")
    again = in_child(train, e, tmp_path / "killed", Hardware(checkpoint_every=5))
    first, second = weights(whole), weights(again)
    assert all(torch.equal(first[name], second[name]) for name in first) and metrics(whole) == metrics(again)


def _killed_at_step_8(e: Experiment, root: Path) -> None:
    rate = module.learning_rate

    def killed(step: int, *others) -> float:
        if step == 7:
            os._exit(9)
        return rate(step, *others)

    module.learning_rate = killed
    attempt(e, root, Hardware(checkpoint_every=5))
