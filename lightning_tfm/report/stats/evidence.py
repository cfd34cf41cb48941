"""What a test says of each row: corrected over the rows of a metric, with what more seeds would do. [R], base first."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np
from scipy.special import gammaincinv, gammaln, ndtri

from lightning_tfm.report.stats import statistics
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg, holm, next_level
from lightning_tfm.report.stats.statistics import ALPHA, BASE, Differences, Estimate, t_isf, t_sf

SMALLER_ALPHA = 0.01
APART = {"key": ""}
"""of a field that is not in JSON: the row has it already"""


@dataclass(frozen=True)
class Evidence(Estimate):
    """One row's difference to base in one metric, in the metric's own direction: log PPL (lower is better) or BLEU.

    All p are divided by the look's share of the level where the results were looked at more than once; NaN: no test.
    """

    n: int = field(metadata=APART)
    n_base: int = field(metadata=APART)
    lower: float = math.nan
    upper: float = math.nan
    """the marginal 95 % interval; after looks at Summary.interval_level, which is wider"""
    p: float = math.nan
    """adjusted over the rows of this metric by Benjamini and Hochberg: decides"""
    holm: float = math.nan
    """adjusted over the same rows by Holm"""
    equivalent: float = math.nan
    """of a difference inside ± tau"""
    half: float = math.nan
    """of a difference below half the paper's, in the paper's direction"""
    smallest: float = math.nan
    """true difference that would have been found with a probability of about 70 %"""
    needed: float = math.nan
    """seeds of it and of base that would decide it if the difference is as estimated"""
    prospect: float = math.nan
    """chance that the last look will decide it, predicted from this one"""
    untested: str = field(default="", metadata=APART)
    """why there was no test"""


NUMBERS = tuple(f.name for f in fields(Evidence) if f.metadata != APART)
"""what a report holds of it"""


def untested_evidence(estimate: float, n: int, n_base: int, why: str) -> Evidence:
    """An estimate without a test."""
    return Evidence(estimate, math.nan, math.nan, n, n_base, untested=why)


INTERVAL = ("se", "df", "lower", "upper")
"""what is known of a row with too few seeds for a verdict"""


def fields_of(numbers: Mapping[str, np.ndarray], i: int, tested: bool) -> dict[str, Any]:
    """Row i's fields of Evidence: of a row that was tested all of them, else its interval."""
    known = {k: float(x_R[i]) for k, x_R in numbers.items() if tested or k in INTERVAL}
    return known | ({"untested": ""} if tested else {})


def significance_fields(
    d: Differences, p_R: np.ndarray, printed_R: np.ndarray, tau: float, share: float
) -> dict[str, np.ndarray]:
    """The fields of Evidence that come from a test. `printed_R`: NaN where the paper has no number."""
    alpha, adjusted = ALPHA * share, benjamini_hochberg(p_R)
    low, high = d.interval(alpha)
    half = np.where(printed_R < 0, d.above(0.5 * printed_R), d.below(0.5 * printed_R))
    return {
        "se": d.se,
        "df": d.df,
        "lower": low,
        "upper": high,
        "p": np.minimum(adjusted / share, 1.0),
        "holm": np.minimum(holm(p_R) / share, 1.0),
        "equivalent": np.minimum(d.equivalence(tau) / share, 1.0),
        "half": np.minimum(half / share, 1.0),
    }


def planning_fields(
    d: Differences, adjusted_R: np.ndarray, equal_R: np.ndarray, tau: float, share: float
) -> dict[str, np.ndarray]:
    """The fields of Evidence that say what other seeds would do. `equal_R`: rows that a word may call equal to base."""
    alpha = ALPHA * share
    level = next_level(adjusted_R, alpha)
    difference = needed(d, np.abs(d.estimate), level / 2)
    absence = needed(d, tau - np.abs(d.estimate), alpha, 0.9)
    return {
        "smallest": smallest(d, level),
        "needed": np.where(equal_R, np.minimum(difference, absence), difference),
    }


def may_be_equal(printed_R: np.ndarray, tau: float, same_unit: bool) -> np.ndarray:
    """Rows of which a verdict may say that they do not differ: those without a clear printed difference; where ours has
    no unit in common with the paper's, those without any."""
    return ~(np.abs(printed_R) > tau) & (same_unit | np.isnan(printed_R)) & np.isfinite(tau)


