"""The report's pictures as inline SVG, drawn from the summary and the cells."""

import math
from collections.abc import Mapping, Sequence
from statistics import mean

import numpy as np
from markupsafe import Markup

from lightning_tfm.metrics import METRICS, OF_TEXT, PPL
from lightning_tfm.plural_words import signed
from lightning_tfm.report.analyses import agreement_text
from lightning_tfm.report.analyses.agreement import AgreementCourse, LastEighth
from lightning_tfm.report.analyses.agreement_text import at
from lightning_tfm.report.blocks import Block, Figures, Fold, Notes, Section, Table, Text, columns
from lightning_tfm.report.charts.chart import LETTER, Axis, Chart, Point, Rule, Series, both, draw
from lightning_tfm.report.charts.panels import BASE, Panel, panels, short_names
from lightning_tfm.report.charts.svg import (
    Scale,
    bottom_axis,
    dot,
    figure,
    label,
    left_axis,
    points,
    tag,
)
from lightning_tfm.report.pages import provenance
from lightning_tfm.report.records import Cells
from lightning_tfm.report.significance import score_of
from lightning_tfm.report.summary import Summary
from lightning_tfm.report.tables.columns import labels, titled
from lightning_tfm.report.tables.extra_columns import FACTS, Fact


def quality_section(report: Summary, classes: Mapping[str, str]) -> Section:
    """Perplexity against size and cost; `classes`: row -> class of its colour."""
    pictures = [
        (picture, f"Dashed: rows that no row with fewer {fact.axis.removeprefix('training ')} beats.")
        for fact in FACTS
        if fact.axis and (picture := quality(report, fact, classes))
    ]
    return Section("quality", "Quality against size", [Figures(pictures)] * bool(pictures))


def quality(report: Summary, fact: Fact, classes: Mapping[str, str]) -> Markup:
    """Perplexity against parameters or FLOPs; the line joins the rows that no smaller row beats."""
    found = [(r, size, r.ppl.mean) for r in report.rows if r.ppl.mean and (size := fact.of(r))]
    if not found or max(size for _, size, _ in found) < 1.01 * min(size for _, size, _ in found):  # all of one size
        return Markup()
    best, front = math.inf, []
    for size, ppl in sorted((size, ppl) for _, size, ppl in found):
        if ppl < best:
            best = ppl
            front.append((size, ppl))
    names = short_names([r for r, *_ in found], 24)
    series = [
        Series(
            r.name,
            [Point(size, ppl)],
            classes.get(r.name, "g0"),
            names[r.name],
            f"{r.called}\n{fact.cell(r)} {fact.axis}, perplexity {PPL.score(ppl, r.ppl.sd)}",
            line=False,
            r=5.0,
        )
        for r, size, ppl in found
    ]
    x, y = Axis(fact.axis, log=True), Axis("dev perplexity", log=True)
    return both(Chart(f"Perplexity against {fact.axis}", x, y, series, (640, 420), front=front), (380, 440))


def strip(report: Summary, classes: Mapping[str, str]) -> Markup:
    """Every run as a dot: how far its perplexity is from the mean of what rows are compared with; empty at one seed."""
    to, rows = report.against, [r for r in report.rows if r.ppl.by_seed]
    if to is None or not to.ppl.mean or max((len(r.ppl.by_seed) for r in rows), default=0) < 2:
        return Markup()
    level, names = math.log(to.ppl.mean), short_names(rows)
    series = []
    for i, r in enumerate(rows):
        dots = [
            Point(PPL.shown(math.log(ppl) - level), i, f"{r.called}, seed {seed}\nperplexity {PPL.score(ppl)}")
            for seed, ppl in r.ppl.by_seed.items()
            if ppl > 0
        ]
        series.append(Series(r.name, dots, classes.get(r.name, "g0"), line=False, r=3.5))
    x = Axis(f"dev perplexity of each run against {report.to}’s mean", percent=True)
    y = Axis(ends=(len(rows) - 0.4, -0.6), words={float(i): names[r.name] for i, r in enumerate(rows)})
    left = 14 + round(LETTER * max(len(names[r.name]) for r in rows))
    return draw(Chart("Every run", x, y, series, (640, 80 + 18 * len(rows)), [Rule(x=0.0)], left=left))


