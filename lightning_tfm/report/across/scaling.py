"""`scaling`, the same rows at several scales: what a change of scale does to a row, and what to expect at the paper's.

Of a row δ_s is the difference of log PPL to base at scale s, v_s its squared standard error, N_s base's parameters.
Written down before any second scale was trained (docs/preregistration/ratios.md, 2026-11-23), L the largest scale:

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

No value of the paper enters. What a factor fitted on the paper's other rows would add, beside zero, the parameter count
and each single scale: benchmarks/foresight.py.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from scipy.optimize import brentq, minimize_scalar

from lightning_tfm.errors import UserError
from lightning_tfm.metrics import PPL
from lightning_tfm.plural_words import MINUS, p_value, plural
from lightning_tfm.report.across.comparison import changes_between
from lightning_tfm.report.across.long_table import (
    ROW,
    P,
    Studies,
    by_name,
    finding,
    interval,
    narrow,
    records,
    seeds_missing,
    signed,
    unit,
    verdict_cell,
)
from lightning_tfm.report.blocks import Column, Figures, Notes, Section, Table, Widest
from lightning_tfm.report.build_summary import paper_differences
from lightning_tfm.report.charts.chart import Axis, Chart, Point, Series, both
from lightning_tfm.report.charts.study_forest import axis_of
from lightning_tfm.report.render.every_format import Document
from lightning_tfm.report.serialize import rounded
from lightning_tfm.report.stats.statistics import t_isf
from lightning_tfm.report.study_report import Report
from lightning_tfm.report.summary import Summary
from lightning_tfm.report.tables.columns import SIZES, millions
from lightning_tfm.report.wording.verdict_words import WORDS, Shift, Verdict
from lightning_tfm.study.ratios import FOLLOW
from lightning_tfm.study.study import HIDDEN

PRIOR = {"size": (0.3, 0.15), "rest": (0.0, 0.3)}
"""class -> mean and standard deviation of its exponent a priori"""
GRID = np.linspace(-2.0, 3.0, 251)
"""exponents that are looked at"""


# --- the numbers ---


def exponent(
    delta_SR: np.ndarray, variance_SR: np.ndarray, log_N_S: np.ndarray, prior: tuple[float, float]
) -> dict[str, float]:
    """How the differences of a class of R rows change with scale, at S scales, the largest last.

    kappa with its se; tau, a row's own departure, for a unit of log N, at the size of the largest scale; degrees of
    freedom that it is known by.
    """
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

    def scaling_rows(tau2: float) -> float:
        best = GRID[int(np.argmin([loss(x, tau2) for x in GRID]))]
        bounds = (best - GRID[1] + GRID[0], best + GRID[1] - GRID[0])
        return float(minimize_scalar(loss, bounds=bounds, args=(tau2,), method="bounded").x)

    def missing(tau2: float) -> float:
        return departures(scaling_rows(tau2), tau2)[0] - degrees

    tau2 = float(brentq(missing, 0.0, 100.0, xtol=1e-9)) if missing(0.0) > 0 else 0.0
    kappa, h = scaling_rows(tau2), 1e-3
    curvature = (loss(kappa + h, tau2) - 2 * loss(kappa, tau2) + loss(kappa - h, tau2)) / h**2
    se = math.sqrt(2 / max(curvature, 2 / sd**2))
    return {"kappa": kappa, "se": se, "tau": math.sqrt(tau2), "degrees": degrees}


def prediction(delta: Any, variance: Any, apart: float, of: Mapping[str, Any]) -> tuple[Any, Any]:
    """The differences, and their standard errors, log(N / N_L) = `apart` beyond the largest scale; `of`: `exponent`."""
    ratio = np.exp(-of["kappa"] * apart)
    own = of["tau"] ** 2 * abs(apart) + (delta * apart * of["se"]) ** 2
    return delta * ratio, ratio * np.sqrt(variance + own)


def scaling_rows(studies: Studies, target: float) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """(a line for each row that all studies have an interval for, `exponent` of each class, the rows left out).

    `studies`: by size. The lines are by row: class, verdict, p; prediction at `target` parameters with its 90 %
    interval; paper; and `STUDY estimate`, se, lower, upper and n of each study, in log PPL. Raises UserError where no
    row has an interval in all of them.
    """
    names, sizes = list(studies.reports), list(map(_parameters, studies.reports.values()))
    lines, last = studies.lines[studies.lines.metric == PPL.name], names[-1]
    change = changes_between(lines).set_index(["study", "row"]).loc[last]
    whole = lines[lines.lower.notna()].groupby("row").filter(lambda of: len(of) == len(names))
    few = [f"{row}: no interval at every scale" for row in lines.row.unique() if row not in set(whole.row)]
    left_out = [*studies.left_out, *few]
    if whole.empty:
        raise UserError(f"no row has an interval in all of {', '.join(names)}: {'; '.join(left_out)}")
    wide = whole.pivot(index="row", columns="study", values=["estimate", "se", "lower", "upper", "n"]).astype(float)
    wide = wide.reindex(whole.row.unique())
    largest, log_N_S = studies.reports[last].summary, np.log(np.array(sizes, dtype=float))
    of = {row: studies.families[last][row.removesuffix(HIDDEN)] for row in wide.index}
    kinds = pd.Series({row: "rest" if of[row].parameters == sizes[-1] else "size" for row in of})
    delta, se, made = wide["estimate"][names], wide["se"][names], {}
    for kind, prior in PRIOR.items():
        own = kinds == kind
        made[kind] = exponent(delta[own].to_numpy().T, se[own].to_numpy().T ** 2, log_N_S, prior)
    exponents = pd.DataFrame(made).T
    by_row = exponents.loc[kinds].set_axis(kinds.index)
    mean, error = prediction(delta[last], se[last] ** 2, math.log(target / sizes[-1]), by_row)
    half = t_isf(0.05, by_row["degrees"].to_numpy()) * error
    rows = pd.DataFrame({"class": kinds, "verdict": change.verdict[wide.index], "p": change.p_BH[wide.index]})
    rows = rows.assign(prediction=mean, lower=mean - half, upper=mean + half, paper=_paper(largest, of))
    scales = (wide.xs(name, axis=1, level=1).add_prefix(f"{name} ") for name in names)
    return pd.concat([rows, *scales], axis=1), exponents, left_out


def by_size(reports: Sequence[Report]) -> list[Report]:
    """Raises UserError where two studies have one scale."""
    reports = sorted(reports, key=_parameters)
    names, sizes = " ".join(by_name(reports)), list(map(_parameters, reports))
    if len(set(sizes)) < len(sizes) or len(sizes) < 2:
        raise UserError(f"scaling {names}: needs studies of several scales, their bases have {sizes} parameters")
    return reports


def _parameters(report: Report) -> int:
    """Of base. Raises UserError where it has no finished run."""
    count = next((row.parameters for row in report.summary.rows if row.base), None)
    if count is None:
        raise UserError(f"{report.summary.study}: base has no finished run, so that its scale is not known")
    return count


def _paper(summary: Summary, rows: Mapping[str, Any]) -> list[float]:
    """The paper's differences, log PPL; NaN where it has none."""
    differences = paper_differences(summary.rows, summary.base.name if summary.base else None)
    return [differences.get((row, PPL.name), math.nan) for row in rows]


