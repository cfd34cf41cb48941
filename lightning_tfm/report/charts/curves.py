"""Learning curves: how far each row is from base in the course of training, and the perplexity itself."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from lightning_tfm.metrics import PPL
from lightning_tfm.report.charts.chart import Axis, Chart, Point, Series, both
from lightning_tfm.report.charts.forest import Forest
from lightning_tfm.report.charts.panels import FEW, row_classes, short_names
from lightning_tfm.report.charts.study_forest import axis_of
from lightning_tfm.report.records import Cells
from lightning_tfm.report.summary import Summary, SummaryRow

NAMED = 40
"""rows whose names stand at their curves' ends"""
POINTS = 60
"""of one curve"""
FALLS = 2.0
"""times their lowest value: where curves begin higher, the axis is logarithmic"""
ABOVE = 1.8
"""times the highest final value: where a straight axis ends"""
LONGER = 1.05
"""times the steps of another row: from there on all rows are drawn over the share of their own training"""
WIDE = (1000, 430)
SHARE = "share of each row’s own training"
QUARTERS = {0.25: "25 %", 0.5: "50 %", 0.75: "75 %", 1.0: "100 %"}
Band = list[tuple[float, float, float, float]]
"""(step, lowest, mean, highest) over seeds"""


@dataclass(frozen=True)
class Curves:
    """What templates/parts/curves.html shows."""

    difference: Markup
    """empty where there is no base, or nothing beside it whose perplexities are comparable"""
    itself: Markup
    rows: dict[str, str]
    """name -> what people call it"""
    verdicts: bool
    """whether colours are those of verdicts"""
    bands: bool
    """whether seeds are drawn"""


def curves(report: Summary, cells: Cells, forest: Forest) -> Curves | None:
    """None where no run has any; `forest`: the same rows' verdicts, for their colours."""
    bands = {r.name: band for r in report.rows if not r.diverged and (band := _band(cells, r.name))}
    if not bands:
        return None
    rows = [r for r in report.rows if r.name in bands and r.same_as is None]
    classes = forest.classes or row_classes(rows)
    names = short_names(rows) if len(rows) <= NAMED else {}
    to, difference = report.against, Markup()
    others = [r for r in rows if r is not to and r.name not in (report.foreign or [])]
    if to is not None and to.name in bands and others:
        lines = [_difference(r, bands[r.name], bands[to.name], names, classes) for r in others]
        last = [abs(p.y) for one in lines for p in one.points]
        difference = both(
            Chart(
                f"Dev perplexity of each row against {report.to}’s, over the {SHARE}",
                Axis(SHARE, words=QUARTERS, ends=(min(p.x for one in lines for p in one.points), 1.0)),
                Axis(
                    f"dev perplexity against {report.to}",
                    around=min(2.0, max(last, default=0.0) / 5) or 1.0,
                    percent=report.at_zero,
                ),
                lines,
                WIDE,
                left=62,
            ),
        )
    drawn, called = _itself(rows, bands, names, classes), {r.name: r.called for r in rows}
    return Curves(difference, drawn, called, forest.tested, len(rows) <= FEW)


def _difference(row: SummaryRow, band: Band, to: Band, names: Mapping[str, str], classes: Mapping[str, str]) -> Series:
    """Perplexity over that of the reference at the same share of its own training, in percent."""
    shares, theirs = ([step / line[-1][0] for step, *_ in line] for line in (band, to))
    level = np.interp(shares, theirs, [math.log(mean) for _, _, mean, _ in to])
    line = [
        Point(share, 100 * math.expm1(math.log(mean) - base))
        for share, (_, _, mean, _), base in zip(shares, band, level.tolist(), strict=True)
        if share >= theirs[0]
    ]
    axis = axis_of(PPL)
    said = ", ".join(axis.number(p.y, unit=False) for p in line[:: -(-len(line) // 8)])
    end = f"{axis.number(line[-1].y)} " if row.name in names else ""
    return Series(
        row.name,
        line,
        classes.get(row.name, "open"),
        end + names.get(row.name, ""),
        f"{row.called}\nin the course of training: {said} %",
    )


def _itself(
    rows: Sequence[SummaryRow], bands: Mapping[str, Band], names: Mapping[str, str], classes: Mapping[str, str]
) -> Markup:
    last = [band[-1][0] for band in bands.values()]
    shares = max(last) > LONGER * min(last)
    values = [v for band in bands.values() for _, *vs in band for v in vs]
    series = []
    for row in rows:
        band, few = bands[row.name], len(rows) <= FEW
        line = [
            Point(step / band[-1][0] if shares else step, mean, "", *((low, high) if few else ()))
            for step, low, mean, high in band
        ]
        said = ", ".join(PPL.score(p.y) for p in line[:: -(-len(line) // 8)])
        class_ = "g0 base" if row.base else classes.get(row.name, "open")
        series.append(
            Series(
                row.name,
                line,
                class_,
                names.get(row.name, ""),
                f"{row.called}\nperplexity: {said}",
            )
        )
    log = falls(min(values), max(values))
    # on a straight axis the first validations would flatten all the rest
    most = None if log else ABOVE * max(band[-1][2] for band in bands.values())
    x = (
        Axis(SHARE, words=QUARTERS, ends=(min(p.x for one in series for p in one.points), 1.0))
        if shares
        else Axis("step", margin=0.02)
    )
    axis = f"{'logarithmic' if log else 'straight'} axis"
    return both(Chart(f"Learning curves, {axis}", x, Axis("dev perplexity", log, most=most), series, WIDE))


def falls(lowest: float, highest: float) -> bool:
    """Whether curves between these values fall so far that their axis is logarithmic."""
    return highest > FALLS * lowest


def _band(cells: Cells, row: str) -> Band:
    """At the steps that every seed has."""
    runs = [cell.validations for cell in cells.of(row)]
    runs = [run for run in runs if run]
    shared = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
    return [(s, min(v), PPL.mean(v), max(v)) for s in thin_steps(shared) if (v := [run[s] for run in runs])]


def thin_steps(steps: Sequence[int], most: int = POINTS) -> list[int]:
    """At most `most` of them, evenly, the last among them."""
    if len(steps) <= most:
        return list(steps)
    every = (len(steps) - 1) / (most - 1)
    return [steps[round(i * every)] for i in range(most)]
