"""The picture of all differences to base (or another reference) with their intervals, and of the paper's own."""

from typing import NamedTuple

from lightning_tfm.metrics import METRICS
from lightning_tfm.report import marks, svg
from lightning_tfm.report.panels import short_name, short_names
from lightning_tfm.report.summary import Difference, Summary, SummaryRow
from lightning_tfm.report.svg import Scale, attribute, bottom_axis, figure, label, spanning, tag
from lightning_tfm.report.verdict import WORDS, phrase

FAR = 4.0
"""what lies beyond so many times the 80th percentile of all differences stands at the edge, as a number"""


class Shown(NamedTuple):
    """A difference to base: in percent for perplexity."""

    estimate: float
    lower: float | None
    upper: float | None
    paper: float | None


def forest(report: Summary, metric: str) -> str:
    """In the table's order; the paper's differences as hollow diamonds."""
    found = [(r, d, _shown(d)) for r in report.rows if (d := r.metric(metric).difference) is not None]
    parts = [(r, d, shown) for r, d, shown in found if shown]
    if not parts:
        return ""
    names = short_names([r for r, *_ in parts], 20)
    edge = _edge(sorted(abs(shown.estimate) for *_, shown in parts))
    values = [v for *_, shown in parts for v in shown if v is not None and abs(v) <= edge] + [0.0]
    width, left, line, top = 620, 132, 22, 12
    height = top + line * len(parts) + 42
    x = spanning(values, left, width - 14)
    bottom = height - 40
    to = short_name(report.to)
    body = bottom_axis(x, bottom, top, METRICS[metric].axis(to))
    body += tag("line", x1=x(0), x2=x(0), y1=top, y2=bottom, class_="zero")
    for i, (r, d, shown) in enumerate(parts):
        y = top + line * (i + 0.5)
        body += tag("g", _row(r, names[r.name], shown, d, x, y), class_=f"hover {WORDS[d.verdict].style}")
    told = f"Differences to {to} in dev {METRICS[metric].label}, with {report.level} % intervals"
    return figure(width, height, told, body)


def _edge(sizes: list[float]) -> float:
    return FAR * sizes[int(0.8 * (len(sizes) - 1))] or sizes[-1] or 1.0


def _shown(difference: Difference) -> Shown | None:
    of = difference.shown
    if of.estimate is None:
        return None
    paper = difference.paper if difference.paper_percent is None else difference.paper_percent
    return Shown(of.estimate, of.lower, of.upper, paper)


def _row(r: SummaryRow, name: str, shown: Shown, difference: Difference, x: Scale, y: float) -> str:
    said = f"{r.name}: {shown.estimate:+.2f}"
    body = label(x.start - 10, y + 4, name, "end")
    if shown.lower is not None and shown.upper is not None:
        said += f" [{shown.lower:+.2f}, {shown.upper:+.2f}]"
    if not x.low <= shown.estimate <= x.high:  # so far out that it would squeeze the rest together
        body += _far(shown.estimate, x, y, difference.verdict)
    else:
        if shown.lower is not None and shown.upper is not None:
            ends = [x(min(max(v, x.low), x.high)) for v in (shown.lower, shown.upper)]
            body += tag("line", x1=ends[0], x2=ends[1], y1=y, y2=y, class_="interval")
        body += marks.at(difference.verdict, x(shown.estimate), y)
    if shown.paper is not None:
        said += f", the paper {shown.paper:+.2f}"
    if shown.paper is not None and x.low <= shown.paper <= x.high:
        px = x(shown.paper)
        body += tag("path", d=f"M{svg.number(px - 5)} {svg.number(y)}l5-5 5 5-5 5z", class_="paper")
    return tag("title", attribute(f"{said}; {phrase(difference)}")) + body


def _far(estimate: float, x: Scale, y: float, word: str) -> str:
    """Its mark at the edge, with its number and an arrow."""
    right = estimate > x.high
    words = f"{estimate:+.0f} \N{RIGHTWARDS ARROW}" if right else f"\N{LEFTWARDS ARROW} {estimate:+.0f}"
    at, inward = (x.end, -1) if right else (x.start, 1)
    return marks.at(word, at + inward * 6, y) + label(at + inward * 16, y + 4, words, "end" if right else "start")
