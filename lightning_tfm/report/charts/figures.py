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
from lightning_tfm.report.charts.panels import BASE, Panel, panels, row_classes, short_names
from lightning_tfm.report.charts.svg import (
    Scale,
    bottom_axis,
    dot,
    figure,
    label,
    left_axis,
    pointed,
    points,
    spanning,
    tag,
)
from lightning_tfm.report.pages import provenance
from lightning_tfm.report.records import Cells
from lightning_tfm.report.significance import score_of
from lightning_tfm.report.summary import Summary
from lightning_tfm.report.tables.columns import labels, titled
from lightning_tfm.report.tables.extra_columns import FACTS


def quality_section(report: Summary, colours: Sequence[tuple[str, str]]) -> Section:
    """Perplexity against size and cost."""
    pictures = [
        (picture, f"Dashed: rows that no row with fewer {fact.axis.removeprefix('training ')} beats.")
        for fact in FACTS
        if fact.axis and (picture := quality(report, fact.name, fact.axis))
    ]
    return Section("quality", "Quality against size", [Figures(pictures, colours=colours)] * bool(pictures))


def quality(report: Summary, against: str, title: str) -> Markup:
    """Perplexity against `against` (parameters or flops); the line joins the rows that no smaller row beats."""
    found = [(r, size, r.ppl.mean) for r in report.rows if r.ppl.mean and (size := getattr(r, against))]
    if not found or max(size for _, size, _ in found) < 1.01 * min(size for _, size, _ in found):  # all of one size
        return Markup()
    width, height, left, right, top, bottom = 640, 340, 46, 610, 26, 296
    x = spanning([size for _, size, _ in found], left, right, log=True)
    y = spanning([ppl for *_, ppl in found], bottom, top, log=True)
    body = bottom_axis(x, bottom, top, title) + left_axis(y, left, right, "dev perplexity")
    best, front = math.inf, []
    for size, ppl in sorted((size, ppl) for _, size, ppl in found):
        if ppl < best:
            best = ppl
            front.append((x(size), y(best)))
    body += tag("polyline", points=points(front), class_="front")
    classes = row_classes(report.rows)
    names = short_names([r for r, *_ in found])
    taken: list[tuple[float, float]] = []
    for r, size, ppl in found:
        px, py = x(size), y(ppl)
        name = names[r.name]
        said = pointed(f"{r.name}: {size:,.4g}, perplexity {ppl:.3f}")
        mark = tag("circle", cx=px, cy=py, r=5.0, class_="dot")
        free = all(abs(py - q) > 11 or abs(px - p) > 6 * len(name) + 20 for p, q in taken)
        if free:
            taken.append((px, py))
        side = px > (left + right) * 0.75
        text = label(px + (-8 if side else 8), py + 4, name, "end" if side else "start") if free else ""
        body += tag("g", said + mark + text, class_=f"point {classes[r.name]}")
    return figure(width, height, f"Perplexity against {title}", body)


def lengths_section(report: Summary, cells: Cells) -> Section:
    """The score by length, shaded from the lowest to the highest."""
    heads, found = lengths(cells, [r.name for r in report.rows])
    low, high = (f((v for row in found.values() for v in row), default=0.0) for f in (min, max))
    shades = [[0, *(round(30 * (v - low) / ((high - low) or 1)) for v in values)] for values in found.values()]
    called = labels(report.rows)
    rows = [[titled(row, called), *(f"{value:.1f}" for value in values)] for row, values in found.items()]
    about = Text(["By tokens of the reference, pooled over seeds."])
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
    body = pointed(name)
    body += tag("polyline", points=points([(x(b["confidence"]), y(b["accuracy"])) for b in bins]), class_="curve")
    for b in bins:
        said = f"{name}: {b['confidence']:.3f} predicted, {b['accuracy']:.3f} correct, {b['count']}"
        body += dot(x(b["confidence"]), y(b["accuracy"]), said, r=3.5)
    return tag("g", body, class_=f"series {class_}{' base' * (class_ == BASE)}", data_row=name)


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
