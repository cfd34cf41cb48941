"""Is it base that stands apart? Every comparison shares base's seeds, and no test of a difference can tell whose fault
it is: where base alone has seeds on a plateau, every row looks better, or worse, at once. Two signs can be seen.

two levels      the widest gap between neighbouring seeds of base is more than `GAP` times the larger of two standard
                deviations: within the two levels that it makes of base's seeds (n - 2 degrees of freedom), and the
                median row's (of log s^2, unbiased for log sigma^2)
shifted alike   three rows or more, which agree with one another (their means weighted by n / v, v moderated: p of the
                spread, by F, above `AGREE`), while base is away from their mean by Welch's t at p below `SHIFTED`

Both are warnings, and change no verdict: rows that all have the same true effect look like the second. How often they
are given, rightly and wrongly: benchmarks/results/judge.txt, docs/judge-method.md. Arrays may have leading axes.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import fdtrc

from lightning_tfm.report.stats.statistics import BASE, LEAST, Differences, _log_variance, compare, t_sf

GAP, AGREE, SHIFTED = 6.5, 0.05, 0.01
FEWEST = 4
"""seeds of base for two levels"""
CHEAPEST = "every comparison shares base's seeds, so that more seeds of base cost less than anything else"


def why(values: Sequence[Sequence[float]], base: str) -> str:
    """A clause on why base may be what stands apart, empty where nothing says so. `values`: the scores of each row as
    they are tested, base first; rows with too few for a verdict do not count."""
    if len(values[0]) < LEAST:
        return ""
    rows = [np.asarray(x) for x in values if len(x) >= LEAST]
    mean_R, n_R = np.array([x.mean() for x in rows]), np.array([len(x) for x in rows])
    variance_R = np.array([x.var(ddof=1) for x in rows])
    if len(rows) > 1 and two_levels(rows[0], variance_R, n_R):
        return f"the seeds of {base} lie on two levels"
    if shifted_alike(mean_R, n_R, compare(mean_R, variance_R, n_R)):
        return f"all rows are away from {base} alike, and agree with one another"
    return ""


def warning(base: str, why: str) -> list[str]:
    """A sentence, `why` being a reason; none where there is none."""
    return [f"{base} may be what stands apart: {why}; {CHEAPEST}"] * bool(why)


def two_levels(base_n: np.ndarray, variance_R: np.ndarray, n_R: np.ndarray) -> np.ndarray:
    """Whether base's seeds lie on two levels, [...]. `base_n`: its scores, [..., n]; variances of all rows."""
    n = base_n.shape[-1]
    if n < FEWEST:
        return np.zeros(base_n.shape[:-1], dtype=bool)
    order = np.sort(base_n, axis=-1)
    gaps = np.diff(order, axis=-1)
    split = gaps.argmax(-1)[..., None]
    low = np.arange(n) <= split
    within = sum(_squares(np.where(side, order, np.nan)) for side in (low, ~low)) / (n - 2)
    others = np.where((n_R > 1) & (variance_R > 0), _log_variance(variance_R, np.maximum(n_R - 1, 1)), np.nan)
    typical = np.exp(_median(others[..., 1:]))
    return np.asarray(gaps.max(-1) > GAP * np.sqrt(np.fmax(within, typical)))


def shifted_alike(mean_R: np.ndarray, n_R: np.ndarray, d: Differences) -> np.ndarray:
    """Whether all rows are away from base alike, [...]. `d`: their differences; rows without a p do not count."""
    used = ~np.isnan(d.p)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(used, n_R / d.seed_variance, 0.0)
        whole = weight.sum(-1)
        middle = np.where(used, weight * mean_R, 0.0).sum(-1) / whole
        spread = np.where(used, weight * (mean_R - middle[..., None]) ** 2, 0.0).sum(-1)
        count, df = used.sum(-1), np.where(used, n_R - 1, 0).sum(-1)
        agree = fdtrc(np.maximum(count - 1, 1), np.maximum(df, 1), spread / np.maximum(count - 1, 1)) > AGREE
        v_0, n_0 = d.seed_variance[..., BASE], n_R[..., BASE]
        t = np.abs(mean_R[..., BASE] - middle) / np.sqrt(v_0 / n_0 + 1 / whole)
        return np.asarray((count >= 3) & agree & (2 * t_sf(t, n_0 - 1 + d.prior[..., 0]) < SHIFTED))


def _squares(x: np.ndarray) -> np.ndarray:
    count = np.maximum((~np.isnan(x)).sum(-1), 1)
    middle = np.nansum(x, -1) / count
    return np.asarray(np.nansum((x - middle[..., None]) ** 2, -1))


def _median(x: np.ndarray) -> np.ndarray:
    """Over the last axis, NaN left out; NaN where all are."""
    count = (~np.isnan(x)).sum(-1, keepdims=True)
    order = np.sort(x, axis=-1)
    low, high = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, x.shape[-1] - 1)
    return ((np.take_along_axis(order, low, -1) + np.take_along_axis(order, high, -1)) / 2)[..., 0]