def conditional_power(
    d: Differences,
    n_R: np.ndarray,
    printed_R: np.ndarray,
    equal_R: np.ndarray,
    tau: float,
    full_size: bool,
    last: int,
    share: float,
) -> np.ndarray:
    """Chance that the last look, at `last` seeds and this share of the level, decides a row, predicted from this one.

    An upper limit: as if every other row were found by then, so that the correction left the level unchanged.
    """
    se, df = ahead(d, last)
    edge, narrow, one_sided = (statistics.t_isf(a * share, df) * se for a in (ALPHA / 2, ALPHA, SMALLER_ALPHA))
    above = partial(chance_above, d, n_R, last)
    chance = above(edge) + 1 - above(-edge)
    inside = np.maximum(above(narrow - tau) - above(tau - narrow), 0.0)
    bound = 0.5 * np.abs(printed_R) - one_sided
    smaller = np.where(printed_R < 0, above(-bound), 1 - above(bound))
    clear = full_size & (np.abs(printed_R) > tau)
    return chance + np.where(equal_R, inside, np.where(clear, smaller, 0.0))


# --- what a test at these seeds could have found, and how many seeds it would take: planning, nothing here decides.
# Approximate power of Student's t whose standard error is estimated too; both take the noise as estimated. ---

POWER = 0.8
"""aimed at; the noise being estimated from few seeds, what is printed is found in 64 to 79 % of replicates instead
(benchmarks/results/verdicts.txt)"""
ABOUT = 0.7
"""what may be said of it"""
CERTAIN = 2 / 3
"""of the degrees of freedom, for the power: chosen on simulated studies"""
MOST = 500
"""seeds; beyond it the number is not worth naming"""
TRIED = sorted({*range(2, 21), *(round(20 * 1.05**k) for k in range(66)), MOST})
"""numbers of them: 2, 3, … 20, then in steps of about 5 %"""


def smallest(d: Differences, level: np.ndarray | float) -> np.ndarray:
    """The true difference that a two-sided test at `level` would find with probability of about `ABOUT`.

    The normal approximation to the noncentral t (Johnson and Welch 1940), at `CERTAIN` of the degrees of freedom, as
    they are themselves estimated. The standard error is taken at its median.
    """
    t, half = t_isf(np.asarray(level) / 2, d.df), CERTAIN * d.df / 2
    with np.errstate(invalid="ignore"):
        typical = np.exp(gammaln(half + 0.5) - gammaln(half)) / np.sqrt(half)
        needed = t * typical + ndtri(POWER) * np.sqrt(1 + t**2 * (1 - typical**2))
        return needed * d.se / np.sqrt(2 * gammaincinv(d.df / 2, 0.5) / d.df)


def ahead(d: Differences, n: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """(standard error, degrees of freedom) that `n` seeds of each row and of base would have, at today's variances."""
    v, v_0 = d.seed_variance, d.seed_variance[..., BASE : BASE + 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        welch = (v + v_0) ** 2 / (v**2 + v_0**2)
        return np.sqrt(d.pair_variance / n + d.shared), welch * (d.prior + n - 1)


def needed(d: Differences, gap: np.ndarray, tail: np.ndarray | float, power: float = POWER) -> np.ndarray:
    """Seeds of each row and of base at which a one-sided test at `tail` finds a true gap with probability `power`.

    The smallest n with (t_tail + z_power) se(n) <= gap; infinite where `gap` is not positive or `MOST` are too few.
    """
    gap = np.asarray(gap, dtype=float)
    seeds = np.full(np.broadcast(gap, d.se).shape, np.inf)
    for n in TRIED:
        se, df = ahead(d, n)
        with np.errstate(invalid="ignore"):
            enough = (t_isf(tail, df) + ndtri(power)) * se <= gap
        seeds = np.where(enough & np.isinf(seeds), n, seeds)
    return seeds


def chance_above(d: Differences, n: np.ndarray, last: float, bound: np.ndarray | float) -> np.ndarray:
    """Chance that the estimate from `last` seeds will exceed `bound`, given the one from `n` seeds of row and base.

    Predicted with a flat prior: the estimate to come scatters about today's with the variance of one pair of trainings
    times (1 / n - 1 / last), by Student's t at today's degrees of freedom.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(d.pair_variance * np.maximum(1 / np.maximum(n, 1) - 1 / last, 0.0))
        return t_sf((bound - d.estimate) / spread, d.df)
