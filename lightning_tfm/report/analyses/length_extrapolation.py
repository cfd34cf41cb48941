"""What lines beyond the training length cost, in words, as a table and as a line for each row with its seeds' band."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup

from lightning_tfm.metrics import OF_TEXT
from lightning_tfm.plural_words import interval, listed, p_value, signed
from lightning_tfm.report.analyses.length_extrapolation_statistics import (
    CARRIES,
    FALLS_OFF,
    BeyondRow,
    BeyondSummary,
    analyse,
)
from lightning_tfm.report.blocks import NOTHING, Block, Column, Figures, Fold, Notes, Section, Table, Text, Widest
from lightning_tfm.report.charts.chart import Axis, Chart, Point, Rule, Series, both
from lightning_tfm.report.charts.panels import BASE, row_classes, short_names
from lightning_tfm.report.records import Cells
from lightning_tfm.report.summary import Analysis, Interval, Summary, SummaryRow
from lightning_tfm.report.tables import columns
from lightning_tfm.report.wording.verdict_words import OPEN, Verdict

NAMED = 3
"""rows that a sentence names"""
METRICS = {"nll": "NLL per token", OF_TEXT.name: OF_TEXT.label, "ratio": "length ratio, translation over reference"}
SIDES = ("source", "target")
LINES = 5
"""of a class, below which it is not drawn: a score of fewer lines is noise"""


def pictures(summary: BeyondSummary, rows: Sequence[SummaryRow]) -> list[tuple[Markup, str]]:
    """By the source's length, where there is one, and by the target's, with their titles; none where there is nothing
    to draw.

    `rows`: of the report, for their colours and labels.
    """
    made = []
    for metric, side in itertools.product(METRICS, SIDES if has_translations(summary) else SIDES[1:]):
        if any(getattr(point, metric) is not None for row in summary.rows for point in row.points[side]):
            made.append((both(_chart(summary, rows, side, metric)), f"{METRICS[metric]}, by the {side}'s length"))
    return made


def _chart(summary: BeyondSummary, rows: Sequence[SummaryRow], side: str, metric: str) -> Chart:
    """A line for each row through the middles of its classes with lines enough, and its seeds' band."""
    classes, names, series = row_classes(rows), short_names(rows, 24), []
    called = {row.name: row.called for row in rows}
    for row in summary.rows:
        line = []
        for p in row.points[side]:
            score, at = getattr(p, metric), (p.above + p.upto) / 2
            if score is not None and p.sentences >= LINES:
                ends = f"{score.lowest:.3g} to {score.highest:.3g}"
                tip = f"{called[row.row]}, {at:g} training lengths: {score.mean:.3g} ({ends})"
                line.append(Point(at, score.mean, tip, score.lowest, score.highest))
        class_ = classes[row.row] + " base" * (classes[row.row] == BASE)
        series.append(Series(row.row, line, class_, names[row.row], called[row.row], marked=True))
    drawn = [p for curve in series for p in curve.points]
    upwards = None if metric == "nll" or not drawn else (0.0, 1.06 * max(p.high or 0.0 for p in drawn) or 1.0)
    return Chart(
        f"{METRICS[metric]} by the {side}'s length in training lengths",
        Axis(f"length of the {side} / training length", ends=(0.0, max((p.x for p in drawn), default=1.0))),
        Axis(METRICS[metric], ends=upwards),
        series,
        (620, 400),
        [Rule(x=1.0, words=["longest trained on"])],
    )


def find(cells: Cells, report: Summary) -> BeyondSummary | None:
    """Of the rows that the report shows."""
    summary = analyse(cells.comparable, report.looks is None)
    shown = {row.name for row in report.rows}
    return summary and replace(summary, rows=[row for row in summary.rows if row.row in shown])


def lead(summary: BeyondSummary, report: Summary) -> list[str]:
    """Which rows extrapolate beyond the training length."""
    called = {row.name: row.called for row in report.rows}
    by_word: dict[str, list[str]] = {}
    for row in summary.rows:
        by_word.setdefault(row.word, []).append(called[row.row])
    verbs = {CARRIES: ("extrapolates", "extrapolate"), FALLS_OFF: ("degrades", "degrade")}
    parts = []
    for word, verb in verbs.items():
        if names := by_word.get(word):
            count = "every row" if len(names) == len(called) else f"{len(names)} rows"
            who = listed(names) if len(names) <= NAMED else count
            parts.append(f"{who} {verb[who != 'every row' and len(names) > 1]}")
    parts += [f"{len(names)} {word.clause[len(names) > 1]}" for word in OPEN if (names := by_word.get(word))]
    ahead = [(x.estimate, r.row) for r in summary.rows if r.compared == Verdict.BETTER and (x := r.against)]
    best = sorted((x, called[row]) for x, row in ahead if x is not None)[:NAMED]
    least = f" {listed([name for _, name in best])} lose{'s' * (len(best) == 1)} least there" if best else ""
    sizes = ", ".join(signed(x, 2) for x, _ in best)
    least += f" ({sizes} nats per token against base)." * bool(best)
    return [f"Beyond the training length {listed(parts)}.{least}"] if parts else []