def lengths_section(report: Summary, cells: Cells) -> Section:
    """The score by length: of what rows are compared with, then of each how far it is from that, shaded."""
    heads, found = lengths(cells, [r.name for r in report.rows])
    to = found.get(report.against.name, []) if report.against else []
    gaps = {row: [a - b for a, b in zip(values, to, strict=True)] for row, values in found.items()} if to else {}
    most = max((abs(gap) for row in gaps.values() for gap in row), default=0.0) or 1.0
    called, rows, shades = labels(report.rows), [], []
    for row, values in found.items():
        own = gaps.get(row) if report.against is None or row != report.against.name else None
        rows.append([titled(row, called), *(map(signed, own) if own else (f"{value:.1f}" for value in values))])
        shades.append([0, *(round(40 * gap / most) for gap in own or [0.0] * len(values))])
    about = Text([f"By tokens of the reference, pooled over seeds. Rows beside {report.to}: the difference to it."])
    blocks: list[Block] = [about, Table("", columns("row", *heads), rows, shades=shades)] if found else []
    return Section("lengths", f"{OF_TEXT.label} by length", blocks)


def lengths(cells: Cells, names: Sequence[str], bins: int = 5) -> tuple[list[str], dict[str, list[float]]]:
    """The score by length of the reference in pieces: (bins, row -> score of each bin, pooled over seeds)."""
    some = next(iter(cells.filled.values()), None)
    if some is None or any(OF_TEXT.name not in cell.sums for cell in cells.filled.values()):
        return [], {}
    tokens = some.sums[PPL.name][:, 1]
    edges = np.unique(np.quantile(tokens, np.linspace(0, 1, bins + 1)))
    where = np.clip(np.searchsorted(edges, tokens, side="left") - 1, 0, max(len(edges) - 2, 0))
    used = [b for b in range(max(len(edges) - 1, 1)) if (where == b).any()]
    heads = [f"{int(tokens[where == b].min())}–{int(tokens[where == b].max())}" for b in used]
    found = {}
    for name in names:
        runs = cells.of(name)
        if runs:
            total = [sum(c.sums[OF_TEXT.name][where == b].sum(0) for c in runs) for b in used]
            found[name] = [float(score_of(OF_TEXT)(np.asarray(one))) for one in total]
    return heads, found


def calibration_section(report: Summary, cells: Cells) -> Section:
    """Pictures of the first seeds; the expected calibration error is the mean over seeds."""
    kept = {r.name: [provenance.collected(cell, "calibration") for cell in cells.of(r.name)] for r in report.rows}
    found = {name: seeds for name, every in kept.items() if (seeds := [one for one in every if one])}
    drawn = panels([r for r in report.rows if r.name in found]) if found else []
    first = {name: seeds[0]["bins"] for name, seeds in found.items()}
    pictures = [(reliability(first, panel), "") for panel in drawn]
    called = labels(report.rows)
    errors = [
        [titled(row, called), f"{100 * mean(s['ece'] for s in seeds):.2f}", str(len(seeds))]
        for row, seeds in found.items()
    ]
    notes = [
        "dev set, reference as prefix, first seed; 15 bins of the likeliest token's probability",
        "ECE: expected calibration error, mean over n seeds",
    ]
    table = Table("", columns("row", "ECE, %", "n"), errors)
    blocks: list[Block] = [Figures(pictures, small=True, rows=list(found)), table, Notes(notes)] if found else []
    return Section("calibration", "Calibration", blocks)


def reliability(found: Mapping[str, Sequence[Mapping[str, float]]], panel: Panel) -> Markup:
    """Reliability diagram: how often the likeliest piece is right, against the probability it was given."""
    width, height, left, right, top, bottom = 400, 340, 46, 386, 26, 296
    x, y = Scale(0, 1, left, right), Scale(0, 1, bottom, top)
    body = bottom_axis(x, bottom, top, "probability of the likeliest token")
    body += left_axis(y, left, right, "share correct")
    body += tag("line", x1=x(0), x2=x(1), y1=y(0), y2=y(1), class_="zero")
    for i, name in enumerate(panel.rows):
        class_ = panel.classes[name]
        body += _reliable(name, [b for b in found[name] if b["count"] > 0], class_, x, y)
        body += tag("g", label(left + 12, top + 14 + 14 * i, panel.labels[name], class_="label end"), class_=class_)
    return figure(width, height, f"Reliability diagram{': ' * bool(panel.title)}{panel.title}", body)


