"""What a row is worth in compute: how many times as long base would have to train for the same perplexity.

Curves are means over seeds of log PPL (geometric means of perplexities) at the validations that all seeds have,
straight between them in the logarithm of the step. With t(L) the first step at which a curve has come down to L, T the
steps of base and T' those of the row, the compute multiplier in steps is

    m = T / t_row(L_base(T))      where the row ends below base,
    m = t_base(L_row(T')) / T'    where it ends above,

and in FLOPs m times (FLOPs of a step of base) / (FLOPs of a step of the row). Above 1 the row learns with less.

    se(log m) = se(difference) / |slope|,    slope = d log PPL / d log step of the curve that is crossed,

from the validation before the crossed segment to the one after it, since a single segment near the end falls by little
more than its noise. The interval is that of the difference in log PPL (report/significance.py: moderated t, looks,
sentences) divided by it: log m ± (upper - lower) / (2 |slope|). It has no ends where the curve does not fall there.

Nothing is extrapolated: where a curve is at L already at its first validation, m is a bound. Rows with another schedule
are marked, and curves crossed while their rate is still on its way to zero: a training of just those steps would end
lower. No multiplier: of base, of rows that are another row, that diverged, have other pieces, lack a curve to the end,
or are scored with other weights than those of their curve. How often the interval covers: benchmarks/results/worth.txt.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from lightning_tfm.plural_words import signed
from lightning_tfm.report.records import Cells
from lightning_tfm.report.summary import Analysis, Multiplier, Summary, SummaryRow
from lightning_tfm.study.expressions import SOLVE
from lightning_tfm.study.study import Ablation

SCHEDULE = ("steps", "warmup", "lr_factor", "schedule", "cooldown")
"""fields of the training by which the rate at a step is another"""
COVERAGE = "intervals of 95 % cover 90 to 97 % in simulated studies"
"""benchmarks/results/worth.txt"""
SAME = 1e-3
"""of log PPL: up to there a curve's end is the score"""


@dataclass(frozen=True)
class MeanCurve:
    """Dev loss in the course of training, [V] each, the last at the end."""

    log_step_V: np.ndarray
    log_ppl_V: np.ndarray
    to_zero: bool = False
    """its rate comes to zero at its end, so that in mid-course it is not a shorter training"""


@dataclass(frozen=True)
class Crossing:
    """Where a curve first comes down to a level."""

    log_step: float
    """of the first validation if it is already there: then the crossing is before it"""
    slope: float
    """d log PPL / d log step around it"""
    before: bool = False


def with_worth(
    rows: Sequence[SummaryRow],
    study: Ablation,
    curves: Mapping[tuple[str, int], Mapping[int, float]],
    against: str | None,
) -> list[SummaryRow]:
    """The rows with their multipliers to the row `against`. `curves`: (row, seed) -> step -> dev perplexity."""
    trainings = {row.name: study.exact(row).training for row in study.every_row}
    base = next((row for row in rows if row.name == against), None)

    def curve_of(row: SummaryRow) -> MeanCurve | None:
        curve = mean_curve(row, curves)
        return curve and replace(curve, to_zero=trainings[row.name].schedule != "inverse_sqrt")

    if base is None or (base_curve := curve_of(base)) is None:
        return list(rows)
    without = {base.name, *study.foreign(against)}

    def weighed(row: SummaryRow) -> SummaryRow:
        curve = None if row.same_as or row.name in without else curve_of(row)
        if curve is None:
            return row
        other = any(getattr(trainings[row.name], f) != getattr(trainings[base.name], f) for f in SCHEDULE)
        d = row.ppl.difference
        half = None if d is None or d.lower is None or d.upper is None else (d.upper - d.lower) / 2
        steps = multiplier(base_curve, curve, half, other)
        if not base.flops or not row.flops:
            return replace(row, worth=steps)
        per_step = base.flops / row.flops * math.exp(curve.log_step_V[-1] - base_curve.log_step_V[-1])
        return replace(row, worth=steps, worth_flops=times(steps, per_step))

    return [weighed(row) for row in rows]