def sections(summary: BeyondSummary, report: Summary) -> list[Section]:
    answer = Text([words] if (words := verdict(summary)) else [])
    table = [_table(summary, columns.row_labels(report.rows))] * bool(summary.rows)
    made, names = pictures(summary, report.rows), {row.name: row.called for row in report.rows}
    shown = "Mean over seeds; the band spans the seeds. Classes of half a training length, drawn at their middles."
    of_translations = Fold(f"{OF_TEXT.label} and the length of translations", [Figures(made[2:], rows=names)])
    figures: list[Block] = [Figures(made[:2], rows=names, about=shown)] * bool(made)
    figures += [of_translations] * bool(made[2:])
    return [Section("beyond", "Beyond the training length", [answer, *figures, *table, Notes(about(summary))])]


def _table(summary: BeyondSummary, labels: Mapping[str, str]) -> Widest:
    """Without the columns for which there is no room."""
    over = RISE if summary.control is None else replace(RISE, head=f"rise over {summary.control}'s [95 %]")
    shown = SHOWN if has_translations(summary) else SHOWN[: -len(OF_TRANSLATIONS)]
    heads = [over if column is RISE else column for column, _ in shown]
    cells = [[columns.name_cell(r.row, labels), *(cell(r) for _, cell in shown[1:])] for r in summary.rows]
    wide = Table("", heads, cells)
    kept = [i for i, column in enumerate(wide.columns) if column.lines]
    short = replace(wide, columns=[wide.columns[i] for i in kept], rows=[[row[i] for i in kept] for row in wide.rows])
    return Widest([[replace(wide, columns=[replace(c, lines="") for c in wide.columns])], [short]])


def interval_cell(ends: Interval | None) -> str:
    """+0.12 [+0.10, +0.14]; a dash for none."""
    if ends is None or ends.estimate is None:
        return NOTHING
    return f"{signed(ends.estimate, 2)} {interval(ends.lower, ends.upper, lambda x: signed(x, 2))}".rstrip()


RISE = Column("rise [95 %]", lines="rise [95 %]")
OF_TRANSLATIONS: list[tuple[Column, Callable[[BeyondRow], str]]] = [
    (Column(f"{OF_TEXT.label} within"), lambda r: f"{r.bleu_within:.1f}"),
    (Column(f"{OF_TEXT.label} beyond"), lambda r: f"{r.bleu_beyond:.1f}"),
    (Column("length ratio", lines="ratio"), lambda r: f"{r.ratio:.2f}"),
    (Column("early %"), lambda r: f"{100 * (r.early or 0):.0f}"),
]
SHOWN: list[tuple[Column, Callable[[BeyondRow], str]]] = [
    (Column("row", True, lines="row"), lambda r: r.row),
    (Column("n"), lambda r: str(r.n)),
    (Column("NLL within", lines="within"), lambda r: f"{r.within:.3f}"),
    (Column("NLL beyond", lines="beyond"), lambda r: f"{r.beyond:.3f}"),
    (RISE, lambda r: interval_cell(r.excess)),
    (Column("verdict", True, lines="verdict"), lambda r: r.word),
    (Column("reach", lines="reach"), lambda r: f"{r.reach:g} ×"),
    (Column("beyond, less base's [95 %]"), lambda r: interval_cell(r.against)),
    (Column("p (BH)"), lambda r: p_value(r.p)),
    (Column("against base", True), lambda r: r.compared),
    *OF_TRANSLATIONS,
]
"""columns with their cells; those that stay where there is little room have a head for there"""


def verdict(summary: BeyondSummary) -> str:
    """“Sentence” word (why); empty where the study does not ask for it."""
    return f"“{summary.sentence}” {summary.verdict} ({summary.why})" if summary.sentence else ""


def about(summary: BeyondSummary) -> list[str]:
    """What the numbers are."""
    rise = "rise: NLL per token beyond less that within"
    if summary.control is not None:
        rise += f", less the same of {summary.control}, which trained on lines of all these lengths"
    told = [
        f"{summary.lines} lines of '{summary.split}', lengths in multiples of the training length of {summary.limit} "
        "tokens, end token included; within: the longer side has half to all of it",
        rise,
        f"extrapolates, degrades: the 95 % interval of the rise is below, above {summary.tolerance:g} nats per token; "
        "reach: how far its mean stays below, class by class",
    ]
    ratio = "length ratio and early (less than half of the reference's tokens): of the translations beyond"
    return [*told, *[ratio] * has_translations(summary), *summary.missing]


def has_translations(summary: BeyondSummary) -> bool:
    return all(row.bleu_beyond is not None for row in summary.rows)


ANALYSIS = Analysis(key="beyond the training length", find=find, sections=sections, lead=lead, in_text=True)
