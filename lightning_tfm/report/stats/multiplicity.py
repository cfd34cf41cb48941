"""Corrections for several tests at once. NaN are not part of a family and stay NaN. Families are on the last axis.

Holm 1979 bounds the chance of any false rejection in the family. Benjamini and Hochberg 1995 bound the expected share
of false ones among the rejections (false discovery rate), which without any true difference is the same thing.
"""

from collections.abc import Sequence

import numpy as np

from lightning_tfm.report.stats.statistics import ALPHA


def holm(p_M: np.ndarray) -> np.ndarray:
    """Adjusted p-values by Holm: max over j <= i of (m - j + 1) p_(j), at most 1."""
    order, ranked, m = _ranks(p_M)
    factor = np.maximum(m - np.arange(ranked.shape[-1]), 1)
    return _in_original_order(order, np.minimum(np.maximum.accumulate(ranked * factor, axis=-1), 1.0))


def benjamini_hochberg(p_M: np.ndarray) -> np.ndarray:
    """Adjusted p-values by Benjamini and Hochberg: min over j >= i of m p_(j) / j, at most 1."""
    order, ranked, m = _ranks(p_M)
    scaled = np.where(np.isnan(ranked), np.inf, ranked * m / np.arange(1, ranked.shape[-1] + 1))
    lowest = np.minimum.accumulate(scaled[..., ::-1], axis=-1)[..., ::-1]
    return _in_original_order(order, np.where(np.isnan(ranked), np.nan, np.minimum(lowest, 1.0)))


def corrected_p_values(p: Sequence[float | None]) -> list[float | None]:
    """`benjamini_hochberg` of those that are known."""
    corrected = benjamini_hochberg(np.array([np.nan if value is None else value for value in p]))
    return [None if np.isnan(value) else float(value) for value in corrected]


def next_level(adjusted_M: np.ndarray, alpha: float = ALPHA) -> np.ndarray:
    """The level that one more rejection by Benjamini and Hochberg has to reach: (rejected + 1) alpha / m, [..., 1]."""
    m = (~np.isnan(adjusted_M)).sum(-1, keepdims=True)
    rejected = (adjusted_M < alpha).sum(-1, keepdims=True)
    return alpha * np.minimum(rejected + 1, m) / np.maximum(m, 1)


def _ranks(p_M: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(order, p in ascending order with NaN last, size of the family)."""
    p_M = np.asarray(p_M, dtype=float)
    order = np.argsort(p_M, axis=-1, kind="stable")
    return order, np.take_along_axis(p_M, order, -1), (~np.isnan(p_M)).sum(-1, keepdims=True)


def _in_original_order(order: np.ndarray, ranked: np.ndarray) -> np.ndarray:
    adjusted = np.empty_like(ranked)
    np.put_along_axis(adjusted, order, ranked, -1)
    return adjusted
