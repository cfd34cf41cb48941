"""What could have been found, and how many seeds it would take: against simulated replicates."""

import numpy as np
import pytest

from lightning_tfm.report.stats import power
from lightning_tfm.report.stats.statistics import SentenceNoise, compare

ROWS = 6
ZEROS = SentenceNoise(np.zeros(ROWS), np.zeros(ROWS))


def compared(y, noise=ZEROS):
    return compare(y.mean(-1), y.var(-1, ddof=1), np.full(y.shape[-2], y.shape[-1]), noise)


def test_the_smallest_difference_is_found_about_as_often_as_it_says():
    y, level = np.random.default_rng(3).normal(size=(2000, ROWS, 5)), 0.05 / 5
    printed = power.smallest(compared(y), level)[:, 1]
    y[:, 1] += np.random.default_rng(4).permutation(printed)[:, None]  # what one study prints, planted in another
    assert abs((compared(y).p[:, 1] < level).mean() - power.ABOUT) < 0.08


def test_as_many_seeds_as_named_find_the_difference():
    rng, gap = np.random.default_rng(5), 1.5
    told = power.needed(compared(rng.normal(size=(60, ROWS, 5))), np.full(ROWS, gap), 0.025)[:, 1]
    n = int(np.median(told))
    assert 7 <= n <= 12  # of a t-test of two samples: 8
    y = rng.normal(size=(2000, ROWS, n))
    y[:, 1] += gap
    assert 0.7 < (compared(y).p[:, 1] < 0.05).mean() < 0.9


def test_no_number_of_seeds_outweighs_another_test_set():
    noise = SentenceNoise(np.array([0.0, *[0.5] * (ROWS - 1)]), np.zeros(ROWS))
    d = compared(np.random.default_rng(6).normal(size=(ROWS, 5)), noise)
    gap = np.array([np.nan, 1.0, 5.0, 0.0, -1.0, 1e-9])
    found = power.needed(d, gap, 0.025)
    assert np.isinf(found[[0, 1, 3, 4, 5]]).all() and 2 <= found[2] < 20


def test_the_last_look_falls_where_it_was_predicted():
    y = np.random.default_rng(7).normal(size=(2000, ROWS, 8))
    final = y.mean(-1) - y[:, :1].mean(-1)
    above = power.chance_above(compared(y[..., :5]), np.full(ROWS, 5), 8, final)[:, 1]  # uniform if it is right
    for low, high in ((0.0, 0.1), (0.4, 0.6), (0.9, 1.0)):
        assert ((above >= low) & (above < high)).mean() == pytest.approx(high - low, abs=0.03)
