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
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any

import numpy as np

from lightning_tfm.config import Experiment
from lightning_tfm.metrics import METRICS, PPL, PRINTED, Metric
from lightning_tfm.plural_words import numeral
from lightning_tfm.report.blocks import NOTHING, Block, Figures, Fold, Notes, Section, Table, Text, columns
from lightning_tfm.report.charts.chart import Axis, Chart, Point, Rule, Series, both
from lightning_tfm.report.charts.curves import QUARTERS, SHARE
from lightning_tfm.report.records import Cells
from lightning_tfm.report.serialize import BY_METRIC
from lightning_tfm.report.stats.statistics import left_out_error, rank_correlation
from lightning_tfm.report.summary import Analysis, Summary, SummaryRow
from lightning_tfm.study.settings import load_experiment
from lightning_tfm.yaml_files import shipped_folder

Curve = Mapping[int, float]
"""step -> dev perplexity"""

CALIBRATED_ON = ("C-N2", "C-N8", "D-Pdrop0.0", "D-Pdrop0.2", "big")
"""rows beside base on which the regime of the shipped miniatures was chosen, at seeds that no reported table uses: what
they show there is not independent of the paper's numbers"""

STILL_FALLING = 0.05
"""relative fall of base's dev perplexity over the last eighth of its training from which a table shows how fast rows
learn rather than what they are worth; fixed at pilot seeds (NOTES.md)"""

LEAST = 5
"""rows beside base below which no rank correlation is given"""
ERRORS = ("table", "parameter count", "no difference")
NEAR = 1 / 32
"""share of the training within which a row must have been validated to be read there"""


# --- what is found ---


@dataclass(frozen=True)
class MetricAgreement:
    """In one metric; correlations are rank correlations with the paper."""

    rows: int
    spearman: float | None
    parameter_count_alone: float | None
    error_in_size: dict[str, float | None]
    """of the table, the parameter count, no difference: root mean square over rows of what is left of the paper's
    difference, as differences are shown"""
    clear_beyond: float
    clear_rows: int
    with_the_paper: int
    if_every_change_is_worse: int
    against_the_paper: list[str]
    """clear rows that are not on the paper's side"""


@dataclass(frozen=True)
class AgreementCourse:
    """The rank correlation in log PPL in the course of training."""

    rows: int
    parameter_count_alone: float | None
    points: list[dict[str, Any]]
    """of each validation of base: share of each row's own training, step and base ppl of base, spearman"""


@dataclass(frozen=True)
class Agreement:
    """Over all rows that the paper prints."""

    by_metric: dict[str, MetricAgreement | None] = field(metadata=BY_METRIC)
    calibrated_on: list[str] | None
    """those that a miniature's regime was chosen on"""
    curve: AgreementCourse | None

    @property
    def ppl(self) -> MetricAgreement:
        agreement = self.by_metric[PPL.name]
        assert agreement is not None, "there is no agreement without it"
        return agreement


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


def find(cells: Cells, report: Summary) -> Agreement | None:
    """Of the table's rows and the hidden ones; none where another row than base is the reference."""
    every = None if report.reference else _rows(cells, report)
    return every and agree(*every, CALIBRATED_ON if has_shipped_regime(cells.study.base) else ())


def has_shipped_regime(base: Experiment) -> bool:
    """Whether it trains as the shipped miniatures do: divisors, initialisation, rate, steps; on any text, any batch."""
    ours = load_experiment(shipped_folder("experiments") / "miniature.yaml")
    training = replace(base.training, seed=ours.training.seed, tokens=ours.training.tokens)
    return (training, base.miniature, base.model.init) == (ours.training, ours.miniature, ours.model.init)


def find_last_eighth(cells: Cells, report: Summary) -> LastEighth | None:
    """Of base."""
    every = _rows(cells, report)
    return every and last_eighth(every[0])


def _rows(cells: Cells, report: Summary) -> tuple[Trained, list[Trained]] | None:
    """Base, and the rows that are compared with it: not those with other pieces, whose perplexities are not comparable.

    None where base has no scores.
    """
    rows, curves = [*report.rows, *(report.hidden or [])], cells.comparable.curves
    foreign = cells.study.foreign(cells.study.base_row)
    trained = {row.name: _trained(row, curves) for row in rows if row.ppl.by_seed}
    base = next((trained.get(row.name) for row in rows if row.base), None)
    own = [row.name for row in rows if not (row.base or row.same_as) and row.name not in foreign]
    return None if base is None else (base, [trained[name] for name in own if name in trained])


