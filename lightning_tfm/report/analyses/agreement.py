"""How far a study's rows, taken together, agree with the paper's Table 3, each figure beside what needs no experiment.

Each row is a difference to base as tested, in log PPL first; ours is the mean of seeds, the paper's one run.

- Signs on the clear rows, those where two single runs of the paper differ by more than their noise (`Metric.clear`),
  beside the rule "every change is worse".
- Spearman's rank correlation of the two, beside that of the bare parameter count (more parameters, better score) with
  the paper; also at every validation of base, from the curves: rows are compared at the same share of their training.
- The error in size: what a factor through the origin, fitted on the other rows, leaves of each row's difference in the
  paper (root mean square, a row left out at a time), beside that of log parameters and of no difference at all.

Pure functions of the table and the curves. Suffixes: R rows, V validations.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import numpy as np

from lightning_tfm.metrics import METRICS, PPL, PRINTED
from lightning_tfm.report.row import SummaryRow
from lightning_tfm.report.to_json import BY_METRIC

Curve = Mapping[int, float]
"""step -> dev perplexity"""

CALIBRATED_ON = ("C-N2", "C-N8", "D-Pdrop0.0", "D-Pdrop0.2", "big")
"""rows beside base on which the regime of the shipped miniatures was chosen, at seeds that no reported table uses: what
they show in a miniature is not independent of the paper's numbers"""

STILL_FALLING = 0.05
"""relative fall of base's dev perplexity over the last eighth of its training from which a table shows how fast rows
learn rather than what they are worth; fixed at pilot seeds (NOTES.md)"""

LEAST = 5
"""rows beside base below which no rank correlation is given"""
NEAR = 1 / 32
"""share of the training within which a row must have been validated to be read there"""


# --- what is found ---


@dataclass(frozen=True)
class ErrorInSize:
    """Root mean square over rows of what is left of the paper's difference, as differences are shown."""

    table: float | None
    parameter_count: float | None
    no_difference: float | None


@dataclass(frozen=True)
class MetricAgreement:
    """In one metric; correlations are rank correlations with the paper."""

    rows: int
    spearman: float | None
    parameter_count_alone: float | None
    error_in_size: ErrorInSize
    clear_beyond: float
    clear_rows: int
    with_the_paper: int
    if_every_change_is_worse: int
    against_the_paper: list[str]
    """clear rows that are not on the paper's side"""


@dataclass(frozen=True)
class CoursePoint:
    """At one validation of base."""

    share: float
    """of each row's own training"""
    step: int
    """of base"""
    base_ppl: float
    spearman: float | None


@dataclass(frozen=True)
class AgreementCourse:
    """The rank correlation in log PPL in the course of training."""

    rows: int
    parameter_count_alone: float | None
    points: list[CoursePoint]


@dataclass(frozen=True)
class Agreement:
    """Over all rows that the paper prints."""

    by_metric: dict[str, MetricAgreement | None] = field(metadata=BY_METRIC)
    calibrated_on: list[str] | None
    """those that a miniature's regime was chosen on"""
    curve: AgreementCourse | None

    @property
    def ppl(self) -> MetricAgreement:
        found = self.by_metric[PPL.name]
        assert found is not None, "there is no agreement without it"
        return found


@dataclass(frozen=True)
class LastEighth:
    """How far base had finished learning."""

    fall: float
    """share by which its dev perplexity fell over the last eighth of its training; negative where it rose"""
    threshold: float
    still_falling: bool


# --- from the table ---


@dataclass(frozen=True)
class Trained:
    """A row as it was trained, all its seeds."""

    name: str
    paper: Mapping[str, float | None]
    """metric -> what the paper prints, as tested"""
    values: Mapping[str, Mapping[int, float]]
    """metric -> seed -> what is tested"""
    parameters: int | None
    steps: int
    """of the training"""
    curves: Mapping[int, Curve]
    """of the seeds that have one"""


def of_rows(
    rows: Sequence[SummaryRow],
    curves: Mapping[tuple[str, int], Curve],
    foreign: Collection[str] = (),
    miniature: bool = False,
) -> tuple[Agreement | None, LastEighth | None]:
    """(`agree`, `last_eighth` of base) of the rows of a table. `curves`: of (row, seed); may be empty.

    Without the `foreign` ones, which have other pieces than base, so that their perplexities are not comparable.
    """
    every = {row.name: _trained(row, curves) for row in rows}
    trained = {name: row for name, row in every.items() if row.values["ppl"]}
    base = next((trained.get(row.name) for row in rows if row.base), None)
    if base is None:
        return None, None
    own = [row.name for row in rows if not (row.base or row.same_as) and row.name not in foreign]
    compared = [trained[name] for name in own if name in trained]
    return agree(base, compared, CALIBRATED_ON if miniature else ()), last_eighth(base)


def _trained(row: SummaryRow, curves: Mapping[tuple[str, int], Curve]) -> Trained:
    metrics = [METRICS[name] for name in PRINTED if name in row.scores]
    printed = {m.name: row.paper.of(m.name) for m in metrics}
    return Trained(
        row.name,
        {m.name: None if (x := printed[m.name]) is None else m.tested(x) for m in metrics},
        {m.name: {int(s): m.tested(x) for s, x in row.metric(m.name).by_seed.items()} for m in metrics},
        row.parameters,
        row.values["train steps"],
        {int(s): curve for s in row.ppl.by_seed if (curve := curves.get((row.name, int(s))))},
    )


