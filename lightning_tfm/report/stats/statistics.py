"""Is a row different from base? Noise of training (seeds) and noise of the test set (sentences) together.

Model. The score of row i, seed s on a test set T:  y_is(T) = mu_i + a_is + g_i(T) + e_is(T).
`a` varies between trainings, `g` between test sets for all seeds of a row alike, `e` for each training on its own. On
the one test set at hand the sample variance of a row over its seeds, s_i^2, already holds a and e. What it misses is g:

    Var(mean_i - mean_0) = v_i / n_i + v_0 / n_0 + Var(g_i - g_0),    v = Var(a) + Var(e)

Sentences: the paired bootstrap (Koehn 2004; all runs on the same resamples) gives Var(g_i - g_0) + Var(e_i) / n_i +
Var(e_0) / n_0 of the difference of means, and just Var(e_i) from the spread between seeds within each resample; their
difference is Var(g_i - g_0), at least 0. Adding the whole bootstrap variance would count e twice. The sum is never
taken below the bootstrap variance.

Seeds: 3 to 5 seeds of one row are too few for its own variance, and rows differ in theirs: log PPL of our first 20
rows by a factor of 40 between the quietest and the noisiest. So the variance is moderated, as much as the study's own
rows allow (Smyth 2004): v_i = (d_0 s_0^2 + d_i s_i^2) / (d_0 + d_i) with d_i = n_i - 1. log s_i^2 has the mean log
sigma_i^2 + psi(d_i/2) - log(d_i/2) and the variance Var(log sigma^2) + psi'(d_i/2), whence s_0^2, the geometric mean
of the rows' true variances, and d_0 = 2 psi'^-1(Var(log sigma^2)). Three choices differ from Smyth's, all towards fewer
false verdicts: Var(log sigma^2) is not taken at its estimate but `CAUTION` standard errors above it, so d_0 is a lower
limit and a few rows cannot talk themselves into being alike; it is estimated from both metrics together; and v_i is
never below s_i^2, as what pulls down the variance of noisy rows makes false findings. v_i has d_0 + d_i degrees of
freedom, at most those of the whole study.
A row that is far noisier than the others, as one that diverged, would ruin what they learn from each other: one spread
among twenty makes d_0 small for all. With e_i = log s_i^2 - psi(d_i/2) + log(d_i/2), unbiased for log sigma_i^2, a row
stands apart if e_i exceeds the median of the others by more than the 99.9 % point of that difference at equal
variances plus 2 ln 3 (`outlying`; three times the standard deviation is allowed for), found once more with the first
ones left out. It keeps its own variance and degrees of freedom, base too, and counts neither for d_0, nor for s_0^2,
nor for the degrees of freedom of the study.
A base noisier than all rows is the worst case: every comparison shares its variance.
Rows share seeds; where that makes them alike (mean correlation of the residuals between base and rows 0.6 over 5 seeds
of those 20 rows, none over 3 seeds of 12 on Multi30k) a difference varies less than v_i / n + v_0 / n_0, so leaving it
out is cautious; pairing would halve the few degrees of freedom for an uncertain gain. A seed effect estimated from all
rows, where their residuals are alike beyond chance, was simulated with sentence noise and looks (800 to 1000 studies a
noise) and left out: of 19 rows it finds 8.2 instead of 6.4 differences at 3 seeds correlated 0.7 and stays within 5.4 %
false studies, but of 5 rows that are alike while base is not it makes 6.5 % of studies false instead of 3.0 %.
Degrees of freedom: Satterthwaite 1946 for the two seed parts; where sentences join, 1 / df = w / df_seeds + (1 - w) /
(S - 1) with the seeds' share w instead of his w^2, which errs where 2 degrees of freedom gave w too small by chance.

How often all this is wrong, family by family and noise by noise: benchmarks/results/verdicts.txt.

Arrays may have leading axes (simulated studies); R rows, base first.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.special import digamma, polygamma, stdtr, stdtrit

ALPHA = 0.05
LEAST = 5
"""seeds of a row, and of base, for a verdict: with fewer, plateaus make false ones (benchmarks/results/plateaus.txt)"""
CAUTION = 3.0
"""standard errors by which the spread of the rows' variances is taken above its estimate"""
APART = 0.001
"""chance that a row of the same variance as the others stands apart, before the allowance"""
ALLOWED = 2 * math.log(3)
"""of log variance, above what chance does"""
MANY = 100
"""others of a row beyond which their median is taken as no better known"""
DRAWS = 100_000
BASE = 0


