"""How often the likeliest token is right, against the probability it was given: of what `report --collect` wrote."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from markupsafe import Markup

from lightning_tfm.report.analysis import Analysis
from lightning_tfm.report.blocks import Block, Figures, Notes, Section, Table, columns
from lightning_tfm.report.charts.panels import BASE, Panel, panels
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
from lightning_tfm.report.summary import Summary
from lightning_tfm.report.tables.columns import labels, titled

Collected = dict[str, list[dict[str, Any]]]
"""row -> what was collected of its runs"""


def find(cells: Cells, report: Summary) -> Collected | None:
    kept = {r.name: [provenance.collected(cell, "calibration") for cell in cells.of(r.name)] for r in report.rows}
    return {name: seeds for name, every in kept.items() if (seeds := [one for one in every if one])} or None


def sections(found: Collected, report: Summary) -> list[Section]:
    """Pictures of the first seeds; the expected calibration error is the mean over seeds."""
    first = {name: seeds[0]["bins"] for name, seeds in found.items()}
    drawn = panels([r for r in report.rows if r.name in found])
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
    names = {row: called[row] or row for row in found}
    blocks: list[Block] = [Figures(pictures, small=True, rows=names), table, Notes(notes)]
    return [Section("calibration", "Calibration", blocks, after="architecture")]


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


ANALYSIS = Analysis(key="calibration", find=find, sections=sections, json=False)
