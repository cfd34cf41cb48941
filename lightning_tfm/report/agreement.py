"""How far a study's rows, taken together, agree with the paper's Table 3: ranks, signs, and what they are worth.

Each row is a difference to base as tested, in log PPL first; ours is the mean of seeds, the paper's one run.

- Spearman's rank correlation of the two, with an interval that takes the rows as a sample of possible rows (Fisher's z,
  Bonett and Wright 2000), and Kendall's tau-b.
- Signs on the clear rows, those where two single runs of the paper differ by more than their noise (`Metric.clear`),
  beside the rule "every change is worse", which needs no experiment.
- The null: the rank correlation of the bare parameter count with the paper (more parameters, better score), over the
  same rows; the difference of the two Spearmans, ours less the null's, with an interval over rows (bootstrap of whole
  rows, percentiles; benchmarks/results/agreement.txt has its coverage); the partial rank correlation given the
  parameter count; the correlation within the rows of base's size.
- The ceiling: the mean rank correlation that two studies would have if the paper's printed differences were the truth
  for both, for ours times the one factor that gives them the spread of ours: one with the paper's noise (a single run;
  `Metric.sigma`), the other with our standard errors.
- The same at every validation of base, from the curves: rows are compared at the same share of their own training.

Noise of training has no separate interval: redrawing means that hold that noise already adds it twice, and what that
gives covers the rank correlation without noise in 71 % where it says 95.

Pure functions of the table and the curves; random draws are the same each time. Suffixes: R rows, D draws, V
validations.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import numpy as np

from lightning_tfm.metrics import METRICS, PPL, PRINTED
from lightning_tfm.report.plain import BY_METRIC
from lightning_tfm.report.row import SummaryRow
from lightning_tfm.report.stats import statistics

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
BASE_SIZE = 0.01
"""relative difference in parameters up to which a row has base's size"""
NEAR = 1 / 32
"""share of the training within which a row must have been validated to be read there"""
DRAWS, SEED = 2000, 2017


# --- what is found ---


@dataclass(frozen=True)
class OfBaseSize:
    """Rows with as many parameters as base."""

    rows: int
    spearman: float | None


@dataclass(frozen=True)
class RankDifference:
    """Spearman's correlation less that of the parameter count; the 95 % interval is over rows."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class MetricAgreement:
    """In one metric, over a set of rows; correlations are rank correlations with the paper."""

    rows: int
    spearman: float | None
    interval_over_rows: list[float | None] | None
    """95 % with the rows as a sample of rows"""
    kendall: float | None
    """tau-b"""
    parameter_count_alone: float | None
    parameter_count_kendall: float | None
    less_parameter_count: RankDifference | None
    given_parameter_count: float | None
    size_of_base: OfBaseSize
    ceiling: float | None
    """given the paper's noise and ours"""
    clear_beyond: float
    clear_rows: int
    with_the_paper: int
    if_every_change_is_worse: int
    against_the_paper: list[str]
    """clear rows that are not on the paper's side"""


@dataclass(frozen=True)
class RowSetAgreement:
    """Over one set of rows."""

    by_metric: dict[str, MetricAgreement | None] = field(metadata=BY_METRIC)

    @property
    def ppl(self) -> MetricAgreement:
        found = self.by_metric[PPL.name]
        assert found is not None, "there is no agreement without it"
        return found


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
class Agreement(RowSetAgreement):
    """Over all rows, and over those that a miniature's regime was not chosen on."""

    calibrated_on: list[str] | None
    not_calibrated_on: RowSetAgreement | None
    curve: AgreementCourse | None


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
    body: int | None
    """parameters without tables of positions"""
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
        row.body,
        row.values["train steps"],
        {int(s): curve for s in row.ppl.by_seed if (curve := curves.get((row.name, int(s))))},
    )


