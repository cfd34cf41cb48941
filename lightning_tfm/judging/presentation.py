"""Verdicts as the main figure (report/charts/forest.py) and blocks (report/blocks.py), for every format, and data."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_tfm.judging.scores import Aim
from lightning_tfm.judging.verdicts import JudgedRow, Judgement
from lightning_tfm.plural_words import interval, p_value, plural, signed
from lightning_tfm.report.blocks import Block, Cell, Column, Figures, Main, Notes, Section, Table, Widest
from lightning_tfm.report.charts.forest import Axis, Entry, Forest, Line, finding, tally
from lightning_tfm.report.serialize import Data
from lightning_tfm.report.stats.base_alone import warning
from lightning_tfm.report.stats.statistics import ALPHA
from lightning_tfm.report.wording.verdict_words import Verdict

if TYPE_CHECKING:
    from lightning_tfm.report.render.every_format import Document

SCHEMA = 1
NUMBERS = {"difference": "estimate", "se": "se", "df": "df", "lower": "lower", "upper": "upper"}
NUMBERS |= {"p (BH)": "p", "p (Holm)": "holm", "seeds needed": "needed"}
MOST_DIGITS = 16
"""after the point, for scores as small as 1e-14"""
DRAWN = 100
"""rows that are drawn, those that differ most"""
SCOPES = ("Over seeds, for this one test set.", "Over seeds and test sets like this one.")
WITH_ITEMS = (
    "intervals and verdicts of {} are over seeds and over test sets like this one (paired bootstrap over its items)"
)
SEEDS_ONLY = "verdicts are over seeds, for this one test set; --items says what another test set would do"


def digits(rows: Sequence[JudgedRow], aim: Aim) -> int:
    """Decimals of a difference, so that half of most intervals has two digits."""
    halves = [abs(aim.in_units(2 * float(r.evidence.se))) for r in rows if r.evidence and r.evidence.se > 0]
    middle = sorted(halves)[len(halves) // 2] if halves else 0.01
    return min(max(1 - math.floor(math.log10(middle)), 0), MOST_DIGITS)


# --- the main figure ---


def forest(judgement: Judgement, aims: Sequence[Aim] = ()) -> Forest:
    """The rows, the best first; of many those that differ most. `aims`: the axes, by default the first two."""
    aims = aims or judgement.aims[:2]
    axes = [Axis(a.name, a.log, a.lower_is_better, max(digits(judgement.rows[a.name], a), int(a.log))) for a in aims]
    by_row = [{row.row: _entry(row, aim) for row in judgement.rows[aim.name]} for aim in aims]
    lines = [Line(name, [entries.get(name) for entries in by_row]) for name, entry in by_row[0].items() if entry]
    estimate = {line.name: line.entries[0].estimate for line in lines if line.entries[0]}
    lines.sort(key=lambda line: estimate[line.name] * -aims[0].side)
    least = min(sorted(map(abs, estimate.values()))[-DRAWN:], default=0.0)
    counts = {row.n for row in judgement.rows[aims[0].name] if row.row in estimate}
    seeds = plural(counts.pop(), "seed") if len(counts) == 1 else ""
    diverged = [row.row for row in judgement.rows[aims[0].name] if row.diverged]
    counted = tally(lines, seeds, "the published numbers", diverged)
    title = " ".join(filter(None, [finding(axes, lines, judgement.to), counted]))
    published = "published" * any(entry.published is not None for entry in by_row[0].values() if entry)
    drawn = [line for line in lines if abs(estimate[line.name]) >= least]
    return Forest(title, SCOPES[judgement.with_items], axes, drawn, seeds, published=published, to=judgement.to)


def _entry(row: JudgedRow, aim: Aim) -> Entry | None:
    if (e := row.evidence) is None or not math.isfinite(float(e.estimate)):
        return None
    low, high = (None if math.isnan(x) else aim.in_units(x) for x in (e.lower, e.upper))
    published = None if row.published is None else aim.in_units(row.published)
    return Entry(aim.in_units(float(e.estimate)), low, high, row.verdict, row.beside, published)


@dataclass(frozen=True)
class Picture:
    """SVG, which a notebook shows."""

    svg: str

    def _repr_svg_(self) -> str:
        from lightning_tfm.report.charts.svg import standalone_svg

        return standalone_svg(self.svg)


def picture(judgement: Judgement, aims: Sequence[Aim] = ()) -> Picture:
    """The main figure with its title."""
    from lightning_tfm.report.charts.forest_picture import wide

    return Picture(wide(forest(judgement, aims), titled=True))


def seeds_picture(judgement: Judgement) -> Picture:
    """Every run of the metric that decides as a dot, a line for each row; empty for many rows."""
    from lightning_tfm.report.charts import chart
    from lightning_tfm.report.charts.panels import short_name

    aim = judgement.aims[0]
    rows = {-float(i): row for i, row in enumerate(judgement.rows[aim.name])}
    series = []
    for y, row in rows.items() if len(rows) <= DRAWN else ():
        runs = [chart.Point(x, y, f"{row.row}, seed {s}: {x:g}") for s, x in row.seeds.items() if math.isfinite(x)]
        mean = [chart.Point(row.mean, y, low=y - 0.35, high=y + 0.35)] * math.isfinite(row.mean)
        series.append(chart.Series(row.row, mean, "g0", bars=True, of="line"))
        series.append(chart.Series(row.row, runs, "g1", line=False, r=3.0, of="line"))
    names = {y: short_name(row.row) for y, row in rows.items()}
    lines, size = chart.Axis(ends=(0.5 - len(rows), 0.5), words=names), (620, 70 + 20 * len(rows))
    return Picture(
        chart.draw(chart.Chart(f"{aim.name} of every run", chart.Axis(aim.name, aim.log), lines, series, size))
    )


# --- tables and notes ---


def table(judgement: Judgement, aim: Aim, narrow: bool = False) -> Table:
    """All rows in one metric. `narrow`: without the standard deviation and p."""
    rows = judgement.rows[aim.name]
    decimals, published = digits(rows, aim), any(row.published is not None for row in rows)
    score = Column("mean" if narrow else "mean ± sd", kind="score", lower_is_better=aim.lower_is_better)
    heads = [Column("row", True), Column("n"), score, Column("Δ" + ", %" * aim.log, kind="difference"), Column("95 %")]
    heads += [Column("p", kind="p")] * (not narrow) + [Column("published")] * published + [Column("verdict", True)]
    title = f"{aim.name} ({'lower' if aim.lower_is_better else 'higher'} is better); Δ to {judgement.to}"
    return Table(title, heads, [list(_cells(row, aim, decimals, published, narrow)) for row in rows])


def _cells(row: JudgedRow, aim: Aim, decimals: int, published: bool, narrow: bool) -> Iterator[str | Cell]:
    of_scores = max(decimals, 3 - math.floor(math.log10(abs(row.mean)))) if aim.log and row.mean else decimals
    mean = f"{row.mean:.{min(max(of_scores, 0), MOST_DIGITS)}f}" if math.isfinite(row.mean) else "–"
    spread = "" if narrow or math.isnan(row.sd) else f"± {row.sd:.{decimals}f}" + " %" * aim.log
    yield from (row.row, str(row.n), Cell(mean, spread, row.mean if math.isfinite(row.mean) else None))
    e = row.evidence
    if e is None:
        yield from [""] * (2 if narrow else 3)
    else:
        shown = aim.in_units(float(e.estimate))
        ends = None if math.isnan(e.lower) else (aim.in_units(e.lower), aim.in_units(e.upper))
        yield Cell(signed(shown, decimals), value=shown, ends=ends)
        yield interval(*ends, lambda end: signed(end, decimals)) if ends else ""
        yield from [Cell(p_value(e.p), value=None if math.isnan(e.p) else e.p)] * (not narrow)
    if published:
        yield "–" if row.published is None else signed(aim.in_units(row.published), decimals)
    sure, line = e is not None and e.holm < ALPHA, ", ".join(filter(None, [row.verdict, row.beside]))
    yield Cell(row.verdict, row.beside, word=row.verdict, said=line, sure=sure) if row.verdict else ""


def notes(judgement: Judgement) -> list[str]:
    """What the numbers mean, and what is missing."""
    first, logs, to = judgement.aims[0], [aim.name for aim in judgement.aims if aim.log], judgement.to
    lines = [
        *warning(judgement.base, judgement.alone),
        "mean ± standard deviation (n-1)"
        + (f"; of {', '.join(logs)} the geometric mean, ± of logarithms in percent" if logs else "")
        + "; 95 % intervals are of each difference alone; verdicts use p, corrected over the rows of a metric by "
        "Benjamini and Hochberg, bold: by Holm too; seeds are not paired",
    ]
    if judgement.target is None:
        if len(judgement.aims) > 1:
            lines.append(f"{first.name} decides; the other metrics are corrected over their own rows alone")
        lines.append(WITH_ITEMS.format(first.name) if judgement.with_items else SEEDS_ONLY)
    if lacks := [aim.name for aim in judgement.aims if aim.margin is None]:
        lines.append(f"{', '.join(lacks)}: without a margin (NAME:higher:MARGIN) no row is called equal to {to}")
    rows = [row for every in judgement.rows.values() for row in every]
    if any(row.verdict == Verdict.UNTESTABLE and row.missing for row in rows):
        lines.append("with fewer than five seeds a row has an interval and no verdict")
    if any(row.verdict == Verdict.UNDECIDED for row in rows):
        also = f" and of {judgement.base}" * (judgement.target is None)
        lines.append(f"seeds: of the row{also}, to find the difference if it is as estimated")
    return [*lines, *judgement.notes]


def terminal(judgement: Judgement, width: int = 79, colour: bool = False) -> str:
    """The forest, the tables, the notes."""
    from lightning_tfm.report.charts import forest_text
    from lightning_tfm.report.render.text import to_text

    tables: list[Block] = []
    for aim in judgement.aims:
        wide, thin = ([table(judgement, aim, narrow)] for narrow in (False, True))
        tables.append(Widest([wide, thin, thin]))
    drawn = forest_text.to_text(forest(judgement), width, colour)
    return drawn + "\n" * bool(drawn) + to_text([*tables, Notes(notes(judgement))], width)


# --- data ---


def data(judgement: Judgement) -> Iterator[dict[str, object]]:
    """A line for each row and metric, at full precision; differences as they are tested (log: of logarithms)."""
    for row in (row for aim in judgement.aims for row in judgement.rows[aim.name]):
        numbers = {head: getattr(row.evidence, name) if row.evidence else None for head, name in NUMBERS.items()}
        line = {"row": row.row, "metric": row.metric, "n": row.n, "diverged": row.diverged, "mean": row.mean}
        line |= {"sd": row.sd, **numbers, "verdict": str(row.verdict), "beside": row.beside, "why": row.why}
        yield {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in line.items()}


def formula_safe(lines: Data) -> Data:
    """Texts that a spreadsheet would take for a formula begin with an apostrophe."""
    starts = tuple("=+-@")
    return [{k: f"'{v}" if isinstance(v, str) and v.startswith(starts) else v for k, v in x.items()} for x in lines]


def analysis(judgement: Judgement) -> "Document":
    """For every format but a terminal's; on a page the forest, the tables, the seeds and the method."""
    from markupsafe import Markup

    from lightning_tfm.report.render.every_format import Document

    aims, lines, main = judgement.aims, list(data(judgement)), forest(judgement)
    dots = [(Markup(svg), "One dot per run; the bar is the mean.") for svg in [seeds_picture(judgement).svg] if svg]
    parts = [
        Section("forest", "Differences", [Main(main)] * bool(main.lines)),
        Section("rows", "Rows", [table(judgement, aim) for aim in aims]),
        Section("seeds", "Seeds", [Figures(dots)] * bool(dots)),
        Section("method", "How to read this", [Notes(notes(judgement))]),
    ]
    metrics = [{"name": a.name, "lower is better": a.lower_is_better, "log": a.log, "margin": a.margin} for a in aims]
    whole: dict[str, object] = {"source": judgement.source, "base": judgement.base, "target": judgement.target}
    whole |= {"metrics": metrics, "base stands apart": judgement.alone, "rows": lines, "notes": notes(judgement)}
    head = f"{plural(len(judgement.rows[aims[0].name]), 'row')} of {judgement.source}, against {judgement.to}"
    return Document(
        Path(judgement.source).absolute().name,
        "",
        "judge",
        head,
        parts,
        formula_safe(lines),
        whole,
        SCHEMA,
        [main.title, *warning(judgement.base, judgement.alone)],
        main.scope,
    )
