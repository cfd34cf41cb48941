"""Verdicts as the main figure (report/charts/forest.py) and blocks (report/blocks.py), for every format, and data."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_tfm.judging.scores import Aim
from lightning_tfm.judging.verdicts import SEEDS_ONLY, WITH_ITEMS, Judged, Judgement
from lightning_tfm.plural_words import interval, plural, signed
from lightning_tfm.report.blocks import Block, Cell, Column, Figures, Notes, Section, Table, Text, Widest
from lightning_tfm.report.charts.forest import Axis, Entry, Forest, Line, finding, tally
from lightning_tfm.report.serialize import Data
from lightning_tfm.report.stats.base_alone import CHEAPEST
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


def digits(rows: Sequence[Judged], aim: Aim) -> int:
    """Decimals of a difference, so that half of most intervals has two digits."""
    halves = [abs(aim.shown(2 * float(r.evidence.se))) for r in rows if r.evidence and r.evidence.se > 0]
    middle = sorted(halves)[len(halves) // 2] if halves else 0.01
    return min(max(1 - math.floor(math.log10(middle)), 0), MOST_DIGITS)


# --- the main figure ---


def forest(judgement: Judgement, aims: Sequence[Aim] = ()) -> Forest:
    """The rows, the best first; of many those that differ most. `aims`: the axes, by default the first two."""
    aims = aims or judgement.aims[:2]
    axes = [
        Axis(aim.name, aim.log, aim.lower_is_better, max(digits(judgement.rows[aim.name], aim), aim.log * 1))
        for aim in aims
    ]
    by_row = [{one.row: _entry(one, aim) for one in judgement.rows[aim.name]} for aim in aims]
    lines = [Line(row, [entries.get(row) for entries in by_row]) for row, entry in by_row[0].items() if entry]
    lines.sort(key=lambda line: line.entries[0].estimate * (1 if aims[0].lower_is_better else -1))  # type: ignore[union-attr]
    size = {line.name: abs(line.entries[0].estimate) for line in lines if line.entries[0]}
    least = min(sorted(size.values())[-DRAWN:], default=0.0)
    counts = {one.n for one in judgement.rows[aims[0].name] if one.row in size}
    seeds = plural(counts.pop(), "seed") if len(counts) == 1 else ""
    title = " ".join(filter(None, [finding(axes[0], lines, judgement.to), tally(lines, seeds, "")]))
    published = "published" * any(line.entries[0].published is not None for line in lines if line.entries[0])
    drawn = [line for line in lines if size[line.name] >= least]
    return Forest(title, SCOPES[judgement.with_items], axes, drawn, seeds, published=published, to=judgement.to)


def _entry(one: Judged, aim: Aim) -> Entry | None:
    if (e := one.evidence) is None or not math.isfinite(float(e.estimate)):
        return None
    low, high = (None if math.isnan(x) else aim.shown(x) for x in (e.lower, e.upper))
    published = None if one.published is None else aim.shown(one.published)
    return Entry(aim.shown(float(e.estimate)), low, high, one.verdict, one.beside, published)


@dataclass(frozen=True)
class Picture:
    """SVG, which a notebook shows."""

    svg: str

    def _repr_svg_(self) -> str:
        from lightning_tfm.report.charts.svg import standing_alone

        return standing_alone(self.svg)


def picture(judgement: Judgement, aims: Sequence[Aim] = ()) -> Picture:
    """The main figure with its title."""
    from lightning_tfm.report.charts.forest_picture import wide

    return Picture(wide(forest(judgement, aims), titled=True))


def seeds_picture(judgement: Judgement) -> Picture:
    """Every run of the metric that decides as a dot, a line for each row; empty for many rows."""
    from lightning_tfm.report.charts.panels import short_name
    from lightning_tfm.report.charts.svg import bottom_axis, dot, figure, label, spanning, tag

    aim = judgement.aims[0]
    rows = judgement.rows[aim.name]
    runs = [(i, s, v) for i, one in enumerate(rows) for s, v in one.seeds.items() if math.isfinite(v)]
    if len(rows) > DRAWN or not runs:
        return Picture("")
    left, top, width = 18 + 7 * max(min(len(one.row), 30) for one in rows), 12, 620
    bottom = top + 20 * len(rows)
    x = spanning([v for *_, v in runs], left, width - 14, log=aim.log)
    body = bottom_axis(x, bottom, top, aim.name)
    for i, one in enumerate(rows):
        y = top + 20 * (i + 0.5)
        body += label(left - 10, y + 4, short_name(one.row), "end")
        if math.isfinite(one.mean):
            body += tag("line", x1=x(one.mean), x2=x(one.mean), y1=y - 7, y2=y + 7, class_="axis")
    dots = (dot(x(v), top + 20 * (i + 0.5), f"{rows[i].row}, seed {s}: {v:g}", 3.0) for i, s, v in runs)
    body += tag("g", "".join(dots), class_="point g1")
    return Picture(figure(width, bottom + 42, f"{aim.name} of every run", body))


# --- tables and notes ---


def table(judgement: Judgement, aim: Aim, narrow: bool = False) -> Table:
    """All rows in one metric. `narrow`: without the standard deviation and p."""
    rows = judgement.rows[aim.name]
    fine, published = digits(rows, aim), any(one.published is not None for one in rows)
    score = Column("mean" if narrow else "mean ± sd", kind="score", lower_is_better=aim.lower_is_better)
    heads = [Column("row", True), Column("n"), score, Column("Δ" + ", %" * aim.log, kind="difference"), Column("95 %")]
    heads += [Column("p", kind="p")] * (not narrow) + [Column("published")] * published + [Column("verdict", True)]
    title = f"{aim.name} ({'lower' if aim.lower_is_better else 'higher'} is better); Δ to {judgement.to}"
    return Table(title, heads, [list(_cells(one, aim, fine, published, narrow)) for one in rows])


def _cells(one: Judged, aim: Aim, fine: int, published: bool, narrow: bool) -> Iterator[str | Cell]:
    of_scores = max(fine, 3 - math.floor(math.log10(abs(one.mean)))) if aim.log and one.mean else fine
    mean = f"{one.mean:.{min(max(of_scores, 0), MOST_DIGITS)}f}" if math.isfinite(one.mean) else "–"
    spread = "" if narrow or math.isnan(one.sd) else f"± {one.sd:.{fine}f}" + " %" * aim.log
    yield from (one.row, str(one.n), Cell(mean, spread, one.mean if math.isfinite(one.mean) else None))
    e = one.evidence
    if e is None:
        yield from [""] * (2 if narrow else 3)
    else:
        shown = aim.shown(float(e.estimate))
        ends = None if math.isnan(e.lower) else (aim.shown(e.lower), aim.shown(e.upper))
        yield Cell(signed(shown, fine), value=shown, ends=ends)
        yield interval(*ends, lambda end: signed(end, fine)) if ends else ""
        yield from [Cell(_p(e.p), value=None if math.isnan(e.p) else e.p)] * (not narrow)
    if published:
        yield "–" if one.published is None else signed(aim.shown(one.published), fine)
    sure = e is not None and e.holm < ALPHA
    said = ", ".join(filter(None, [one.verdict, one.beside]))
    yield Cell(one.verdict, one.beside, word=one.verdict, said=said, sure=sure) if one.verdict else ""


def _p(p: float) -> str:
    return "" if math.isnan(p) else "< 0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 else f"{p:.2f}"


def notes(judgement: Judgement) -> list[str]:
    """What the numbers mean, and what is missing."""
    first, logs, to = judgement.aims[0], [one.name for one in judgement.aims if one.log], judgement.to
    found = _outlying_base(judgement)
    found += [
        "mean ± standard deviation (n-1)"
        + (f"; of {', '.join(logs)} the geometric mean, ± of logarithms in percent" if logs else "")
        + "; 95 % intervals are of each difference alone; verdicts use p, corrected over the rows of a metric by "
        "Benjamini and Hochberg, bold: by Holm too; seeds are not paired"
    ]
    if len(judgement.aims) > 1 and judgement.target is None:
        found.append(f"{first.name} decides; the other metrics are corrected over their own rows alone")
    if judgement.target is None:
        found.append(WITH_ITEMS.format(first.name) if judgement.with_items else SEEDS_ONLY)
    if lacks := [one.name for one in judgement.aims if one.margin is None]:
        found.append(f"{', '.join(lacks)}: without a margin (NAME:higher:MARGIN) no row is called equal to {to}")
    rows = [one for every in judgement.rows.values() for one in every]
    if any(one.verdict == Verdict.UNTESTABLE and one.missing for one in rows):
        found.append("with fewer than five seeds a row has an interval and no verdict")
    if any(one.verdict == Verdict.UNDECIDED for one in rows):
        found.append("seeds: of the row and of base, to find the difference if it is as estimated")
    return [*found, *judgement.notes]


def _outlying_base(judgement: Judgement) -> list[str]:
    said = f"{judgement.base} may be what stands apart: {judgement.alone}; {CHEAPEST}"
    return [said] * bool(judgement.alone)


def terminal(judgement: Judgement, width: int = 79, colour: bool = False) -> str:
    """The forest, the tables, the notes."""
    from lightning_tfm.report.charts.forest_text import to_text as drawn
    from lightning_tfm.report.render.text import to_text

    tables: list[Block] = []
    for aim in judgement.aims:
        wide, thin = ((table(judgement, aim, narrow), Notes([])) for narrow in (False, True))
        tables.append(Widest([wide, thin, thin]))
    picture = drawn(forest(judgement), width, colour)
    return picture + "\n" * bool(picture) + to_text([*tables, Notes(notes(judgement))], width)


def sections(judgement: Judgement) -> list[Section]:
    """The forest, the tables, the seeds, the method, on a page."""
    from markupsafe import Markup

    from lightning_tfm.report.charts.forest_picture import wide
    from lightning_tfm.report.charts.svg import tag

    main, dots = forest(judgement), Markup(seeds_picture(judgement).svg)
    figure = Markup(tag("div", wide(main), class_="forest"))
    found = [main.title, main.scope, *_outlying_base(judgement)]
    return [
        Section("forest", "Differences", [Text(found), *[Figures([(figure, "")])] * bool(main.lines)]),
        Section("rows", "Rows", [table(judgement, aim) for aim in judgement.aims]),
        Section("seeds", "Seeds", [Figures([(dots, "One dot per run; the bar is the mean.")])] * bool(dots)),
        Section("method", "How to read this", [Notes(notes(judgement))]),
    ]


# --- data ---


def data(judgement: Judgement) -> Iterator[dict[str, object]]:
    """A line for each row and metric, at full precision; differences as they are tested (log: of logarithms)."""
    for one in (one for aim in judgement.aims for one in judgement.rows[aim.name]):
        numbers = {head: getattr(one.evidence, name) if one.evidence else None for head, name in NUMBERS.items()}
        found = {"row": one.row, "metric": one.metric, "n": one.n, "diverged": one.diverged, "mean": one.mean}
        found |= {"sd": one.sd, **numbers, "verdict": str(one.verdict), "beside": one.beside, "why": one.why}
        yield {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in found.items()}


def formula_safe(lines: Data) -> Data:
    """Texts that a spreadsheet would take for a formula begin with an apostrophe."""
    starts = tuple("=+-@")
    return [{k: f"'{v}" if isinstance(v, str) and v.startswith(starts) else v for k, v in x.items()} for x in lines]


def analysis(judgement: Judgement, kind: str) -> "Document":
    """For every format but a terminal's."""
    from lightning_tfm.report.render.every_format import Document

    metrics = [
        {"name": a.name, "lower is better": a.lower_is_better, "log": a.log, "margin": a.margin} for a in judgement.aims
    ]
    lines = list(data(judgement))
    found: dict[str, object] = {"source": judgement.source, "base": judgement.base}
    found |= {"target": judgement.target, "metrics": metrics, "base stands apart": judgement.alone, "rows": lines}
    found["notes"] = notes(judgement)
    parts = sections(judgement)
    head, parts = forest(judgement).title.rstrip("."), parts if kind == "html" else [parts[1], parts[3]]
    return Document(Path(judgement.source).name, "", "judge", head, parts, formula_safe(lines), found, SCHEMA)
