"""What a test says of each row: corrected over the rows of a metric, with what more seeds would do. [R], base first."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np

from lightning_tfm.report.stats import power, statistics
from lightning_tfm.report.stats.multiplicity import benjamini_hochberg, holm, next_level
from lightning_tfm.report.stats.statistics import ALPHA, Differences, Estimate

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
    difference = power.needed(d, np.abs(d.estimate), level / 2)
    absence = power.needed(d, tau - np.abs(d.estimate), alpha, 0.9)
    return {
        "smallest": power.smallest(d, level),
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
    se, df = power.ahead(d, last)
    edge, narrow, one_sided = (statistics.t_isf(a * share, df) * se for a in (ALPHA / 2, ALPHA, SMALLER_ALPHA))
    above = partial(power.chance_above, d, n_R, last)
    chance = above(edge) + 1 - above(-edge)
    inside = np.maximum(above(narrow - tau) - above(tau - narrow), 0.0)
    bound = 0.5 * np.abs(printed_R) - one_sided
    smaller = np.where(printed_R < 0, above(-bound), 1 - above(bound))
    clear = full_size & (np.abs(printed_R) > tau)
    return chance + np.where(equal_R, inside, np.where(clear, smaller, 0.0))
