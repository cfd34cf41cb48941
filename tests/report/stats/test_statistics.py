"""Two kinds of noise, each found where it was planted."""

import time
import warnings

import numpy as np
import pytest
from scipy import special, stats

from lightning_tfm.report.stats import statistics
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg, holm
from lightning_tfm.report.stats.statistics import (
    Estimate,
    SentenceNoise,
    compare,
    moderated,
    outlying,
    prior_df,
    sentence_noise,
)

ZERO = SentenceNoise(np.zeros(2), np.zeros(2))


def test_moderated_variance_lies_between_the_rows_own_and_the_studys_and_never_below_its_own():
    d, typical = 3.0, 4 ** (1 / 3)
    v, df = moderated(np.array([1.0, 1.0, 4.0]), np.array([4.0, 4.0, 4.0]), d)
    assert v.tolist() == pytest.approx([(d * typical * bias(4) + 4 * 1) / (d + 4)] * 2 + [4.0])
    assert df.tolist() == [d + 4] * 3


def bias(df):
    """What makes exp(mean log s^2) the geometric mean of the true variances."""
    return np.exp(np.log(df / 2) - special.digamma(df / 2))


def test_degrees_of_freedom_never_exceed_those_of_the_study():
    _, df = moderated(np.array([1.0, 1.0]), np.array([1.0, 0.0]), 3.0)
    assert df.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("d_0", "n"), [(1.0, 3), (4.0, 5)])
def test_prior_df_is_a_lower_limit_of_what_was_planted(d_0, n):
    rng = np.random.default_rng(7)
    sigma = np.sqrt(d_0 / rng.chisquare(d_0, (2000, 2, 20, 1)))
    variance = (rng.normal(size=(2000, 2, 20, n)) * sigma).var(-1, ddof=1)
    found = prior_df(variance, np.full(20, n - 1), np.zeros(variance.shape, dtype=bool))
    assert (found < d_0).mean() > 0.95
    assert np.median(found) > 0.4 * d_0


def test_prior_df_sees_only_rows_whose_seeds_differ():
    variance = np.array([[1.0, 2.0, 3.0], [2.0, 5.0, 0.5]])
    with_blanks = np.array([[1.0, 2.0, 0.0, 3.0, 0.0], [2.0, 5.0, 0.0, 0.5, 0.0]])
    assert prior_df(with_blanks, np.array([2, 2, 2, 2, 0])) == pytest.approx(prior_df(variance, np.full(3, 2)))
    assert prior_df(np.array([[1.0, 0.0]]), np.array([2, 2])) == 0


def test_without_a_prior_every_row_stands_for_itself_as_welch_has_it():
    y = np.random.default_rng(1).normal(size=(2, 5)) * [[1], [4]]
    found = compare(y.mean(1), y.var(1, ddof=1), np.array([5, 5]), ZERO, prior=0.0)
    assert found.p[1] == pytest.approx(stats.ttest_ind(y[0], y[1], equal_var=False).pvalue)


def test_shared_sentence_noise_is_added_once_and_does_not_shrink_with_seeds():
    noise = SentenceNoise(np.array([0.0, 0.5]), np.zeros(2))
    few = compare(np.zeros(2), np.ones(2), np.array([3, 3]), noise, prior=0.0)
    many = compare(np.zeros(2), np.ones(2), np.array([300, 300]), noise, prior=0.0)
    assert few.se[1] ** 2 == pytest.approx(2 / 3 + 0.5)
    assert many.se[1] ** 2 == pytest.approx(2 / 300 + 0.5)


def test_the_error_is_never_below_the_bootstraps():
    noise = SentenceNoise(np.array([0.0, 0.1]), np.array([3.0, 3.0]))
    found = compare(np.zeros(2), np.full(2, 1e-6), np.array([3, 3]), noise)
    assert found.se[1] ** 2 == pytest.approx(0.1 + 1 + 1)


def test_seeds_that_all_gave_the_same_number_allow_no_test():
    assert np.isnan(compare(np.array([0.0, 1.0]), np.zeros(2), np.array([3, 3]), ZERO).p[1])


def test_sentence_noise_separates_what_seeds_share_from_what_they_do_not():
    rng, S, B, n = np.random.default_rng(0), 400, 2000, 4
    counts = rng.multinomial(S, np.full(S, 1 / S), size=B) / S
    row_effect = rng.normal(0, 1.0, (2, S))  # g: all seeds of a row
    own_effect = rng.normal(0, 2.0, (2, n, S))  # e: each training
    values = (row_effect[:, None] + own_effect).reshape(2 * n, S) + rng.normal(0, 9, S)  # and what is hard for all
    found = sentence_noise((counts @ values.T).T, np.repeat([0, 1], n), 2, S)
    assert found.own == pytest.approx([4 / S, 4 / S], rel=0.15)
    assert found.shared[1] == pytest.approx(2 / S, rel=0.35)
    assert found.shared[0] == 0


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize("factor", [1, 3])
def test_studies_without_a_difference_hold_a_false_one_in_at_most_five_of_a_hundred(n, factor):
    rng = np.random.default_rng(n)
    sd = np.exp(rng.uniform(-np.log(factor), np.log(factor), (4000, 2, 6, 1)))
    y = rng.normal(size=(4000, 2, 6, n)) * sd
    variance, zeros = y.var(-1, ddof=1), SentenceNoise(np.zeros(6), np.zeros(6))
    prior = prior_df(variance, np.full(6, n - 1))
    found = compare(y.mean(-1), variance, np.full(6, n), zeros, prior=prior[:, None])
    bound = 0.05 + 2 * np.sqrt(0.05 * 0.95 / 4000)
    for correct in (holm, benjamini_hochberg):
        for share in (correct(found.p) < 0.05).any(-1).mean(0):  # in each metric
            assert 0.01 < share < bound
    low, high = found.interval()
    covered = ((low < 0) & (0 < high))[..., 1:].mean()
    assert 0.93 < covered < 0.97


