"""Two kinds of noise found where they were planted; scores from counts; corrections for several tests; power."""

import time
import warnings

import numpy as np
import pytest
import sacrebleu
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sacrebleu.significance import PairedTest
from scipy import special, stats

from lightning_tfm.corpus_metrics import Bleu, Chrf
from lightning_tfm.report.stats import evidence, statistics
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg, holm, next_level
from lightning_tfm.report.stats.resampling import ratio, resampled, resamples
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


def test_against_a_number_a_row_is_a_one_sample_test_and_one_that_stands_apart_lends_no_other_its_seeds():
    y = np.random.default_rng(1).normal(3, 0.1, (4, 5))
    found = compare(np.array([3.1, y[0].mean()]), np.array([0, y[0].var(ddof=1)]), np.array([1, 5]), fixed=True)
    assert (found.p[1], found.df[1]) == pytest.approx((stats.ttest_1samp(y[0], 3.1).pvalue, 4)) and np.isnan(found.p[0])
    wild = 3 + 1e4 * np.arange(40.0)
    rows = [*y, wild]
    n, v = np.array([1, *map(len, rows)]), np.array([0.0, *(row.var(ddof=1) for row in rows)])
    df = compare(np.array([3.1, *(row.mean() for row in rows)]), v, n, fixed=True).df
    assert df[5] <= 39 and df[1:5].max() <= 16


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
    start = time.process_time()
    found = compare(mean, variance, np.full(1000, 10), zeros)
    assert np.isfinite(found.se).all() and time.process_time() - start < 60


# --- corrections for several tests at once ---


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


# --- what could have been found, and how many seeds it would take: against simulated replicates ---


ROWS = 6
ZEROS = SentenceNoise(np.zeros(ROWS), np.zeros(ROWS))


def comparison(y, noise=ZEROS):
    return compare(y.mean(-1), y.var(-1, ddof=1), np.full(y.shape[-2], y.shape[-1]), noise)


def test_the_smallest_difference_is_found_about_as_often_as_it_says():
    y, level = np.random.default_rng(3).normal(size=(2000, ROWS, 5)), 0.05 / 5
    printed = evidence.smallest(comparison(y), level)[:, 1]
    y[:, 1] += np.random.default_rng(4).permutation(printed)[:, None]  # what one study prints, planted in another
    assert abs((comparison(y).p[:, 1] < level).mean() - evidence.ABOUT) < 0.08


def test_as_many_seeds_as_named_find_the_difference():
    rng, gap = np.random.default_rng(5), 1.5
    told = evidence.needed(comparison(rng.normal(size=(60, ROWS, 5))), np.full(ROWS, gap), 0.025)[:, 1]
    n = int(np.median(told))
    assert 7 <= n <= 12  # of a t-test of two samples: 8
    y = rng.normal(size=(2000, ROWS, n))
    y[:, 1] += gap
    assert 0.7 < (comparison(y).p[:, 1] < 0.05).mean() < 0.9


def test_no_number_of_seeds_outweighs_another_test_set():
    noise = SentenceNoise(np.array([0.0, *[0.5] * (ROWS - 1)]), np.zeros(ROWS))
    d = comparison(np.random.default_rng(6).normal(size=(ROWS, 5)), noise)
    gap = np.array([np.nan, 1.0, 5.0, 0.0, -1.0, 1e-9])
    found = evidence.needed(d, gap, 0.025)
    assert np.isinf(found[[0, 1, 3, 4, 5]]).all() and 2 <= found[2] < 20


def test_the_last_look_falls_where_it_was_predicted():
    y = np.random.default_rng(7).normal(size=(2000, ROWS, 8))
    final = y.mean(-1) - y[:, :1].mean(-1)
    above = evidence.chance_above(comparison(y[..., :5]), np.full(ROWS, 5), 8, final)[:, 1]  # uniform if it is right
    for low, high in ((0.0, 0.1), (0.4, 0.6), (0.9, 1.0)):
        assert ((above >= low) & (above < high)).mean() == pytest.approx(high - low, abs=0.03)


# --- scores from sufficient statistics are sacreBLEU's own, and so are the plain paired bootstrap's p-values ---


LINES = st.lists(st.text("ab c.,-&'\u00fc1\u3000\t", max_size=20), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(LINES, LINES, st.sampled_from(["13a", "intl", "char", "none"]))
def test_counts_and_scores_are_sacrebleus(hypotheses, references, tokenize):
    n = min(len(hypotheses), len(references))
    hypotheses, references = hypotheses[:n], [r if r.strip() else "a b" for r in references[:n]]
    metric = sacrebleu.BLEU(tokenize=tokenize, force=True)
    theirs = np.array(metric._extract_corpus_statistics(hypotheses, [references]))
    ours = Bleu(references, tokenize)(hypotheses)
    np.testing.assert_array_equal(ours, theirs)
    score = metric.corpus_score(hypotheses, [references]).score
    assert Bleu.score(ours.sum(0)) == pytest.approx(score, abs=1e-9)
    other = Chrf(references)
    assert Chrf.score(other(hypotheses).sum(0)) == pytest.approx(other.corpus(hypotheses).value, abs=1e-9)
    assert other.corpus(hypotheses).value == sacrebleu.CHRF().corpus_score(hypotheses, [references]).score


def corpus(S=120, seed=0):
    rng = np.random.default_rng(seed)
    words = np.array(list("abcdefghij"))
    references = [" ".join(rng.choice(words, rng.integers(4, 15))) for _ in range(S)]

    def translate(wrong):
        return [" ".join(w if rng.random() > wrong else "x" for w in line.split()) for line in references]

    return references, translate


@pytest.mark.parametrize("wrong", [0.2, 0.22, 0.3])
def test_paired_bootstrap_has_the_p_values_of_sacrebleus_paired_test(wrong):
    references, translate = corpus()
    a, b = translate(0.2), translate(wrong)
    metric = sacrebleu.BLEU(references=[references], force=True)
    _, results = PairedTest([("a", a), ("b", b)], {"BLEU": metric}, None, test_type="bs", n_samples=2000)()
    theirs = results["BLEU"][1].p_value
    counts = Bleu(references, "13a")
    both = [counts(a), counts(b)]
    distance = np.abs(np.diff(resampled(both, Bleu.score), axis=0)[0])
    apart = abs(np.diff([Bleu.score(one.sum(0)) for one in both])[0])
    ours = ((distance - distance.mean() > apart).sum() + 1) / (len(distance) + 1)  # its formula (Koehn 2004)
    error = np.sqrt(2 * max(theirs * (1 - theirs), 1e-3) / 2000)  # both sides are Monte-Carlo
    assert abs(ours - theirs) < 4 * error


def test_resamples_are_fixed_and_whole():
    counts = resamples(50)
    assert (counts.sum(1) == 50).all()
    assert counts[0, :8].tolist() == resamples(50)[0, :8].tolist()


def test_resampled_is_what_a_loop_over_resamples_gives():
    rng = np.random.default_rng(1)
    tables = [np.stack([rng.gamma(2, 3, 30), rng.integers(1, 9, 30)], 1) for _ in range(35)]
    found = resampled(tables, ratio)
    draws = resamples(30)
    for r, b in [(0, 0), (34, 7), (20, 1999)]:
        sums = sum(draws[b, s] * tables[r][s] for s in range(30))
        assert found[r, b] == pytest.approx(sums[0] / sums[1])


def test_a_text_of_another_length_is_refused():
    with pytest.raises(ValueError, match="1 translations of 2 lines"):
        Bleu(["a", "b"], "13a")(["a"])
