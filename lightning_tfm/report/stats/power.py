"""What a test at these seeds could have found, and how many seeds it would take. Both take the noise as estimated.

All of it is planning, nothing here decides: approximate power of Student's t whose standard error is estimated too.
"""

import numpy as np
from scipy.special import gammaincinv, gammaln, ndtri

from lightning_tfm.report.stats.statistics import BASE, Differences, t_isf, t_sf

POWER = 0.8
"""aimed at; the noise being estimated from few seeds, what is printed is found in 64 to 79 % of replicates instead
(benchmarks/results/verdicts.txt)"""
ABOUT = 0.7
"""what may be said of it"""
CERTAIN = 2 / 3
"""of the degrees of freedom, for the power: chosen on simulated studies"""
MOST = 500
"""seeds; beyond it the number is not worth naming"""


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
    for n in _numbers():
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


def _numbers() -> list[int]:
    """2, 3, … 20, then in steps of about 5 % up to `MOST`."""
    return [n for n in range(2, MOST + 1) if n <= 20 or n in _COARSE]


_COARSE = frozenset(round(20 * 1.05**k) for k in range(67)) | {MOST}
