"""Scores by length relative to the training length: a line for each row with its seeds' band."""

from collections.abc import Sequence

from markupsafe import Markup

from lightning_tfm.metrics import OF_TEXT
from lightning_tfm.report.analyses.length_extrapolation import BeyondRow, BeyondSummary, LengthPoint
from lightning_tfm.report.charts.chart import apart
from lightning_tfm.report.charts.panels import BASE, row_classes, short_names
from lightning_tfm.report.charts.svg import (
    Scale,
    bottom_axis,
    dot,
    figure,
    label,
    left_axis,
    points,
    spanning,
    tag,
)
from lightning_tfm.report.row import Spread, SummaryRow

METRICS = {"nll": "NLL per token", OF_TEXT.name: OF_TEXT.label, "ratio": "length ratio, translation over reference"}
SIDES = ("source", "target")
WIDTH, HEIGHT = 620, 400
ENDS = 170
"""for the names at the ends, as large as a phone has them (templates/pictures.css)"""
LINES = 5
"""of a class, below which it is not drawn: a score of fewer lines is noise"""


def pictures(found: BeyondSummary, rows: Sequence[SummaryRow]) -> list[tuple[Markup, str]]:
    """By the source's length and by the target's, with their titles; none where there is nothing to draw.

    `rows`: of the report, for their colours and labels.
    """
    classes, names = row_classes(rows), short_names(rows, 17)
    return [
        (_drawn(found.rows, classes, names, side, metric), f"{title}, by the {side}'s length")
        for metric, title in METRICS.items()
        for side in SIDES
        if any(getattr(point, metric) is not None for row in found.rows for point in row.points[side])
    ]


def _drawn(rows: Sequence[BeyondRow], classes: dict[str, str], names: dict[str, str], side: str, metric: str) -> Markup:
    left, right, top, bottom = 46, WIDTH - ENDS, 26, HEIGHT - 44
    lines = {row.row: _line(row, side, metric) for row in rows}
    lines = {name: line for name, line in lines.items() if line}
    ends = [upto for line in lines.values() for upto, _ in line]
    values = [value for line in lines.values() for _, s in line for value in (s.lowest, s.highest)]
    if not values:
        return figure(WIDTH, HEIGHT, f"{METRICS[metric]}: no class has {LINES} lines", "")
    x = Scale(0, max(ends), left, right)
    y = spanning([0.0, *values] if metric != "nll" else values, bottom, top)
    body = bottom_axis(x, bottom, top, f"length of the {side} / training length") + left_axis(
        y, left, right, METRICS[metric]
    )
    body += tag("line", x1=x(1), x2=x(1), y1=float(top), y2=float(bottom), class_="zero")
    body += label(x(1) + 4, top + 10, "longest trained on", class_="tick")
    for name, line in lines.items():
        body += _series(name, line, x, y, classes[name])
    places = apart([y(line[-1][1].mean) for line in lines.values()], 17.0, top, bottom)
    for name, place in zip(lines, places, strict=True):
        at = label(right + 6, place + 4, names[name], class_="label end")
        body += tag("g", at, class_=f"named {classes[name]}", data_row=name)
    return figure(WIDTH, HEIGHT, f"{METRICS[metric]} by the {side}'s length in training lengths", body)


def _line(row: BeyondRow, side: str, metric: str) -> list[tuple[float, Spread]]:
    """(middle of the class, scores) of every class with lines enough."""
    points = [(_middle(p), getattr(p, metric), p.sentences) for p in row.points[side]]
    return [(at, score) for at, score, sentences in points if score is not None and sentences >= LINES]


def _middle(point: LengthPoint) -> float:
    return (point.above + point.upto) / 2


def _series(name: str, line: Sequence[tuple[float, Spread]], x: Scale, y: Scale, class_: str) -> str:
    area = [(x(at), y(s.highest)) for at, s in line] + [(x(at), y(s.lowest)) for at, s in reversed(line)]
    content = tag("polygon", points=points(area), class_="band")
    content += tag("polyline", points=points([(x(at), y(s.mean)) for at, s in line]), class_="curve")
    for at, s in line:
        told = f"{name}, {at:g} training lengths: {s.mean:.3g} ({s.lowest:.3g} to {s.highest:.3g})"
        content += dot(x(at), y(s.mean), told)
    dashed = " base" if class_ == BASE else ""
    return tag("g", content, class_=f"series {class_}{dashed}", data_row=name, data_tip=name)