def _trained(row: SummaryRow, curves: Mapping[tuple[str, int], Curve]) -> Trained:
    metrics = [METRICS[name] for name in PRINTED if name in row.scores]
    return Trained(
        row.name,
        {m.name: None if (x := row.paper.of(m.name)) is None else m.transform(x) for m in metrics},
        {m.name: {int(s): m.transform(x) for s, x in row.metric(m.name).by_seed.items()} for m in metrics},
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
    paper_R = _in_the_paper(base, used, metric)
    ours_R = np.array([mean(row.values[metric].values()) - mean(base.values[metric].values()) for row in used])
    size_R, logs_R = _sizes(used), np.log(_sizes(used)) - np.log(_sizes([base]))
    clear_R = np.abs(paper_R) > m.clear
    with_paper_R = clear_R & (ours_R * paper_R > 0)
    unit = 100.0 if m.log else 1.0
    return MetricAgreement(
        rows=len(used),
        spearman=_number(rank_correlation(ours_R, paper_R)),
        parameter_count_alone=_number(rank_correlation(m.side * size_R, paper_R)),
        error_in_size={
            name: _number(unit * left_out_error(x_R, paper_R))
            for name, x_R in zip(ERRORS, (ours_R, logs_R, np.zeros(len(used))), strict=True)
        },
        clear_beyond=_six_decimals(m.clear),
        clear_rows=int(clear_R.sum()),
        with_the_paper=int(with_paper_R.sum()),
        if_every_change_is_worse=int((clear_R & (paper_R * m.side < 0)).sum()),
        against_the_paper=[row.name for row, out in zip(used, clear_R & ~with_paper_R, strict=True) if out],
    )


def _in_the_paper(base: Trained, rows: Sequence[Trained], metric: str) -> np.ndarray:
    """Differences to base, which all have one."""
    return (np.array([row.paper[metric] for row in rows], dtype=float) - np.array(base.paper[metric], float)).round(9)


def _sizes(rows: Sequence[Trained]) -> np.ndarray:
    return np.array([math.nan if row.parameters is None else row.parameters for row in rows], dtype=float)


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
    return LastEighth(_six_decimals(fall), STILL_FALLING, fall > STILL_FALLING)


def read_at(curve: Curve, steps: int, shares: Sequence[float]) -> np.ndarray:
    """log PPL at these shares of a training of `steps`, straight between validations and level beyond them."""
    known = sorted(curve)
    return np.interp(shares, [step / steps for step in known], [math.log(curve[step]) for step in known])


def _course(base: Trained, rows: Sequence[Trained]) -> AgreementCourse | None:
    """The rank correlation in log PPL at every validation of base; the rows are the same throughout.

    Rows without a curve to the end are left out; so are validations near which a row has none.
    """
    whole = [(row, course) for row in rows if (course := _to_the_end(row))]
    base_curves = _to_the_end(base)
    if len(whole) < LEAST or not base_curves:
        return None
    shared = sorted(set.intersection(*map(set, base_curves)))
    near = [_near([s / base.steps for s in shared], c, row.steps) for row, course in whole for c in course]
    at = [step for step, whole_there in zip(shared, np.all(near, axis=0), strict=True) if whole_there]
    if not at:
        return None
    shares = [step / base.steps for step in at]
    base_V, *rows_RV = (
        np.mean([read_at(curve, row.steps, shares) for curve in course], axis=0)
        for row, course in [(base, base_curves), *whole]
    )
    paper_R = _in_the_paper(base, [row for row, _ in whole], "ppl")
    spearman_V = rank_correlation(np.stack(rows_RV, axis=-1) - base_V[:, None], paper_R)
    points = [
        {"share": _six_decimals(share), "step": step, "base ppl": _six_decimals(math.exp(y)), "spearman": _number(rank)}
        for share, step, y, rank in zip(shares, at, base_V, spearman_V, strict=True)
    ]
    null = rank_correlation(-_sizes([row for row, _ in whole]), paper_R)
    return AgreementCourse(len(whole), _number(null), points)


def _to_the_end(row: Trained) -> list[Curve]:
    return [curve for curve in row.curves.values() if max(curve, default=0) >= row.steps]


def _near(shares: Sequence[float], curve: Curve, steps: int) -> list[bool]:
    known = np.array([step / steps for step in curve])
    return [bool(np.abs(known - share).min() <= NEAR) for share in shares]


def _number(value: float) -> float | None:
    """`_six_decimals`; None for NaN."""
    return _six_decimals(value) if math.isfinite(value) else None


def _six_decimals(value: float) -> float:
    """To six decimals, so that the order of a sum on another machine does not change a byte."""
    return round(float(value), 6) + 0.0


# --- in words ---

SPEED = "not converged, so differences partly reflect how fast rows learn"


def _figure(value: float | None) -> str:
    return NOTHING if value is None else numeral(value, "z.2f")


FIGURES = ("Rows that differ in the paper, with its sign here", "Rank correlation (Spearman)", "Error in size")


def figures(m: Metric, agreement: MetricAgreement) -> list[str]:
    """The values of FIGURES in one metric, each beside what needs no experiment; a dash for what is unknown."""
    by_size = agreement.if_every_change_is_worse
    signs = f"{agreement.with_the_paper} of {agreement.clear_rows} ({by_size} if every change were worse)"
    ranks = f"{_figure(agreement.spearman)} (parameter count alone {_figure(agreement.parameter_count_alone)})"
    digits, unit = f"z.{m.difference_digits}f", f"in 100 × {m.tested_as}" if m.log else m.unit
    sizes = [NOTHING if x is None else numeral(x, digits) for x in map(agreement.error_in_size.get, ERRORS)]
    return [signs, ranks, "{} {unit} (parameter count alone {}, no difference {})".format(*sizes, unit=unit)]


def _line(agreement: Agreement | None, fall: LastEighth | None) -> str:
    """For the end of a table in a terminal, no break before %; empty where nothing is known."""
    parts = []
    if agreement is not None:
        ppl = agreement.ppl
        parts.append(f"{ppl.with_the_paper} of {ppl.clear_rows} rows that differ in the paper have its sign here")
        if ppl.spearman is not None:
            alone = f" (parameter count alone {_figure(ppl.parameter_count_alone)})"
            parts.append(f"rank correlation {_figure(ppl.spearman)}" + alone * (ppl.parameter_count_alone is not None))
    if fall is not None:
        unbroken = fell(fall).replace(" %", "\N{NO-BREAK SPACE}%")
        parts.append(f"base {unbroken} in the last eighth" + f": {SPEED}" * fall.still_falling)
    return "; ".join(parts)


def fell(fall: LastEighth) -> str:
    """How base's perplexity moved."""
    percent = 100 * fall.fall
    return f"rose {-percent:.1f} %" if percent <= -0.05 else f"still fell {max(percent, 0):.1f} %"


def notes(agreement: Agreement, report: Summary) -> list[str]:
    """Every figure, a sentence for each metric; the course of training."""
    lines = []
    for m, of_metric in _each(agreement):
        values = "; ".join(f"{key.lower()} {x}" for key, x in zip(FIGURES, figures(m, of_metric), strict=True))
        lines.append(f"Agreement with the paper in {m.tested_as}, {of_metric.rows} rows: {values}")
    lines += [clear(agreement), ERROR_IN_SIZE, FEW_ROWS, *_chosen(agreement, {})]
    if course := agreement.curve:
        lines.append(
            f"Rank correlation in log PPL in the course of training, {course.rows} rows, each at the same share of "
            f"its own training: {', '.join(map(at, course.points))}"
        )
    return lines


def _each(agreement: Agreement) -> list[tuple[Metric, MetricAgreement]]:
    return [(METRICS[name], of_metric) for name, of_metric in agreement.by_metric.items() if of_metric]


def _chosen(agreement: Agreement, called: Mapping[str, str]) -> list[str]:
    """Which rows the regime was chosen on. `called`: what people call a row, where that is not its name."""
    rows = ", ".join(called.get(row) or row for row in agreement.calibrated_on or [])
    return [f"The shipped training setup was chosen on base and {rows}"] * bool(rows)


ERROR_IN_SIZE = (
    "The error in size is what a factor fitted on the other rows leaves of each row's difference in the paper "
    "(root mean square)"
)
FEW_ROWS = (
    "Over 19 rows a rank correlation must reach about 0.92 to be told from a parameter count's 0.77 (Williams 1959)"
)


def clear(agreement: Agreement) -> str:
    beyond = [(m, of_metric.clear_beyond) for m, of_metric in _each(agreement)]
    sizes = [f"{100 * x:.1f} % of {m.prose_name}" if m.log else m.size(x) for m, x in beyond]
    return (
        f"A row differs in the paper where its difference to base exceeds the noise of single runs: {', '.join(sizes)}"
    )


def about(agreement: Agreement, called: Mapping[str, str]) -> list[str]:
    """What the figures are, for a page; `called`: what people call a row."""
    against = ", ".join(called.get(row) or row for row in agreement.ppl.against_the_paper)
    sentences = [
        f"{clear(agreement)} (two standard deviations of a difference of two)",
        f"{ERROR_IN_SIZE}; for the parameter count the factor is of its logarithm",
        FEW_ROWS,
        *[f"Rows that differ in the paper's perplexity and do not have its sign here: {against}"] * bool(against),
        *_chosen(agreement, called),
    ]
    return [f"{sentence}." for sentence in sentences]


def at(point: Mapping[str, Any]) -> str:
    return f"{100 * point['share']:.3g} % {_figure(point['spearman'])}"


def _fall_sentence(fall: LastEighth) -> str:
    """A sentence, which is a warning where base was still learning."""
    sentence = f"Base's dev perplexity {fell(fall)} over the last eighth of its training"
    limit = f"{100 * fall.threshold:.0f} %"
    return sentence + (f", more than {limit}: {SPEED}" * fall.still_falling)


def sections(agreement: Agreement, report: Summary) -> list[Section]:
    """Every figure of each metric, what it means, and the course of training."""
    fall = report.of(LAST_EIGHTH)
    warning = [f"{'Warning: ' * fall.still_falling}{_fall_sentence(fall)}."] if fall else []
    values = [figures(m, of_metric) for m, of_metric in _each(agreement)]
    heads = columns("figure", *(f"{m.tested_as}, {of_metric.rows} rows" for m, of_metric in _each(agreement)))
    table = Table("", heads, [list(row) for row in zip(FIGURES, *values, strict=True)])
    blocks: list[Block] = [Text(warning), table, Notes(about(agreement, {row.name: row.called for row in report.rows}))]
    if course := agreement.curve:
        caption = (
            f"Log PPL, {course.rows} rows, each at the same share of its own training. Dashed: the parameter count "
            "alone"
        )
        caption += f". Shaded: the last eighth, over which base's dev perplexity {fell(fall)}." if fall else "."
        of_points = "share of the training, rank correlation"
        heads = columns("step of base", "base's PPL", of_points, words=[of_points])
        points = [[f"{p['step']:,}", f"{p['base ppl']:.2f}", at(p)] for p in course.points]
        blocks += [
            Figures([(both(_course_chart(course)), caption)]),
            Fold("The same as a table", [Table("", heads, points)]),
        ]
    return [Section("agreement", "Agreement over all rows", blocks, after="verdicts")]


def _course_chart(course: AgreementCourse) -> Chart:
    """Rank correlation with the paper in the course of training; the parameter count's dashed."""
    line = [
        Point(p["share"], p["spearman"], f"step {p['step']:,} of base, base PPL {p['base ppl']:.3g}: {at(p)}")
        for p in course.points
        if p["spearman"] is not None
    ]
    null = course.parameter_count_alone
    title = f"Rank correlation with the paper in the course of training: {', '.join(map(at, course.points))}"
    rules = [] if null is None else [Rule(y=null, words=("parameter", "count alone", _figure(null)))]
    return Chart(
        title + f"; the parameter count alone {_figure(null)}" * bool(rules),
        Axis(SHARE, words=QUARTERS, ends=(0.0, 1.0)),
        Axis("Spearman, log PPL", ends=(min([0.0, null or 0.0, *(p.y for p in line)]) - 0.05, 1.0)),
        [Series("course", line, "better", marked=True, of="line")],
        rules=rules,
        shade=(0.875, 1.0),
    )


LAST_EIGHTH: Analysis[LastEighth] = Analysis(
    key="last eighth",
    find=find_last_eighth,
    notes=lambda fall, report: [_fall_sentence(fall)],
    notes_on_page=False,
    brief=lambda fall, report: [] if report.of(ANALYSIS) else [_line(None, fall)],
    without_tests=True,
)
ANALYSIS: Analysis[Agreement] = Analysis(
    key="agreement",
    find=find,
    sections=sections,
    notes=notes,
    notes_on_page=False,
    brief=lambda agreement, report: [_line(agreement, report.of(LAST_EIGHTH))],
    without_tests=True,
)