def t_sf(t: np.ndarray | float, df: np.ndarray | float) -> np.ndarray:
    """P(T > t) of Student's t: scipy.stats.t.sf, whose import takes half a second of a first look."""
    return stdtr(df, -np.asarray(t))


def t_isf(tail: np.ndarray | float, df: np.ndarray | float) -> np.ndarray:
    """The t that is exceeded with probability `tail`: scipy.stats.t.isf, infinite at 0."""
    return np.where(np.asarray(tail) > 0, -stdtrit(df, tail), np.where(np.asarray(df) > 0, np.inf, np.nan))


@dataclass(frozen=True)
class SentenceNoise:
    """Of one metric, from the bootstrap, [..., R]; zeros where it is unknown."""

    shared: np.ndarray
    """Var(g_i - g_0): what another test set would do to the difference however many seeds there are"""
    own: np.ndarray
    """Var(e_i): its effect on a single training"""


@dataclass(frozen=True)
class Estimate:
    """A difference with its error: numbers, or arrays of them."""

    estimate: np.ndarray | float
    se: np.ndarray | float
    df: np.ndarray | float

    def interval(self, level: float = ALPHA) -> tuple[np.ndarray, np.ndarray]:
        """Only of this difference (marginal), covering with probability 1 - level."""
        half = t_isf(np.asarray(level) / 2, self.df) * self.se
        return self.estimate - half, self.estimate + half

    def above(self, bound: np.ndarray | float) -> np.ndarray:
        """One-sided p of a difference above `bound`; NaN where the seeds allow no test."""
        return t_sf(self._t(bound), self.df)

    def below(self, bound: np.ndarray | float) -> np.ndarray:
        """One-sided p of a difference below `bound`; NaN where the seeds allow no test."""
        return t_sf(-self._t(bound), self.df)

    @property
    def two_sided(self) -> np.ndarray:
        """p of any difference."""
        return 2 * np.minimum(self.above(0.0), self.below(0.0))

    def equivalence(self, margin: float) -> np.ndarray:
        """p of a difference inside ± margin: the larger of two one-sided tests (TOST, Schuirmann 1987)."""
        return np.maximum(self.above(-margin), self.below(margin))

    def _t(self, bound: np.ndarray | float) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(np.asarray(self.se) > 0, (self.estimate - bound) / np.asarray(self.se), np.nan)


@dataclass(frozen=True)
class Differences(Estimate):
    """Rows against base in one metric, all [..., R]; base itself has estimate 0 and no p."""

    estimate: np.ndarray
    se: np.ndarray
    df: np.ndarray
    seed_variance: np.ndarray
    """moderated, of one training"""
    p: np.ndarray
    """two-sided, only of this comparison"""
    pair_variance: np.ndarray
    """of one training of the row minus one of base, without what all seeds of a row share"""
    shared: np.ndarray
    """what they share: no number of seeds makes it smaller"""
    prior: np.ndarray
    """d_0, [..., 1]"""


def sentence_noise(boot_RB: np.ndarray, row_R: np.ndarray, rows: int, S: int) -> SentenceNoise:
    """From the scores of all runs on resampled test sets. `row_R`: the row of each run; base is row 0.

    A row without runs has zeros.
    """
    B = boot_RB.shape[1]
    unbias = S / (S - 1) if S > 1 else 1.0  # a resample of S sentences has (S-1)/S of their variance
    centred = boot_RB - boot_RB.mean(1, keepdims=True)
    means, own, n = np.zeros((rows, B)), np.zeros(rows), np.bincount(row_R, minlength=rows)
    for i in range(rows):
        scores = centred[row_R == i]
        if len(scores):
            means[i] = scores.mean(0)
        if len(scores) > 1:
            own[i] = scores.var(0, ddof=1).mean() * B / (B - 1) * unbias
    whole = (means - means[BASE]).var(1, ddof=1) * unbias
    count = np.maximum(n, 1)
    shared = np.maximum(whole - own / count - own[BASE] / count[BASE], 0.0)
    shared[BASE] = 0.0
    return SentenceNoise(np.where(n > 0, shared, 0.0), own)