# --- for people ---


def scaling_study(reports: Sequence[Report], target: float) -> Document:
    """The rows over the studies' scales, and at `target` parameters of base."""
    studies = Studies.of(by_size(reports))
    rows, exponents, left_out = scaling_rows(studies, target)
    sizes = {study: _parameters(report) for study, report in studies.reports.items()}
    (first, small), *_, (last, large) = sizes.items()
    apart = [words for side in studies.sides if (words := _apart(side))]
    changes = rows[["verdict"]].assign(difference=rows[f"{last} estimate"] - rows[f"{first} estimate"])
    changes = changes.assign(n_1=rows[f"{first} n"], n=rows[f"{last} n"]).reset_index(names="row")
    title, scope = finding(changes, studies, f"{millions(small)} parameters", millions(large))
    whole, brief = (table(rows, studies, sizes, target, ends) for ends in (True, False))
    notes = [*_notes(exponents, sizes, target)]
    notes += [f"not of scale alone, as the studies differ in more: {' | '.join(apart)}"] * bool(apart)
    data = _data(rows, [*sizes])
    content = {"studies": sizes, "target": target, "rows": data, "left out": left_out, "apart": apart}
    return Document(
        studies.heading("as a scaling study"),
        studies.question,
        "scaling",
        f"{plural(len(rows), 'row')} at {len(sizes)} scales",
        [
            Section("picture", "Over scales", [Figures([(picture(rows, studies, sizes), CAPTION)], broad=True)]),
            Section("rows", "Rows at several scales", [Widest([[whole], [brief]], folds=1)]),
            Section("method", "How to read this", [Notes([*notes, *left_out])]),
        ],
        data,
        content | {"exponents": rounded(exponents.to_dict("index"))},
        schema=2,
        headline=[title],
        scope=" ".join(filter(None, [scope, seeds_missing(changes, first, last)])),
    )


OF_SCALE = {*(f"model.{name}" for name in SIZES), *(".".join(key) for key in FOLLOW), "miniature.width"}
OF_SCALE |= {"miniature.depth"}


def _apart(side: Mapping[str, Any]) -> str:
    """In what else its base differs from that of the smallest scale; empty for nothing."""
    phrases = [phrase for phrase in side["apart"] if phrase.partition(" ")[0] not in OF_SCALE]
    phrases += ["its seeds were added after looking, which p is not corrected for here"] * side["looks"]
    return f"{side['study']}: {'; '.join(phrases)}" if phrases else ""