def agree(base: Trained, rows: Sequence[Trained], left_out: Collection[str] = ()) -> Agreement | None:
    """All figures, of every metric, over `rows` and again without those named in `left_out`.

    Only rows for which the paper prints a perplexity; None where these are fewer than LEAST.
    """
    rows = [row for row in rows if row.paper["ppl"] is not None]
    if base.paper["ppl"] is None or len(rows) < LEAST:
        return None
    out = [row.name for row in rows if row.name in left_out]

    def each(without: Collection[str] = ()) -> dict[str, MetricAgreement | None]:
        return {name: _metric(base, rows, name, without) for name in base.paper}

    others = each(out) if 0 < len(out) <= len(rows) - LEAST else {}
    rest = RowSetAgreement(others) if others.get(PPL.name) else None
    return Agreement(each(), out if rest else None, rest, _course(base, rows))


def _metric(
    base: Trained, rows: Sequence[Trained], metric: str, left_out: Collection[str] = ()
) -> MetricAgreement | None:
    every = [row for row in rows if row.paper[metric] is not None]
    if base.paper[metric] is None:
        return None
    error_R = standard_errors([row.values[metric] for row in every])
    kept = [i for i, row in enumerate(every) if row.name not in left_out]
    used, error_R = [every[i] for i in kept], error_R[kept]
    if len(used) < LEAST:
        return None
    from scipy.stats import kendalltau

    paper_R = np.array([round(_printed(row, metric) - _printed(base, metric), 9) for row in used])
    ours_R = np.array([mean(row.values[metric].values()) - mean(base.values[metric].values()) for row in used])
    size_R = METRICS[metric].side * _sizes(used)
    same = [i for i, row in enumerate(used) if _of_size(row, base)]
    over_rows = statistics.spearman(ours_R, paper_R)
    clear_R = np.abs(paper_R) > METRICS[metric].clear
    with_paper_R = clear_R & (ours_R * paper_R > 0)
    return MetricAgreement(
        rows=len(used),
        spearman=_number(rank_correlation(ours_R, paper_R)),
        interval_over_rows=None if over_rows is None else [_number(x) for x in over_rows[1:]],
        kendall=_number(kendalltau(ours_R, paper_R).statistic),
        parameter_count_alone=_number(rank_correlation(size_R, paper_R)),
        parameter_count_kendall=_number(kendalltau(size_R, paper_R).statistic),
        less_parameter_count=less_null(ours_R, size_R, paper_R),
        given_parameter_count=_number(partial_rank_correlation(ours_R, paper_R, size_R)),
        size_of_base=OfBaseSize(
            len(same), _number(rank_correlation(ours_R[same], paper_R[same])) if len(same) >= LEAST else None
        ),
        ceiling=_number(ceiling(paper_R, METRICS[metric].sigma or 0.0, ours_R, error_R)),
        clear_beyond=_rounded(METRICS[metric].clear),
        clear_rows=int(clear_R.sum()),
        with_the_paper=int(with_paper_R.sum()),
        if_every_change_is_worse=int((clear_R & (paper_R * METRICS[metric].side < 0)).sum()),
        against_the_paper=[row.name for row, out in zip(used, clear_R & ~with_paper_R, strict=True) if out],
    )


def _printed(row: Trained, metric: str) -> float:
    value = row.paper[metric]
    assert value is not None, "the rows were chosen so"
    return value


def _sizes(rows: Sequence[Trained]) -> np.ndarray:
    return np.array([math.nan if row.parameters is None else row.parameters for row in rows], dtype=float)


def _of_size(row: Trained, base: Trained) -> bool:
    """Tables of positions do not count: vectors that are looked up, whose number no divisor shrinks. With them
    E-learned would have base's size in full (+0.8 %) and not in miniature (+16 %)."""
    return bool(row.body and base.body and abs(row.body / base.body - 1) <= BASE_SIZE)


# --- statistics ---


