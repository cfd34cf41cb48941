"""The learning rate against values worked out by hand from eq. 3."""

from itertools import pairwise

import pytest

from lightning_tfm.config import Training
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