def agree(base: Trained, rows: Sequence[Trained], calibrated_on: Collection[str] = ()) -> Agreement | None:
    """All figures, of every metric, over `rows`.

    Only rows for which the paper prints a perplexity; None where these are fewer than LEAST.
    """
    rows = [row for row in rows if row.paper["ppl"] is not None]
    if base.paper["ppl"] is None or len(rows) < LEAST:
        return None
    by_metric = {name: _metric(base, rows, name) for name in base.paper}
    return Agreement(by_metric, [row.name for row in rows if row.name in calibrated_on] or None, _course(base, rows))


def _metric(base: Trained, rows: Sequence[Trained], metric: str) -> MetricAgreement | None:
    used, m = [row for row in rows if row.paper[metric] is not None], METRICS[metric]
    if base.paper[metric] is None or len(used) < LEAST:
        return None
    paper_R = np.array([round(_printed(row, metric) - _printed(base, metric), 9) for row in used])
    ours_R = np.array([mean(row.values[metric].values()) - mean(base.values[metric].values()) for row in used])
    size_R, logs_R = _sizes(used), np.log(_sizes(used)) - np.log(_sizes([base]))
    clear_R = np.abs(paper_R) > m.clear
    with_paper_R = clear_R & (ours_R * paper_R > 0)
    unit = 100.0 if m.log else 1.0
    return MetricAgreement(
        rows=len(used),
        spearman=_number(rank_correlation(ours_R, paper_R)),
        parameter_count_alone=_number(rank_correlation(m.side * size_R, paper_R)),
        error_in_size=ErrorInSize(
            *(_number(unit * left_out_error(x_R, paper_R)) for x_R in (ours_R, logs_R, np.zeros(len(used))))
        ),
        clear_beyond=_rounded(m.clear),
        clear_rows=int(clear_R.sum()),
        with_the_paper=int(with_paper_R.sum()),
        if_every_change_is_worse=int((clear_R & (paper_R * m.side < 0)).sum()),
        against_the_paper=[row.name for row, out in zip(used, clear_R & ~with_paper_R, strict=True) if out],
    )


def _printed(row: Trained, metric: str) -> float:
    value = row.paper[metric]
    assert value is not None, "the rows were chosen so"
    return value


def _sizes(rows: Sequence[Trained]) -> np.ndarray:
    return np.array([math.nan if row.parameters is None else row.parameters for row in rows], dtype=float)


# --- statistics ---


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


# --- in the course of training ---


def last_eighth(row: Trained) -> LastEighth | None:
    """By what share the dev perplexity fell from 7/8 of the training to its end (geometric mean over seeds).

    Negative where it rose. None where no seed was validated between 3/4 and 7/8, and at the end.
    """
    falls = []
    for curve in row.curves.values():
        shares = [step / row.steps for step in curve]
        if any(0.75 <= share <= 0.875 for share in shares) and any(abs(share - 1) <= NEAR for share in shares):
            before, end = read_at(curve, row.steps, [0.875, 1.0])
            falls.append(before - end)
    if not falls:
        return None
    fall = -math.expm1(-mean(falls))
    return LastEighth(_rounded(fall), STILL_FALLING, fall > STILL_FALLING)


def read_at(curve: Curve, steps: int, shares: Sequence[float]) -> np.ndarray:
    """log PPL at these shares of a training of `steps`, straight between validations and level beyond them."""
    known = sorted(curve)
    return np.interp(shares, [step / steps for step in known], [math.log(curve[step]) for step in known])


def _course(base: Trained, rows: Sequence[Trained]) -> AgreementCourse | None:
    """The rank correlation in log PPL at every validation of base; the rows are the same throughout.

    Rows without a curve to the end are left out; so are validations near which a row has none.
    """
    whole = [(row, kept) for row in rows if (kept := _to_the_end(row))]
    base_curves = _to_the_end(base)
    if len(whole) < LEAST or not base_curves:
        return None
    shared = sorted(set.intersection(*map(set, base_curves.values())))
    near = [_near([s / base.steps for s in shared], c, row.steps) for row, kept in whole for c in kept.values()]
    at = [step for step, kept in zip(shared, np.all(near, axis=0), strict=True) if kept]
    if not at:
        return None
    shares = [step / base.steps for step in at]
    values = [{seed: read_at(c, row.steps, shares) for seed, c in kept.items()} for row, kept in whole]
    base_V = np.mean([read_at(c, base.steps, shares) for c in base_curves.values()], axis=0)
    paper_R = np.array([_printed(row, "ppl") - _printed(base, "ppl") for row, _ in whole]).round(9)
    points = []
    for v, (step, share) in enumerate(zip(at, shares, strict=True)):
        now = [{seed: float(of_V[v]) for seed, of_V in seeds.items()} for seeds in values]
        ours_R = np.array([mean(seeds.values()) for seeds in now]) - base_V[v]
        spearman = _number(rank_correlation(ours_R, paper_R))
        points.append(CoursePoint(_rounded(share), step, _rounded(math.exp(base_V[v])), spearman))
    null = rank_correlation(-_sizes([row for row, _ in whole]), paper_R)
    return AgreementCourse(len(whole), _number(null), points)


def _to_the_end(row: Trained) -> dict[int, Curve]:
    return {seed: curve for seed, curve in row.curves.items() if max(curve, default=0) >= row.steps}


def _near(shares: Sequence[float], curve: Curve, steps: int) -> list[bool]:
    known = np.array([step / steps for step in curve])
    return [bool(np.abs(known - share).min() <= NEAR) for share in shares]


def _number(value: float) -> float | None:
    """`_rounded`; None for NaN."""
    return _rounded(value) if math.isfinite(value) else None


def _rounded(value: float) -> float:
    """To six decimals, so that the order of a sum on another machine does not change a byte."""
    return round(float(value), 6) + 0.0