def rank_correlation(x_R: np.ndarray, y_R: np.ndarray) -> Any:
    """Spearman's, over the last axis, ties at their mean rank; NaN where a side is all equal or has a NaN."""
    from scipy.stats import rankdata  # half a second that a study without the paper's numbers does not pay

    x_R, y_R = (rankdata(v, axis=-1) - (np.shape(v)[-1] + 1) / 2 for v in (x_R, y_R))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (x_R * y_R).sum(-1) / np.sqrt((x_R**2).sum(-1) * (y_R**2).sum(-1))


def partial_rank_correlation(x_R: np.ndarray, y_R: np.ndarray, z_R: np.ndarray) -> float:
    """Of x and y given z: the correlation of what a straight line on the ranks of z leaves of their ranks.

    NaN where only z ranks x or y, or z is all equal.
    """
    xy, xz, yz = rank_correlation(x_R, y_R), rank_correlation(x_R, z_R), rank_correlation(y_R, z_R)
    rest = (1 - xz**2) * (1 - yz**2)
    return float((xy - xz * yz) / math.sqrt(rest)) if rest > 1e-12 else math.nan


def standard_errors(values: Sequence[Mapping[int, float]]) -> np.ndarray:
    """Of each row's mean over seeds (seed -> value), relative to the other rows; NaN where no row has two seeds.

    From a row's deviations from its mean, less the median deviation of all rows at that seed. The variance is moderated
    by that of the other rows (stats/statistics.py), which also lends one to a row with one seed.
    """
    middle = [mean(row.values()) for row in values]
    several = [(row, m) for row, m in zip(values, middle, strict=True) if len(row) > 1]
    seeds = {seed for row, _ in several for seed in row}
    shared = {seed: float(np.median([row[seed] - m for row, m in several if seed in row])) for seed in seeds}
    n_R = np.array([len(row) for row in values])
    own = [[value - shared[seed] for seed, value in row.items()] if len(row) > 1 else [] for row in values]
    variance_R = np.array([np.var(row, ddof=1) if row else 0.0 for row in own])
    prior = statistics.prior_df(variance_R[None], n_R - 1)
    return np.sqrt(statistics.moderated(variance_R, n_R - 1, prior)[0] / n_R)


def _draws(R: int, which: int) -> np.ndarray:
    return np.random.Generator(np.random.Philox(SEED + which)).normal(size=(DRAWS, R))


def less_null(ours_R: np.ndarray, null_R: np.ndarray, paper_R: np.ndarray) -> RankDifference | None:
    """Our rank correlation with the paper less the null's, with its 95 % interval over rows.

    None where either is unknown. Resamples in which a side is all equal are left out.
    """

    def difference(which: Any) -> Any:
        return rank_correlation(ours_R[which], paper_R[which]) - rank_correlation(null_R[which], paper_R[which])

    R = len(paper_R)
    found = difference(np.arange(R))
    if not np.isfinite(found):
        return None
    drawn = difference(np.random.Generator(np.random.Philox(SEED)).integers(R, size=(DRAWS, R)))
    low, high = np.nanquantile(drawn, [statistics.ALPHA / 2, 1 - statistics.ALPHA / 2])
    return RankDifference(_rounded(found), _rounded(low), _rounded(high))


def ceiling(paper_R: np.ndarray, paper_sd: float, ours_R: np.ndarray, error_R: np.ndarray) -> float:
    """Mean rank correlation of two noisy measurements of the same differences (see above); NaN without standard errors.

    The paper's printed differences hold its noise once already and so spread a little wider than the truth: a ceiling
    that is rather too high than too low.
    """
    R, spread = len(paper_R), max(ours_R.var(ddof=1) - (error_R**2).mean(), 0.0)
    if not np.isfinite(error_R).all() or np.ptp(paper_R) == 0 or not (spread > 0 or error_R.any()):
        return math.nan
    truth_R = paper_R * math.sqrt(spread / paper_R.var(ddof=1))
    return float(np.nanmean(rank_correlation(paper_R + paper_sd * _draws(R, 1), truth_R + error_R * _draws(R, 2))))


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