def outlying(variance_R: np.ndarray, df_R: np.ndarray) -> np.ndarray:
    """Rows whose variance stands apart from the others' (see above), [..., R]; none where fewer than three have any."""
    df_R = np.broadcast_to(np.asarray(df_R, dtype=float), np.shape(variance_R))
    if df_R.shape[-1] < 3:
        return np.zeros(df_R.shape, dtype=bool)
    used = (df_R > 0) & (np.asarray(variance_R) > 0)
    log = np.where(used, _log_variance(variance_R, df_R), np.nan)
    apart = np.zeros(log.shape, dtype=bool)
    for _ in range(2):
        rest = np.where(apart, np.nan, log)
        count = (~np.isnan(rest)).sum(-1, keepdims=True) - ~np.isnan(rest)  # others
        with np.errstate(invalid="ignore"):
            apart = used & (count > 1) & (log - _median_of_others(rest) > ALLOWED + _by_chance(df_R, rest, count))
    return apart


def _median_of_others(log_R: np.ndarray) -> np.ndarray:
    """Of each place the median over the other places, NaN left out, [..., R]."""
    order = np.sort(log_R, axis=-1)  # NaN last
    rank = np.argsort(np.argsort(log_R, axis=-1, kind="stable"), axis=-1, kind="stable")
    there = ~np.isnan(log_R)
    count = there.sum(-1, keepdims=True) - there  # of the others
    low, high = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, log_R.shape[-1] - 2)
    ends = [np.take_along_axis(order, i + (there & (i >= rank)), -1) for i in (low, high)]  # all but its own
    return (ends[0] + ends[1]) / 2


def _by_chance(df_R: np.ndarray, kept_R: np.ndarray, count_R: np.ndarray) -> np.ndarray:
    """The 99.9 % point of a row's log variance less the median of `count` others', all variances equal, [..., R]."""
    with_seeds = np.where(np.isnan(kept_R), np.nan, df_R)
    parts = np.broadcast_arrays(df_R, _middle(with_seeds), np.minimum(count_R, MANY))
    keys = np.ravel_multi_index([x.astype(int).ravel() for x in parts], [int(x.max()) + 1 for x in parts])
    different, where = np.unique(keys, return_inverse=True)
    each = zip(*np.unravel_index(different, [int(x.max()) + 1 for x in parts]), strict=True)
    return np.array([_chance_point(*map(int, key)) for key in each])[where.reshape(-1)].reshape(df_R.shape)


