"""Which value every row of a tuned study took (`sweep --tune`), of how many, what the choice cost, and what it adds to
the error of the row's difference to base.

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

from lightning_tfm.report.blocks import NOTHING, Block, Notes, Section, Table, Text, columns
from lightning_tfm.report.records import Cells
from lightning_tfm.report.stats import statistics
from lightning_tfm.report.stats.statistics import BASE, Differences
from lightning_tfm.report.summary import Analysis, Summary
from lightning_tfm.study.row_tuning import TuningSummary, at_edge


def find(cells: Cells, report: Summary) -> TuningSummary | None:
    """With how open every choice is, by the noise of the table's rows."""
    tuning, rows = cells.tuning, [*report.rows, *(report.hidden or [])]
    if tuning is None:
        return None
    choices = row_choices(tuning, {row.name: [math.log(x) for x in row.ppl.by_seed.values()] for row in rows})
    return replace(
        tuning, rows=[replace(r, other=choices[r.row].other) if r.row in choices else r for r in tuning.rows]
    )


def notes(tuning: TuningSummary, report: Summary) -> list[str]:
    tried, seeds = ", ".join(map(str, tuning.values)), ", ".join(map(str, tuning.seeds))
    not_tuned = [row.name for row in report.rows if row.name not in {tuned.row for tuned in tuning.rows}]
    rows = "every row" + f" but {', '.join(not_tuned)}" * bool(not_tuned)
    return [
        f"tuned: {rows} at its best {tuning.key} of {len(tuning.values)} ({tried}), chosen by dev PPL at seed "
        f"{seeds}, apart from the seeds shown; {cost(tuning)}",
        "tuned: " + "; ".join(f"{value} for {', '.join(names)}" for value, names in _rows_by_value(tuning).items()),
        *_how_sure(tuning),
    ]


def _how_sure(tuning: TuningSummary) -> list[str]:
    """Which choices are open, and what intervals and p hold of it."""
    if all(row.other is None for row in tuning.rows):
        return []
    is_open = [f"{row.row} ({100 * row.other:.0f} %)" for row in tuning.rows if row.other and row.other > OPEN]
    certainty = (
        f"uncertain for {', '.join(is_open)}, the estimated chance that other seeds would choose otherwise"
        if is_open
        else "clear"
    )
    return [f"tuned: the choice is {certainty}; its error is part of intervals and p of the differences"]


def cost(tuning: TuningSummary) -> str:
    """Of the choice, in words."""
    if tuning.runs is None or tuning.seconds is None or tuning.flops is None:
        return f"its runs are from the study {tuning.study}"
    return f"the choice took {tuning.runs} runs, {tuning.seconds:,.0f} s and {tuning.flops:.2e} FLOPs ({tuning.study})"


def _rows_by_value(tuning: TuningSummary) -> dict[str, list[str]]:
    """Value in words -> the rows that took it."""
    rows_by_value: dict[str, list[str]] = {}
    for value in tuning.values:
        names = [row.row for row in tuning.rows if row.value == value]
        if names:
            edge = " (at the edge of what was tried)" * at_edge(value, tuning.values)
            rows_by_value[f"{value}{edge}"] = names
    return rows_by_value


def best_of(tuning: TuningSummary, row: str) -> Any:
    """The value that a row took; None where the row joined later."""
    return next((tuned.value for tuned in tuning.rows if tuned.row == row), None)


def sections(tuning: TuningSummary, report: Summary) -> list[Section]:
    about = [
        "mean over the tuning seeds",
        "the cost covers every value tried for every row, before the first of the seeds that are shown",
    ]
    blocks: list[Block] = [Text(notes(tuning, report)), table(tuning), Notes(about)]
    return [Section("tuning", "How every row was tuned", blocks, after="verdicts")]


def table(tuning: TuningSummary) -> Table:
    """Mean dev PPL of every row at every value."""
    ppl = [[row.ppl.get(str(value)) for value in tuning.values] for row in tuning.rows]
    rows = [
        [f"{row.row}: {row.value}", *(NOTHING if value is None else f"{value:.4g}" for value in line)]
        for row, line in zip(tuning.rows, ppl, strict=True)
    ]
    title = f"Dev PPL by row and its choice (down) and {tuning.key} (across), seed {', '.join(map(str, tuning.seeds))}"
    return Table(title, columns("", *map(str, tuning.values)), rows)


# --- the error of a choice ---

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
    return replace(d, se=np.sqrt(squared_R), df=df_R, p=p_R, shared=d.shared + more_R)


ANALYSIS = Analysis(
    key="tuning",
    find=find,
    sections=sections,
    notes=notes,
    notes_on_page=False,
    notes_in_latex=True,
    brief=notes,
    without_tests=True,
)