def _reliable(name: str, bins: Sequence[Mapping[str, float]], class_: str, x: Scale, y: Scale) -> str:
    body = tag("polyline", points=points([(x(b["confidence"]), y(b["accuracy"])) for b in bins]), class_="curve")
    for b in bins:
        said = f"{name}: {b['confidence']:.3f} predicted, {b['accuracy']:.3f} correct, {b['count']}"
        body += dot(x(b["confidence"]), y(b["accuracy"]), said, r=3.5)
    return tag("g", body, class_=f"series {class_}{' base' * (class_ == BASE)}", data_row=name, data_tip=name)


def agreement_section(report: Summary) -> Section:
    """Every figure of each metric, what it means, and the course of training; empty without them."""
    found, fall, title = report.agreement, report.last_eighth, "Agreement over all rows"
    if found is None:
        return Section("agreement", title)
    said = [f"{'Warning: ' * fall.still_falling}{agreement_text.last_eighth(fall)}."] if fall else []
    each = {METRICS[name]: one for name, one in found.by_metric.items() if one}
    values = [agreement_text.figures(m, one) for m, one in each.items()]
    heads = columns("figure", *(f"{m.tested_as}, {one.rows} rows" for m, one in each.items()))
    table = Table("", heads, [list(row) for row in zip(agreement_text.FIGURES, *values, strict=True)])
    blocks: list[Block] = [Text(said), table, Notes(agreement_text.about(found))]
    if course := found.curve:
        caption = (
            f"Log PPL, {course.rows} rows, each at the same share of its own training. Dashed: the parameter count "
            "alone. Shaded: the last eighth, over which base's dev perplexity changed by the figure above it."
        )
        of_points = "share of the training, rank correlation"
        heads = columns("step of base", "base's PPL", of_points, words=[of_points])
        points = [[f"{p.step:,}", f"{p.base_ppl:.2f}", at(p)] for p in course.points]
        blocks += [
            Figures([(agreement(course, fall), caption)]),
            Fold("The same as a table", [Table("", heads, points)]),
        ]
    return Section("agreement", title, blocks)


def agreement(course: AgreementCourse, fall: LastEighth | None) -> Markup:
    """Rank correlation with the paper in the course of training; the parameter count's dashed.

    `course`: the summary's `agreement` / `curve`; `fall`: its `last eighth`.
    """
    found = [(p, p.spearman) for p in course.points if p.spearman is not None]
    if not found:
        return Markup()
    width, height, left, right, top, bottom = 640, 330, 80, 526, 30, 262
    null = course.parameter_count_alone
    values = [rho for _, rho in found] + [0.0, null or 0.0]
    x, y = Scale(0, 100, left, right), Scale(min(values) - 0.05, 1.0, bottom, top)
    late = tag("rect", x=x(87.5), y=float(top), width=x(100) - x(87.5), height=float(bottom - top), class_="late")
    body = late + bottom_axis(x, bottom, top, "share of each row's own training, %")
    body += left_axis(y, left, right, "Spearman, log PPL")
    if fall is not None:
        body += label(right, top - 8, f"base PPL {signed(-100 * fall.fall, 1)} %", "end")
    if null is not None:
        body += tag("line", x1=x(0), x2=x(100), y1=y(null), y2=y(null), class_="front")
        for i, words in enumerate(("parameter", "count alone", f"{null:.2f}")):
            body += label(right + 10, y(null) + 4 + 15 * i, words)
    line = tag("polyline", points=points([(x(100 * p.share), y(rho)) for p, rho in found]), class_="curve")
    marks = "".join(dot(x(100 * p.share), y(rho), f"step {p.step} of base, {at(p)}") for p, rho in found)
    body += tag("g", line + marks, class_="point better")
    body += label(left - 5, bottom + 52, "base PPL", "end", "tick")
    known = [p for p, _ in found]
    for p in known[:: -(-len(known) // 9)]:
        body += label(x(100 * p.share), bottom + 52, f"{p.base_ppl:.3g}", "middle", "tick")
    said = f"Rank correlation with the paper in the course of training: {', '.join(map(at, known))}"
    beside = "" if null is None else f"; the parameter count alone {null:.2f}"
    return figure(width, height, said + beside, body)
