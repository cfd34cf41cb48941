"""The same rows at several scales: what a change of scale does to a row, and what the paper's size would show.

Of a row δ_s is the difference of log PPL to base at scale s, v_s its squared standard error, N_s base's parameters.
Written down before any second scale was trained (NOTES.md, 2026-11-23), L the largest scale:

    δ_s = δ_L (N_s / N_L)^(-κ),    κ one number for each of two classes: size, rows whose parameter count is not base's;
                                   rest, all others. A priori κ_size ~ N(0.3, 0.15²), κ_rest ~ N(0, 0.3²).

The prior of size is not of these data: where the text grows with the model, fitted laws of scale let the reducible loss
fall as N^-0.28 to N^-0.34 (Hoffmann et al. 2022, eq. 10), and a fixed factor in size moves it in proportion.

- A row's own departure from its class walks with log N: e = δ_s - δ_L r, r = (N_s / N_L)^(-κ), has the variance
  v_s + r² (v_L + τ² log(N_L / N_s)).
- κ minimises Σ (e² / variance + log variance) + ((κ - κ_0) / σ_0)² over the rows of its class and all smaller scales,
  its own variance is 2 over the curvature there. τ² is where Σ e² / variance is one less than its terms (Paule and
  Mandel 1982), 0 if it is not larger without. The intervals, by t, have that many degrees of freedom.
- At N: δ_L ρ, ρ = (N / N_L)^(-κ), with the variance ρ² (v_L + τ² log(N / N_L) + δ_L² log(N / N_L)² var κ).

That is (a), in which no value of the paper enters. (b) is it times one factor through the origin fitted on the paper's
other rows; beside it zero, log of the parameter count and each single scale (both fitted the same way), all with a
row left out at a time and 90 % intervals of t from the residuals of the rows fitted on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from lightning_tfm.errors import UserError
from lightning_tfm.metrics import PPL
from lightning_tfm.report.across.comparison import Against, Asked, Side, compare, family
from lightning_tfm.report.build import Report
from lightning_tfm.report.row import Difference
from lightning_tfm.report.stats.statistics import ALPHA, t_isf
from lightning_tfm.report.summary import Summary
from lightning_tfm.report.tables.columns import SIZES
from lightning_tfm.report.to_json import rounded
from lightning_tfm.report.wording.word import UNTESTABLE
from lightning_tfm.study.derived_budget import FOLLOW
from lightning_tfm.study.study import HIDDEN

PRIOR = {"size": (0.3, 0.15), "rest": (0.0, 0.3)}
"""class -> mean and standard deviation of its exponent a priori"""
RULE, COUNT = "this rule", "the parameter count"
GRID = np.linspace(-2.0, 3.0, 251)
"""exponents that are looked at"""


@dataclass(frozen=True)
class Exponent:
    """How differences of a class change with scale."""

    kappa: float
    se: float
    tau: float
    """a row's own departure, for a unit of log N, at the size of the largest scale"""
    degrees: int
    """of freedom that it is known by"""


def exponent(
    delta_SR: np.ndarray, variance_SR: np.ndarray, log_N_S: np.ndarray, prior: tuple[float, float]
) -> Exponent:
    """Of a class of R rows at S scales, the largest last."""
    apart_S1 = (log_N_S[-1] - log_N_S[:-1])[:, None]
    mean, sd = prior
    degrees = max(delta_SR[:-1].size - 1, 1)

    def departures(kappa: float, tau2: float) -> tuple[float, float]:
        """Their sum of squares in their variances, and the sum of the logarithms of these."""
        ratio = np.exp(kappa * apart_S1)
        e = delta_SR[:-1] - delta_SR[-1] * ratio
        variance = variance_SR[:-1] + ratio**2 * (variance_SR[-1] + tau2 * apart_S1)
        return float((e**2 / variance).sum()), float(np.log(variance).sum())

    def loss(kappa: float, tau2: float) -> float:
        return sum(departures(kappa, tau2)) + ((kappa - mean) / sd) ** 2

    def fitted(tau2: float) -> float:
        best = GRID[int(np.argmin([loss(x, tau2) for x in GRID]))]
        bounds = (best - GRID[1] + GRID[0], best + GRID[1] - GRID[0])
        return float(minimize_scalar(loss, bounds=bounds, args=(tau2,), method="bounded").x)

    def missing(tau2: float) -> float:
        return departures(fitted(tau2), tau2)[0] - degrees

    tau2 = float(brentq(missing, 0.0, 100.0, xtol=1e-9)) if missing(0.0) > 0 else 0.0
    kappa, h = fitted(tau2), 1e-3
    curvature = (loss(kappa + h, tau2) - 2 * loss(kappa, tau2) + loss(kappa - h, tau2)) / h**2
    return Exponent(kappa, math.sqrt(2 / max(curvature, 2 / sd**2)), math.sqrt(tau2), degrees)


