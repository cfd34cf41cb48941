"""Corrections for several tests at once."""

import numpy as np
import pytest
from scipy import stats

from lightning_tfm.report.stats.multiplicity import benjamini_hochberg, holm, next_level


def test_holm():
    assert holm(np.array([0.01, 0.04, 0.03, np.nan])) == pytest.approx([0.03, 0.06, 0.06, np.nan], nan_ok=True)
    assert holm(np.array([[0.5, 0.6], [0.01, 0.2]])) == pytest.approx(np.array([[1.0, 1.0], [0.02, 0.2]]))


def test_benjamini_hochberg_is_scipys_and_leaves_out_what_was_not_tested():
    p = np.random.default_rng(0).uniform(0, 0.2, (50, 19))
    assert benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p, axis=-1))
    gaps = np.insert(p[0], [0, 7, 19], np.nan)
    found = benjamini_hochberg(gaps)
    assert np.isnan(found).sum() == 3
    assert found[~np.isnan(found)] == pytest.approx(stats.false_discovery_control(p[0]))
    assert np.isnan(benjamini_hochberg(np.full(3, np.nan))).all()


def test_the_next_level_is_what_one_more_row_has_to_reach():
    p = np.array([0.001, 0.3, 0.4, 0.5, np.nan])
    level = next_level(benjamini_hochberg(p))
    assert level == pytest.approx([0.05 * 2 / 4])
    for factor, rejected in ((0.999, 2), (1.001, 1)):
        more = np.array([p[0], level[0] * factor, *p[2:]])
        assert (benjamini_hochberg(more) < 0.05).sum() == rejected
    assert next_level(benjamini_hochberg(np.zeros(3))) == pytest.approx([0.05])