DECIDED = [word.value for word in Shift if word is not Shift.CANNOT_TELL]
CAPTION = (
    "Each row's difference to base in dev perplexity from scale to scale, in the colour of its verdict; logarithmic on "
    "both sides of base."
)
ENDS = ("estimate", "lower", "upper")


def picture(rows: pd.DataFrame, studies: Studies, sizes: Mapping[str, int]) -> Markup:
    """A line for each row over the parameters of base."""
    series = []
    for row, r in rows.iterrows():
        there = {study: [float(r[f"{study} {key}"]) for key in ENDS] for study in sizes}
        line = [Point(float(sizes[study]), PPL.in_units(at[0])) for study, at in there.items()]
        name, last = studies.called(row), axis_of(PPL).number(line[-1].y)
        tip = [f"{study} ({millions(sizes[study])}): {_scale(at, True)} %" for study, at in there.items()]
        style = WORDS[r.verdict].style if r.verdict in WORDS else Verdict.UNTESTABLE.style
        end = f"{last} {name}" + f", {r.verdict}" * (r.verdict in DECIDED)
        series.append(Series(row, line, style, end, "\n".join([name, *tip, r.verdict]), marked=True))
    around = max(2.0, float(np.median([abs(p.y) for curve in series for p in curve.points])))
    words = {float(n): millions(n) for n in sizes.values()}
    x = Axis(f"parameters of base: {', '.join(sizes)}", log=True, words=words, margin=0.02)
    y = Axis("dev perplexity against base", around=around, percent="base")
    return both(Chart("Differences to base over scales", x, y, series, (900, 460), left=62), (380, 480))


def table(rows: pd.DataFrame, studies: Studies, sizes: Mapping[str, int], target: float, ends: bool) -> Table:
    """`ends`: with the interval at each scale."""
    printed = bool(rows.paper.notna().any())
    scales = [f"{study} ({millions(count)})" for study, count in sizes.items()]
    lines = []
    for row, r in rows.iterrows():
        ahead = interval(PPL.name, r.lower, r.upper)
        lines.append(
            [
                studies.cell(row),
                *(_scale([float(r[f"{study} {key}"]) for key in ENDS], ends) for study in sizes),
                verdict_cell(r.verdict),
                p_value(r.p),
                f"{signed(PPL.name, r.prediction)} {ahead}" if ahead.startswith("[") else ahead,
                *["" if math.isnan(r.paper) else signed(PPL.name, r.paper)] * printed,
            ]
        )
    of_scales = [Column(scale, lines=narrow(scale)) for scale in scales]
    more = [Column(f"at {millions(target)}, 90 %"), *[Column("paper")] * printed]
    return Table(unit(PPL.name), [ROW, *of_scales, Column("over scales", words=True), P, *more], lines, dense=not ends)


def _scale(at: Sequence[float], ends: bool) -> str:
    mean, low, high = at
    return f"{signed(PPL.name, mean)} {interval(PPL.name, low, high)}" if ends else signed(PPL.name, mean)


def _notes(exponents: pd.DataFrame, studies: Mapping[str, int], target: float) -> Iterator[str]:
    """What the numbers mean."""
    small, *_, large = studies
    yield (
        f"over scales: from {small} to {large}, by the p of a change, corrected over the rows by Benjamini and "
        "Hochberg, which takes five seeds at both; holds: the 95 % interval of the change lies within half of the "
        f"difference at {small}"
    )
    for kind, of in exponents.iterrows():
        mean, sd = PRIOR[str(kind)]
        what = "rows that change the parameter count" if kind == "size" else "the other rows"
        yield (
            f"{what}: differences go with N^-κ, κ {f'{of.kappa:.2f}'.replace('-', MINUS)} ± {of.se:.2f} (a priori "
            f"{mean:g} ± {sd:g}), a row's own departure {100 * of.tau:.1f} % for a factor e in N"
        )
    yield (
        f"at {millions(target)} parameters of base: extrapolated, no value of the paper enters; the rule was "
        "written down before a second scale was trained (docs/preregistration/ratios.md)"
    )


def _data(rows: pd.DataFrame, studies: Sequence[str]) -> list[dict[str, Any]]:
    """A line for each row, at full precision, in log PPL."""
    scales = {f"{k} {key}": k if key == "estimate" else f"{k} {key}" for k in studies for key in ENDS}
    rest = {"verdict": "word", "p": "p", "prediction": "prediction"}
    rest |= {"lower": "prediction lower", "upper": "prediction upper", "paper": "paper"}
    named = rows.reset_index(names="row").rename(columns=scales | rest)
    return records(named[["row", "class", *scales.values(), *rest.values()]])