def predicted(delta: float, variance: float, apart: float, found: Exponent) -> tuple[float, float]:
    """The difference, and its standard error, log(N / N_L) = `apart` beyond the largest scale."""
    ratio = math.exp(-found.kappa * apart)
    own = found.tau**2 * abs(apart) + (delta * apart * found.se) ** 2
    return delta * ratio, ratio * math.sqrt(variance + own)


@dataclass(frozen=True)
class Calibrated:
    """The paper's differences from one number of each row, by a factor through the origin; a row left out at a time."""

    by: str
    factor: float
    """of all rows"""
    rms: float
    """of the errors, in 100 log PPL"""
    covered: int
    """of the rows, by 90 % intervals"""
    score: float
    """mean interval score (Gneiting and Raftery 2007), in 100 log PPL; less is better"""
    errors: dict[str, float]
    p: float | None = None
    """of its squared errors against those of the parameter count, paired, two-sided; None of that itself and of zero"""


def calibrated(by: str, x_R: np.ndarray, paper_R: np.ndarray, names: Sequence[str]) -> Calibrated:
    """`x_R` all zero: nothing differs."""
    errors, halves = [], []
    for r in range(len(x_R)):
        others = np.arange(len(x_R)) != r
        factor = _through_origin(x_R[others], paper_R[others])
        left = paper_R[others] - factor * x_R[others]
        errors.append(float(paper_R[r] - factor * x_R[r]))
        degrees = others.sum() - bool(x_R.any())
        halves.append(float(t_isf(0.05, degrees) * math.sqrt((left**2).sum() / degrees)))
    e_R, half_R = 100 * np.array(errors), 100 * np.array(halves)
    score = 2 * half_R + 2 / 0.1 * np.maximum(np.abs(e_R) - half_R, 0)
    return Calibrated(
        by,
        _through_origin(x_R, paper_R),
        math.sqrt(float((e_R**2).mean())),
        int((np.abs(e_R) <= half_R).sum()),
        float(score.mean()),
        dict(zip(names, e_R.tolist(), strict=True)),
    )


def _through_origin(x: np.ndarray, y: np.ndarray) -> float:
    return float((x * y).sum() / (x * x).sum()) if x.any() else 0.0


@dataclass(frozen=True)
class Rung:
    """A row at one scale, in log PPL."""

    study: str
    difference: float | None
    lower: float | None
    """of the 95 % interval, as is `upper`"""
    upper: float | None


@dataclass(frozen=True)
class LadderRow:
    row: str
    kind: str
    """size or rest"""
    rungs: list[Rung]
    """the largest scale last"""
    word: str
    """from the smallest scale to the largest: grows, shrinks, changes sign, holds, cannot tell, not testable"""
    p: float | None
    """of no change, corrected over the rows; None below five seeds of row and base"""
    prediction: float
    lower: float
    """of its 90 % interval, as is `upper`"""
    upper: float
    paper: float | None


@dataclass(frozen=True)
class Ladder:
    """Everything `ladder` says."""

    studies: dict[str, int]
    """the largest last -> parameters of base"""
    target: float
    exponents: dict[str, Exponent]
    rows: list[LadderRow]
    calibrated: list[Calibrated]
    """(b) first; empty where the paper prints too few of the rows"""
    left_out: list[str]
    apart: list[str]
    """what is not the same at two scales, beside the scale"""
    labels: dict[str, str] = field(default_factory=dict, metadata={"key": ""})
    """row -> what people call it"""
    asked: Asked = field(default_factory=Asked, metadata={"key": ""})


def word_of(first: Difference, last: Difference, against: Against) -> str:
    """Of the differences at the smallest and the largest scale, and what is between them (report/across/comparison.py).

    A change is reported if its corrected p is below 5 %; `holds` if its 95 % interval is within half of the size at
    the smaller scale.
    """
    assert first.estimate is not None and last.estimate is not None, "rows without are left out"
    if against.p is None or against.lower is None or against.upper is None:
        return UNTESTABLE
    if against.p < ALPHA:
        apart = [_side(first), _side(last)]
        if sorted(apart) == [-1, 1]:
            return "changes sign"
        return "grows" if abs(last.estimate) > abs(first.estimate) else "shrinks"
    return "holds" if max(-against.lower, against.upper) < abs(first.estimate) / 2 else "cannot tell"


def _side(d: Difference) -> int:
    """On which side of 0 its interval is; 0: on both."""
    assert d.lower is not None and d.upper is not None
    return (d.lower > 0) - (d.upper < 0)


