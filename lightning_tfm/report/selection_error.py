"""What the choice of every row's own value (`sweep --tune`) adds to the error of its difference to base.

The estimand is the row at the value of its grid whose expected log PPL is least. A few tuning seeds may take a
neighbour of it, and no number of reported seeds shows that. The rule:

1. m_v is the log of the row's mean dev PPL over the n_t tuning seeds at value v; sigma^2, the variance of one training,
   that of the row's reported seeds, moderated (stats/statistics.py). A value counts as at most `FAR` sigma above the
   row's least: how far away it diverged, or stayed on a plateau, says nothing of the values near the best.
2. f_v, the response, is quadratic in log v: level and slope are the row's own, by least squares; the curvature is the
   median of the rows' own, at least 0, so that one row on a plateau bends no other. With two values, or values that are
   no positive numbers, f is m.
3. m* ~ N(m, sigma^2 / n_t) is drawn `DRAWS` times. The loss is the mean of (f at the least of m* - the least f)^2: the
   mean square and not the variance, as what is chosen is never better than the best, and a choice that looks certain
   may be off as a whole.
4. The losses of row and base join the squared error of their difference, with `DF` degrees of freedom by their share:
   1 / df = w / df_before + (1 - w) / DF. In other metrics they add as many variances of one training as in log PPL.
5. A row's choice is open where more than `OPEN` of the draws take another value than the row did.

Aimed at: at most 5 % of studies without a difference hold a false row, at 4 and 21 rows, three tuning seeds and three
values or more. Mean square and `DF` were chosen on simulated studies with other random numbers than
benchmarks/results/tuned.txt, which says how often the rule is wrong; `FAR` was chosen after a study had shown the need,
and checked on others (tuned-fresh.txt).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lightning_tfm.report.stats import statistics
from lightning_tfm.report.stats.statistics import BASE, Differences
from lightning_tfm.study.row_tuning import TuningSummary

DRAWS, SEED = 2000, 2017
DF = 4.0
"""degrees of freedom of a loss: how well so few tuning seeds tell it"""
FAR = 10.0
OPEN = 0.05
"""share of the draws that take another value, from which a choice is open"""


@dataclass(frozen=True)
class Choice:
    """Of one row."""

    loss: float
    """mean square in log PPL, over the variance of one training"""
    other: float
    """share of the draws that take another value"""


def row_choices(tuning: TuningSummary | None, log_ppl: Mapping[str, Sequence[float]]) -> dict[str, Choice]:
    """row -> its choice. `log_ppl`: of the reported seeds. Without rows that joined later, or have no variance yet."""
    finite = [row for row in tuning.rows if math.isfinite(min(row.ppl.values()))] if tuning else []
    rows = [row for row in finite if log_ppl.get(row.row)]
    if not tuning or not rows:
        return {}
    seeds = [log_ppl[row.row] for row in rows]
    df_R = np.array([len(x) - 1 for x in seeds])
    variance_R = np.array([np.var(x, ddof=1) if len(x) > 1 else 0.0 for x in seeds])
    variance_R, _ = statistics.moderated(variance_R, df_R, statistics.prior_df(variance_R[None], df_R))
    m_RV = np.log([[row.ppl[str(value)] for value in tuning.values] for row in rows])
    m_RV = np.minimum(m_RV, m_RV.min(1, keepdims=True) + FAR * np.sqrt(variance_R)[:, None])
    taken_R = np.array([tuning.values.index(row.value) for row in rows])
    loss_R, other_R = resample_choices(m_RV, response(m_RV, tuning.values), variance_R / len(tuning.seeds), taken_R)
    choices = zip(rows, loss_R, variance_R, other_R, strict=True)
    return {row.row: Choice(float(loss / v), float(other)) for row, loss, v, other in choices if v > 0}


def response(m_RV: np.ndarray, values: Sequence[Any]) -> np.ndarray:
    """f, at every value."""
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0 for v in values)
    if not numbers or len(values) < 3:
        return m_RV
    x_V = np.log(np.array(values, dtype=float))
    line_VV = np.stack([np.ones_like(x_V), x_V], axis=1)
    line_VV = line_VV @ np.linalg.pinv(line_VV)
    bend_V = x_V**2 - line_VV @ x_V**2
    curvature = max(float(np.median(m_RV @ bend_V / (bend_V @ bend_V))), 0.0)
    return (m_RV - curvature * x_V**2) @ line_VV.T + curvature * x_V**2


def resample_choices(
    m_RV: np.ndarray, f_RV: np.ndarray, variance_R: np.ndarray, taken_R: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(mean square loss, share of the draws that take another value) of every row; the same draws for each."""
    noise_DV = np.random.Generator(np.random.Philox(SEED)).normal(size=(DRAWS, m_RV.shape[1]))
    drawn_RD = np.argmin(m_RV[:, None] + np.sqrt(variance_R)[:, None, None] * noise_DV, axis=-1)
    loss_RD = np.take_along_axis(f_RV, drawn_RD, axis=1) - f_RV.min(1, keepdims=True)
    return (loss_RD**2).mean(1), (drawn_RD != taken_R[:, None]).mean(1)


def add_selection_error(d: Differences, loss_R: np.ndarray) -> Differences:
    """The differences with the error of the choices. `loss_R`: in variances of one training, base first."""
    loss_R = loss_R * d.seed_variance
    more_R = loss_R + loss_R[..., BASE : BASE + 1]
    more_R[..., BASE] = 0.0
    squared_R = d.se**2 + more_R
    with np.errstate(divide="ignore", invalid="ignore"):
        w_R = np.where(squared_R > 0, d.se**2 / squared_R, 1.0)
        df_R = 1 / (w_R / d.df + (1 - w_R) / DF)
        p_R = np.where(squared_R > 0, 2 * statistics.t_sf(np.abs(d.estimate) / np.sqrt(squared_R), df_R), math.nan)
    p_R[..., BASE] = math.nan
    shared_R, part_R = d.shared + more_R, d.seed_part * w_R
    return replace(d, se=np.sqrt(squared_R), df=df_R, p=p_R, shared=shared_R, seed_part=part_R)
