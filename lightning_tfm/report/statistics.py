"""Is a row different from base? Noise of training (seeds) and noise of the test set (sentences) together.

Model. The score of row i, seed s on a test set T:  y_is(T) = mu_i + a_is + g_i(T) + e_is(T).
`a` varies between trainings, `g` between test sets for all seeds of a row alike, `e` for each training on its own. On
the one test set at hand the sample variance of a row over its seeds, s_i^2, already holds a and e. What it misses is g:

    Var(mean_i - mean_0) = v_i / n_i + v_0 / n_0 + Var(g_i - g_0),    v = Var(a) + Var(e)

Sentences: the paired bootstrap (Koehn 2004; all runs on the same resamples) gives Var(g_i - g_0) + Var(e_i) / n_i +
Var(e_0) / n_0 of the difference of means, and Var(e_i) alone from the spread between seeds within each resample; their
difference is Var(g_i - g_0), at least 0. Adding the whole bootstrap variance would count e twice. The sum is never
taken below the bootstrap variance.

Seeds: 3 to 5 seeds of one row are too few for a variance of its own. It is moderated (Smyth 2004): v_i = (d_0 s^2 + d_i
s_i^2) / (d_0 + d_i), with d_i = n_i - 1, the study's mean s^2, and d_0 + d_i degrees of freedom, at most those of the
whole study. d_0 is `PRIOR_DF`, fixed and not estimated: 6 to 20 rows of 2 to 4 degrees of freedom say too little about
it. Its value was chosen on simulated studies, the same that benchmarks/results/verdicts.txt reports: 2 keeps false
verdicts rarer, 3 covers closer to 95 % where rows are alike. What it costs is there too: where rows differ in their
noise by more than a factor 2 either way, or base is noisier than the rows, three seeds give more than 5 % of studies a
false verdict (7 % of 5-row studies at a factor 3; 10 to 13 % with a base of three times the rows' standard deviation).
Degrees of freedom of the sum: Satterthwaite 1946.

Holm 1979 over all rows and both metrics: at most 5 % of studies without a true difference hold any false verdict,
within the limits above.

Arrays may have leading axes (simulated studies); R rows, base first.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

ALPHA = 0.05
POWER = 0.8
PRIOR_DF = 3.0
"""degrees of freedom that the study's mean variance counts for in a row's own"""
BASE = 0


@dataclass(frozen=True)
class SentenceNoise:
    """Of one metric, from the bootstrap, [..., R]; zeros where it is unknown."""

    shared: np.ndarray
    """Var(g_i - g_0): what another test set would do to the difference however many seeds there are"""
    own: np.ndarray
    """Var(e_i): what it does to one training alone"""


@dataclass(frozen=True)
class Differences:
    """Rows against base in one metric, all [..., R]; base itself has estimate 0 and no p."""

    estimate: np.ndarray
    se: np.ndarray
    df: np.ndarray
    seed_variance: np.ndarray
    """moderated, of one training"""
    seed_part: np.ndarray
    """share of the squared standard error"""
    p: np.ndarray
    """two-sided, of this comparison alone"""

    def interval(self, level: float = ALPHA) -> tuple[np.ndarray, np.ndarray]:
        """Of this difference alone (marginal), covering with probability 1 - level."""
        half = stats.t.isf(np.asarray(level) / 2, self.df) * self.se
        return self.estimate - half, self.estimate + half

    def smallest(self, level: np.ndarray | float) -> np.ndarray:
        """The true difference that a test at `level` finds with probability POWER, at these standard errors."""
        return (stats.t.isf(np.asarray(level) / 2, self.df) + stats.t.ppf(POWER, self.df)) * self.se


def sentence_noise(boot_RB: np.ndarray, row_R: np.ndarray, rows: int, S: int) -> SentenceNoise:
    """From the scores of all runs on resampled test sets. `row_R`: the row of each run; base is row 0.

    A row without runs has zeros.
    """
    B = boot_RB.shape[1]
    unbias = S / (S - 1) if S > 1 else 1.0  # a resample of S sentences has (S-1)/S of their variance
    centred = boot_RB - boot_RB.mean(1, keepdims=True)
    means, own, n = np.zeros((rows, B)), np.zeros(rows), np.bincount(row_R, minlength=rows)
    for i in range(rows):
        mine = centred[row_R == i]
        if len(mine):
            means[i] = mine.mean(0)
        if len(mine) > 1:
            own[i] = mine.var(0, ddof=1).mean() * B / (B - 1) * unbias
    whole = (means - means[BASE]).var(1, ddof=1) * unbias
    count = np.maximum(n, 1)
    shared = np.maximum(whole - own / count - own[BASE] / count[BASE], 0.0)
    shared[BASE] = 0.0
    return SentenceNoise(np.where(n > 0, shared, 0.0), own)


def moderated(variance_R: np.ndarray, df_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(variance of one training, its degrees of freedom) of each row from its own seeds and the study's. [..., R].

    Rows with one seed (df 0) take the study's; NaN where no row has two seeds.
    """
    df_R = np.broadcast_to(np.asarray(df_R, dtype=float), np.shape(variance_R))
    whole = df_R.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(df_R > 0, df_R * variance_R, 0.0).sum(-1, keepdims=True) / whole
    own = np.where(df_R > 0, df_R * variance_R, 0.0)
    return (PRIOR_DF * mean + own) / (PRIOR_DF + df_R), np.minimum(PRIOR_DF + df_R, whole)