def _middle(values_R: np.ndarray) -> np.ndarray:
    """The median, NaN left out, [..., 1]; 1 where all are."""
    order, count = np.sort(values_R, axis=-1), (~np.isnan(values_R)).sum(-1, keepdims=True)
    middle = np.take_along_axis(order, np.maximum(count - 1, 0) // 2, -1)
    return np.where(count > 0, middle, 1.0)


@cache
def _chance_point(df: int, others_df: int, others: int) -> float:
    if min(df, others_df) < 1 or others < 2:
        return math.inf
    rng = np.random.default_rng(0)
    own, middle = (np.log(rng.chisquare(d, n) / d) for d, n in ((df, DRAWS), (others_df, (DRAWS, others))))
    excess = own - digamma(df / 2) + math.log(df / 2) - np.median(middle, 1) + digamma(others_df / 2)
    return float(np.quantile(excess - math.log(others_df / 2), 1 - APART))


def prior_df(variance_MR: np.ndarray, df_R: np.ndarray, apart_MR: np.ndarray | None = None) -> np.ndarray:
    """d_0: what the study's typical variance counts for in a row's own, from both metrics together.

    [..., M, R] -> [...]. 0 where fewer than two rows have seeds that differ: then each row is on its own. `apart`:
    rows that do not count, by default those of `outlying`.
    """
    df_MR = np.broadcast_to(np.asarray(df_R, dtype=float), np.shape(variance_MR))
    apart = outlying(variance_MR, df_MR) if apart_MR is None else apart_MR
    used, half = (df_MR > 0) & (variance_MR > 0) & ~apart, np.maximum(df_MR, 1) / 2
    count = used.sum(-1)
    log = np.where(used, _log_variance(variance_MR, df_MR), 0.0)
    middle = log.sum(-1, keepdims=True) / np.maximum(count, 1)[..., None]
    spread = np.where(used, (log - middle) ** 2, 0.0).sum(-1) / np.maximum(count - 1, 1)
    chance, fourth = (np.where(used, polygamma(k, half), 0.0).sum(-1) / np.maximum(count, 1) for k in (1, 3))
    # the fourth cumulant of log chi^2 says how well the variance of `count` logarithms is known
    error = np.sqrt((2 + fourth / np.maximum(chance, 1e-9) ** 2) / np.maximum(count, 1))
    several, known = count > 1, np.maximum((count > 1).sum(-1), 1)
    spread, chance, error = (np.where(several, x, 0.0).sum(-1) / known for x in (spread, chance, error))
    between = np.maximum(spread * (1 + CAUTION * error) - chance, 1e-3)
    return np.where(several.any(-1), 2 * _inverse_trigamma(between), 0.0)


def _log_variance(variance: np.ndarray, df: np.ndarray) -> np.ndarray:
    """Unbiased for log sigma^2."""
    half = np.maximum(df, 1) / 2
    return np.log(np.where(variance > 0, variance, 1.0)) - digamma(half) + np.log(half)


def _inverse_trigamma(value: np.ndarray) -> np.ndarray:
    """Newton's method on 1 / trigamma, which is convex (Smyth 2004, appendix); `value` in [1e-3, 1e6]."""
    x = 0.5 + 1 / value
    for _ in range(30):
        trigamma = polygamma(1, x)
        x = x + trigamma * (1 - trigamma / value) / polygamma(2, x)
    return x


def moderated(
    variance_R: np.ndarray, df_R: np.ndarray, prior: np.ndarray | float, apart_R: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(variance of one training, its degrees of freedom) of each row from its own seeds and the study's. [..., R].

    `prior`: d_0, [...]. Rows with one seed (df 0) take the study's; NaN where no row has two seeds. `apart`: rows that
    have only their own, by default those of `outlying`.
    """
    variance_R = np.asarray(variance_R, dtype=float)
    df_R = np.broadcast_to(np.asarray(df_R, dtype=float), variance_R.shape)
    apart = outlying(variance_R, df_R) if apart_R is None else apart_R
    used = (df_R > 0) & (variance_R > 0) & ~apart
    count = used.sum(-1, keepdims=True)
    log = np.where(used, _log_variance(variance_R, df_R), 0.0).sum(-1, keepdims=True) / np.maximum(count, 1)
    typical = np.where(count > 0, np.exp(log), np.where((df_R > 0).any(-1, keepdims=True), 0.0, np.nan))
    own = np.where(df_R > 0, variance_R, 0.0)
    d_0 = np.where(apart, 0.0, np.asarray(prior, dtype=float)[..., None])
    with np.errstate(divide="ignore", invalid="ignore"):
        v = np.where(d_0 + df_R > 0, (d_0 * typical + df_R * own) / (d_0 + df_R), typical)
    most = np.where(apart, df_R, np.where(apart, 0.0, df_R).sum(-1, keepdims=True))
    return np.maximum(v, own), np.minimum(d_0 + df_R, most)


def combine_variances(
    seeds: np.ndarray, df_seeds: np.ndarray, sentences: np.ndarray, bootstrap: np.ndarray, most: np.ndarray, S: float
) -> tuple[np.ndarray, np.ndarray]:
    """(squared standard error, its degrees of freedom), of differences or contrasts.

    From the variances that seeds and `sentences` add, the whole `bootstrap` variance, and the degrees of freedom of the
    whole study, `most`. NaN degrees of freedom where all seeds gave the same number.
    """
    squared = np.maximum(seeds + sentences, bootstrap)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = seeds / squared
        df = 1 / (share / np.minimum(df_seeds, np.maximum(most, 1)) + (1 - share) / max(S - 1, 1))
    return squared, df


def compare(
    mean_R: np.ndarray,
    variance_R: np.ndarray,
    n_R: np.ndarray,
    noise: SentenceNoise | None = None,
    S: float = np.inf,
    prior: np.ndarray | float | None = None,
    fixed: bool = False,
) -> Differences:
    """Every row against base. `variance_R`: sample variance over seeds (n-1); `noise`: of the S sentences of the test
    set, by default none; `prior`: d_0, by default only from this metric; `fixed`: in base's place, with n = 1, stands a
    number without an error."""
    n_R = np.asarray(n_R, dtype=float)
    noise = noise or SentenceNoise(np.zeros(np.shape(mean_R)), np.zeros(np.shape(mean_R)))
    apart = outlying(variance_R, n_R - 1)
    d_0 = prior_df(np.asarray(variance_R)[..., None, :], n_R - 1, apart[..., None, :]) if prior is None else prior
    v, f = moderated(variance_R, n_R - 1, d_0, apart)
    if fixed:
        v[..., BASE], f[..., BASE] = 0.0, 1.0
    count = np.maximum(n_R, 1)
    part, part_0 = v / count, (v / count)[..., BASE : BASE + 1]
    own, own_0 = noise.own / count, (noise.own / count)[..., BASE : BASE + 1]
    pair = np.maximum(v + v[..., BASE : BASE + 1], noise.own + noise.own[..., BASE : BASE + 1])
    seeds, whole = part + part_0, np.where(apart, 0.0, n_R - 1).sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        df_seeds = seeds**2 / (part**2 / f + part_0**2 / f[..., BASE : BASE + 1])
    squared, df = combine_variances(seeds, df_seeds, noise.shared, noise.shared + own + own_0, whole, S)
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate, se = mean_R - mean_R[..., BASE : BASE + 1], np.sqrt(squared)
        p = 2 * t_sf(np.abs(estimate) / se, df)
    p = np.where(se > 0, p, np.nan)  # seeds that all gave the same number allow no test
    p[..., BASE] = np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        return Differences(estimate, se, df, v, p, pair, noise.shared, np.asarray(d_0, dtype=float)[..., None])


def rank_correlation(x_R: np.ndarray, y_R: np.ndarray) -> Any:
    """Spearman's, over the last axis, ties at their mean rank; NaN where a side is all equal or has a NaN."""
    x_R, y_R = map(_ranks, (x_R, y_R))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (x_R * y_R).sum(-1) / np.sqrt((x_R**2).sum(-1) * (y_R**2).sum(-1))


def _ranks(v_R: np.ndarray) -> np.ndarray:
    """Around their mean, without scipy.stats, which takes a second to import."""
    v_R = np.asarray(v_R, dtype=float)
    own_R1, other_1R = v_R[..., :, None], v_R[..., None, :]
    ranks_R = ((own_R1 > other_1R).sum(-1) - (own_R1 < other_1R).sum(-1)) / 2
    return np.where(np.isnan(v_R).any(-1, keepdims=True), np.nan, ranks_R)


def left_out_error(x_R: np.ndarray, y_R: np.ndarray) -> float:
    """Root mean square of y less the factor times x, the factor through the origin fitted on the other rows."""
    xy_R, xx_R = x_R * y_R, x_R * x_R
    rest_R = xx_R.sum() - xx_R
    factor_R = np.divide(xy_R.sum() - xy_R, rest_R, out=np.zeros_like(rest_R), where=rest_R != 0)
    return float(np.sqrt(np.mean((y_R - factor_R * x_R) ** 2)))