def mean_curve(row: SummaryRow, curves: Mapping[tuple[str, int], Mapping[int, float]]) -> MeanCurve | None:
    """Over all scored seeds of the row; None where one has no curve to the end, or another one than its score."""
    own = [curves.get((row.name, int(seed)), {}) for seed in row.ppl.by_seed]
    shared = sorted(set.intersection(*(set(curve) for curve in own))) if own else []
    if len(shared) < 2 or shared[-1] != row.values["train steps"] or shared[0] < 1:
        return None
    log_ppl_V = np.array([fmean(math.log(curve[step]) for curve in own) for step in shared])
    if abs(log_ppl_V[-1] - fmean(math.log(ppl) for ppl in row.ppl.by_seed.values())) > SAME:
        return None
    return MeanCurve(np.log(shared), log_ppl_V)


def multiplier(base: MeanCurve, row: MeanCurve, half: float | None, other_schedule: bool = False) -> Multiplier:
    """In steps. `half`: of the interval of the difference in log PPL; None for no interval."""
    better = row.log_ppl_V[-1] <= base.log_ppl_V[-1]
    crossed, other = (row, base) if better else (base, row)
    at = crossing(crossed, float(other.log_ppl_V[-1]))
    ratio = float(other.log_step_V[-1]) - at.log_step
    log_m = ratio if better else -ratio
    m, marked = math.exp(log_m), other_schedule or crossed.to_zero
    if at.before:
        return Multiplier(None, m if better else None, None if better else m, marked)
    if half is None or not at.slope < 0:
        return Multiplier(m, None, None, marked)
    wide = half / -at.slope
    low, high = (math.exp(min(x, 700.0)) for x in (log_m - wide, log_m + wide))
    return Multiplier(m, low, high, marked)


def crossing(curve: MeanCurve, level: float) -> Crossing:
    """Where a curve that ends at or below `level` first comes down to it."""
    x, y = curve.log_step_V, curve.log_ppl_V
    i = int(np.argmax(y <= level))
    start, end = max(i - 2, 0), min(i + 1, len(x) - 1)
    slope = float((y[end] - y[start]) / (x[end] - x[start]))
    if i == 0:
        return Crossing(float(x[0]), slope, before=True)
    share = (y[i - 1] - level) / (y[i - 1] - y[i])
    return Crossing(float(x[i - 1] + share * (x[i] - x[i - 1])), slope)


def times(worth: Multiplier, factor: float) -> Multiplier:
    """All its numbers times `factor`."""
    m, low, high = (None if x is None else factor * x for x in (worth.estimate, worth.lower, worth.upper))
    return Multiplier(m, low, high, worth.marked)


def find(cells: Cells, report: Summary) -> list[str] | None:
    """What the multipliers mean, where any row has one, and what was solved for in rows that cost as much as base."""
    multipliers = [worth for row in report.rows if (worth := row.worth) is not None]
    if not multipliers:
        return solved_size_notes(report.rows) or None
    parts = [
        f"compute: the compute multiplier, {report.to}'s steps to the row's perplexity divided by the row's own steps, "
        "read off the dev curves; over seeds",
        *[COVERAGE] * any(m.estimate is not None and m.lower is not None for m in multipliers),
        *["> and <: beyond the first validation"] * any(m.estimate is None for m in multipliers),
        *["*: another schedule, or a rate still on its way to zero where the curve is read"]
        * any(m.marked for m in multipliers),
    ]
    return ["; ".join(parts), *solved_size_notes(report.rows)]


def solved_size_notes(rows: Sequence[SummaryRow]) -> list[str]:
    """Of rows with a size solved for (study/expressions.py): what their runs cost beyond base's, by kind."""
    base = next((row for row in rows if row.base), None)
    rows_by_size: dict[str, list[str]] = {}
    for row in rows:
        for key, asked in row.ties.items():
            if base is None or not isinstance(asked, dict) or SOLVE not in asked:
                continue
            own, of_base = (getattr(x, asked[SOLVE]) for x in (row, base))
            left = f" ({signed(100 * (own / of_base - 1), 2)} %)" if own and of_base else ""
            rows_by_size.setdefault(f"{key} solved for base's {asked[SOLVE]}", []).append(f"{row.name}{left}")
    return [f"{what}: {', '.join(names)}" for what, names in rows_by_size.items()]


ANALYSIS = Analysis(
    key="worth",
    find=find,
    notes=lambda lines, report: lines,
    notes_in_latex=True,
    brief=lambda lines, report: [] if report.tested else lines,
    json=False,
    without_tests=True,
)