def compare(
    mean_R: np.ndarray, variance_R: np.ndarray, n_R: np.ndarray, noise: SentenceNoise, S: float = np.inf
) -> Differences:
    """Every row against base. `variance_R`: sample variance over seeds (n-1); `S`: sentences of the test set."""
    n_R = np.asarray(n_R, dtype=float)
    v, f = moderated(variance_R, n_R - 1)
    count = np.maximum(n_R, 1)
    part, part_0 = v / count, (v / count)[..., BASE : BASE + 1]
    own, own_0 = noise.own / count, (noise.own / count)[..., BASE : BASE + 1]
    squared = np.maximum(part + part_0 + noise.shared, noise.shared + own + own_0)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = part**2 / f + part_0**2 / f[..., BASE : BASE + 1] + (squared - part - part_0) ** 2 / max(S - 1, 1)
        df = np.minimum(squared**2 / spread, np.maximum((np.broadcast_to(n_R, v.shape) - 1).sum(-1, keepdims=True), 1))
        estimate, se = mean_R - mean_R[..., BASE : BASE + 1], np.sqrt(squared)
        p = 2 * stats.t.sf(np.abs(estimate) / se, df)
    p = np.where(se > 0, p, np.nan)  # seeds that all gave the same number allow no test
    p[..., BASE] = np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        return Differences(estimate, se, df, v, (part + part_0) / squared, p)


def holm(p_M: np.ndarray) -> np.ndarray:
    """Adjusted p-values over the last axis (Holm 1979); NaN are no part of the family and stay NaN."""
    p_M = np.asarray(p_M, dtype=float)
    order = np.argsort(p_M, axis=-1, kind="stable")  # NaN last
    m = (~np.isnan(p_M)).sum(-1, keepdims=True)
    ranked = np.take_along_axis(p_M, order, -1) * np.maximum(m - np.arange(p_M.shape[-1]), 1)
    ranked = np.minimum(np.maximum.accumulate(ranked, axis=-1), 1.0)
    adjusted = np.empty_like(ranked)
    np.put_along_axis(adjusted, order, ranked, -1)
    return adjusted


def open_level(adjusted_M: np.ndarray, alpha: float = ALPHA) -> np.ndarray:
    """The level of Holm's last test, the first that does not reject: alpha / number still open, [..., 1]."""
    still = (~np.isnan(adjusted_M) & ~(adjusted_M < alpha)).sum(-1, keepdims=True)
    return alpha / np.maximum(still, 1)


def spearman(x: np.ndarray, y: np.ndarray, level: float = ALPHA) -> tuple[float, float, float] | None:
    """Rank correlation with its interval (Fisher's z with the variance of Bonett and Wright 2000).

    None below 5 pairs, or where all values of a side are equal.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if len(x) < 5 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    r = float(np.clip(stats.spearmanr(x, y).statistic, -1.0, 1.0))
    if abs(r) > 1 - 1e-12:
        z = np.arctanh(np.copysign(1 - 1 / len(x) ** 2, r))  # arctanh(1) is infinite
    else:
        z = np.arctanh(r)
    half = stats.norm.isf(level / 2) * np.sqrt((1 + r * r / 2) / (len(x) - 3))
    low, high = float(np.tanh(z - half)), float(np.tanh(z + half))
    return r, min(low, r), max(high, r)
