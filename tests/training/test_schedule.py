"""The learning rate against values worked out by hand from eq. 3."""

from itertools import pairwise

import pytest

from lightning_tfm.config import Experiment, Training
from lightning_tfm.contradictions import check
from lightning_tfm.errors import UserError
from lightning_tfm.training.schedule import learning_rate

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