def test_one_sided_tests_and_equivalence_are_students():
    d = Estimate(np.array([0.2, -0.4]), np.array([0.1, 0.1]), np.array([7.0, 9.0]))
    assert d.above(0.0) == pytest.approx(stats.t.sf([2, -4], [7, 9]))
    assert d.below(0.1) == pytest.approx(stats.t.cdf([1, -5], [7, 9]))
    assert d.equivalence(0.5) == pytest.approx(stats.t.sf([3, 1], [7, 9]))
    assert np.isnan(Estimate(0.1, 0.0, 1.0).above(0.0))
    low, high = d.interval(0.1)
    inside = (low > -0.5) & (high < 0.5)  # the 90 % interval says the same as two tests at 5 %
    assert ((d.equivalence(0.5) < 0.05) == inside).all() and inside.tolist() == [True, False]


def compared(y_NRn):
    """Of rows against the first, without the noise of sentences: (interval's half width, estimate, p)."""
    R, n = y_NRn.shape[1:]
    noise = SentenceNoise(np.zeros(R), np.zeros(R))
    found = compare(y_NRn.mean(-1), y_NRn.var(-1, ddof=1), np.full(R, n), noise)
    return (found.interval()[1] - found.interval()[0]) / 2, found.estimate, found.p


@pytest.mark.parametrize(("R", "n"), [(4, 4), (5, 3), (20, 3), (6, 5)])
def test_a_row_that_diverged_changes_nothing_that_is_said_of_the_others(R, n):
    """Four rows at four seeds: -7.27 % [-10.93, -3.47] became [-13.66, -0.41] beside a row at 100 times the rate."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=(200, R, n))
    with_it = np.concatenate([y, 1e4 * rng.normal(size=(200, 1, n)) + 1e5], axis=1)
    assert outlying(with_it.var(-1, ddof=1), np.full(R + 1, n - 1))[:, -1].all()
    for alone, beside in zip(compared(y), compared(with_it), strict=True):
        assert np.array_equal(alone[:, 1:], beside[:, 1:R])


def test_a_row_apart_keeps_its_own_variance_and_a_base_apart_too():
    variance, df = np.array([1.0, 1.3, 0.8, 1.1, 900.0]), np.full(5, 3)
    v, f = moderated(variance, df, prior_df(np.stack([variance, variance]), df))
    assert v[-1] == 900 and f[-1] == 3 and f[0] <= 12
    v, f = moderated(variance[::-1], df, 5.0)
    assert v[0] == 900 and f[0] == 3


def test_a_noisier_row_that_stays_hardly_moves_the_others():
    rng, ratios = np.random.default_rng(4), {}
    for R, n in ((5, 4), (5, 5), (20, 3)):
        y = rng.normal(size=(1000, R, n))
        beside = compared(np.concatenate([y, 3 * rng.normal(size=(1000, 1, n))], axis=1))[0][:, 1:R]
        ratios[R, n] = float(np.median(beside / compared(y)[0][:, 1:]))
    assert max(ratios.values()) <= 1.05, ratios


def test_rows_of_one_variance_seldom_stand_apart():
    rng = np.random.default_rng(5)
    assert outlying(rng.chisquare(2, (4000, 19)) / 2, np.full(19, 2)).mean() < 0.001
    assert not outlying(np.array([1.0, 900.0]), np.array([3, 3])).any(), "two rows: neither is the typical one"


def test_the_median_of_others_is_that_of_each_row_left_out():
    rng = np.random.default_rng(3)
    for R in (3, 4, 7, 20):
        log = np.round(rng.standard_normal((40, R)), 1)  # with ties
        log[rng.random(log.shape) < 0.3] = np.nan
        with warnings.catch_warnings(action="ignore"):  # where all others are missing
            plain = np.stack([np.nanmedian(np.delete(log, i, -1), axis=-1) for i in range(R)], axis=-1)
        np.testing.assert_array_equal(statistics._median_of_others(log), plain)


def test_a_thousand_rows_are_weighed_at_once():
    rng = np.random.default_rng(4)
    mean, variance = rng.standard_normal(1000), rng.chisquare(9, 1000)
    zeros = SentenceNoise(np.zeros(1000), np.zeros(1000))
    start = time.perf_counter()
    found = compare(mean, variance, np.full(1000, 10), zeros)
    assert np.isfinite(found.se).all() and time.perf_counter() - start < 60
