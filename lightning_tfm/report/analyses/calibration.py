"""How often the likeliest token is right, against the probability it was given: of what `report --collect` wrote."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from lightning_tfm.report.blocks import Block, Figures, Notes, Section, Table, columns
from lightning_tfm.report.charts.chart import Axis, Chart, Point, Series, both
from lightning_tfm.report.charts.panels import BASE, Panel, panels
from lightning_tfm.report.records import Cells
from lightning_tfm.report.summary import Analysis, Summary
from lightning_tfm.report.tables.columns import name_cell, row_labels

Collected = dict[str, list[dict[str, Any]]]
"""row -> what was collected of its runs"""


def find(cells: Cells, report: Summary) -> Collected | None:
    return cells.collected("calibration") or None


def sections(records: Collected, report: Summary) -> list[Section]:
    """Pictures of the first seeds; the expected calibration error is the mean over seeds."""
    first = {name: seeds[0]["bins"] for name, seeds in records.items()}
    called = row_labels(report.rows)
    names = {row: called[row] or row for row in records}
    drawn = panels([r for r in report.rows if r.name in records])
    pictures = [(both(reliability(first, panel, names)), "") for panel in drawn]
    errors = [
        [name_cell(row, called), f"{100 * mean(s['ece'] for s in seeds):.2f}", str(len(seeds))]
        for row, seeds in records.items()
    ]
    notes = [
        "dev set, reference as prefix, first seed; 15 bins of the likeliest token's probability",
        "ECE: expected calibration error, mean over n seeds",
    ]
    table = Table("", columns("row", "ECE, %", "n"), errors)
    blocks: list[Block] = [Figures(pictures, rows=names), table, Notes(notes)]
    return [Section("calibration", "Calibration", blocks, after="architecture")]


def reliability(records: Mapping[str, Sequence[Mapping[str, float]]], panel: Panel, names: Mapping[str, str]) -> Chart:
    """Reliability diagram: how often the likeliest token is right, against the probability it was given."""
    series = []
    for row in panel.rows:
        line = [
            Point(
                b["confidence"],
                b["accuracy"],
                f"{names[row]}\n{b['confidence']:.3f} predicted, {b['accuracy']:.3f} correct, {b['count']:,} tokens",
            )
            for b in records[row]
            if b["count"] > 0
        ]
        class_ = panel.classes[row] + " base" * (panel.classes[row] == BASE)
        series.append(Series(row, line, class_, panel.labels[row], names[row], marked=True, r=3.5))
    title = f"Reliability diagram{': ' * bool(panel.title)}{panel.title}"
    x, y = (Axis(words, ends=(0.0, 1.0)) for words in ("probability of the likeliest token", "share correct"))
    return Chart(title, x, y, series, front=((0.0, 0.0), (1.0, 1.0)))


ANALYSIS = Analysis(key="calibration", find=find, sections=sections, json=False)