def ladder(reports: Sequence[Report], target: float) -> Ladder:
    """The rows that all studies have an interval for, up to `target` parameters of base.

    Raises UserError where two studies have one scale, or no row has an interval in all of them.
    """
    reports = sorted(reports, key=_parameters)
    studies, sizes = [report.summary.study for report in reports], [_parameters(report) for report in reports]
    if len(set(sizes)) < len(sizes) or len(sizes) < 2:
        raise UserError(
            f"ladder {' '.join(studies)}: needs studies of several scales, their bases have {sizes} parameters"
        )
    comparison, largest = compare(list(reports)), reports[-1].summary
    count = {name: row.parameters for name, row in family(largest).items()}
    count |= {name + HIDDEN: parameters for name, parameters in count.items()}
    given, left_out = dict[str, list[Difference]](), list(comparison.left_out)
    for row in comparison.rows:
        found = [place.difference[PPL.name] for place in row.places if place is not None]
        whole = [d for d in found if d is not None and d.estimate is not None and d.se and d.lower is not None]
        if len(whole) == len(studies):
            given[row.name] = whole
        else:
            left_out.append(f"{row.name}: no interval at every scale")
    if not given:
        raise UserError(f"no row has an interval in all of {', '.join(studies)}: {'; '.join(left_out)}")
    log_N_S = np.log(np.array(sizes, dtype=float))
    kinds = {name: "rest" if count[name] == sizes[-1] else "size" for name in given}
    exponents = {
        kind: _exponent([given[name] for name in given if kinds[name] == kind], kind, log_N_S) for kind in PRIOR
    }
    apart, paper = math.log(target / sizes[-1]), _paper(largest)
    rows = []
    for row in (row for row in comparison.rows if row.name in given):
        of, last = given[row.name], row.places[-1]
        assert last is not None, "it has an interval"
        mean, se = predicted(of[-1].estimate or 0.0, (of[-1].se or 0.0) ** 2, apart, exponents[kinds[row.name]])
        half, against = float(t_isf(0.05, exponents[kinds[row.name]].degrees)) * se, last.against[PPL.name]
        rungs = [Rung(study, d.estimate, d.lower, d.upper) for study, d in zip(studies, of, strict=True)]
        word = word_of(of[0], of[-1], against)
        ends = (mean, mean - half, mean + half, paper.get(row.name))
        rows.append(LadderRow(row.name, kinds[row.name], rungs, word, against.p, *ends))
    logs = {name: -math.log(n / sizes[-1]) for name, n in count.items() if n}
    fitted = _calibrations(rows, studies, logs)
    more = [said for side in comparison.sides if (said := _apart(side))]
    sized, named = dict(zip(studies, sizes, strict=True)), (comparison.labels, comparison.asked)
    return rounded(Ladder(sized, target, exponents, rows, fitted, left_out, more, *named))


OF_SCALE = {*(f"model.{name}" for name in SIZES), *(".".join(key) for key in FOLLOW), "miniature.width"}
OF_SCALE |= {"miniature.depth"}


def _apart(side: Side) -> str:
    """In what else its base differs from that of the smallest scale; empty for nothing."""
    kept = [phrase for phrase in side.apart if phrase.partition(" ")[0] not in OF_SCALE]
    kept += ["its seeds were added after looking, which p is not corrected for here"] * side.looks
    return f"{side.study}: {'; '.join(kept)}" if kept else ""


def _exponent(rows: Sequence[Sequence[Difference]], kind: str, log_N_S: np.ndarray) -> Exponent:
    delta_RS = np.array([[d.estimate for d in row] for row in rows], dtype=float).reshape(-1, len(log_N_S))
    se_RS = np.array([[d.se for d in row] for row in rows], dtype=float).reshape(-1, len(log_N_S))
    return exponent(delta_RS.T, se_RS.T**2, log_N_S, PRIOR[kind])


def _parameters(report: Report) -> int:
    """Of base. Raises UserError where it has no finished run."""
    count = next((row.parameters for row in report.summary.rows if row.base), None)
    if count is None:
        raise UserError(f"{report.summary.study}: base has no finished run, so that its scale is not known")
    return count


def _paper(summary: Summary) -> dict[str, float]:
    """The paper's differences, log PPL."""
    printed = {row.name: row.paper.of(PPL.name) for row in summary.rows}
    base = next((printed[row.name] for row in summary.rows if row.base), None)
    return {name: math.log(ppl / base) for name, ppl in printed.items() if ppl and base}


FEWEST = 8
"""rows of the paper below which no factor is fitted"""


def _calibrations(rows: Sequence[LadderRow], studies: Sequence[str], logs: Mapping[str, float]) -> list[Calibrated]:
    rows = [row for row in rows if row.paper is not None]
    if len(rows) < FEWEST:
        return []
    names, paper_R = [row.row for row in rows], np.array([row.paper for row in rows], dtype=float)
    ways: dict[str, list[float | None]] = {
        RULE: [row.prediction for row in rows],
        "zero": [0.0] * len(rows),
        COUNT: [logs[name] for name in names],
    }
    ways |= {study: [row.rungs[k].difference for row in rows] for k, study in enumerate(studies)}
    found = {by: calibrated(by, np.array(x_R, dtype=float), paper_R, names) for by, x_R in ways.items()}
    return [one if by in (COUNT, "zero") else _tested(one, found[COUNT]) for by, one in found.items()]


def _tested(one: Calibrated, against: Calibrated) -> Calibrated:
    from scipy.stats import wilcoxon

    differences = [one.errors[name] ** 2 - against.errors[name] ** 2 for name in one.errors]
    return replace(one, p=float(wilcoxon(differences).pvalue))
