"""The picture of a comparison: every row's difference to base in each study, one above the other."""

from markupsafe import Markup

from lightning_tfm.metrics import METRICS
from lightning_tfm.report.comparison import Comparison
from lightning_tfm.report.panels import short_name
from lightning_tfm.report.statistics import Estimate
from lightning_tfm.report.summary import Difference
from lightning_tfm.report.svg import Scale, attribute, bottom_axis, figure, label, spanning, tag

FAR = 4.0
"""what lies beyond so many times the 80th percentile of all differences stands at the edge, as a number"""


def forest(comparison: Comparison, metric: str) -> Markup:
    """With their 95 % intervals, after looks too; perplexity in percent. Empty where there is nothing to draw."""
    drawn = [
        (row.name, [None if place is None else _shown(place.difference[metric], metric) for place in row.places])
        for row in comparison.rows
    ]
    estimates = sorted(abs(mark[0]) for _, marks in drawn for mark in marks if mark)
    if not estimates:
        return Markup()
    edge = FAR * estimates[int(0.8 * (len(estimates) - 1))] or estimates[-1] or 1.0
    values = [v for _, marks in drawn for mark in marks if mark for v in mark if abs(v) <= edge]
    studies = [side.study for side in comparison.sides]
    step, width, left, top = 11, 640, 150, 30
    line = step * len(studies) + 10
    bottom = top + line * len(drawn)
    x = spanning([*values, 0.0], left, width - 14)
    body = bottom_axis(x, bottom, top, METRICS[metric].axis("base"))
    body += tag("line", x1=x(0), x2=x(0), y1=top, y2=bottom, class_="zero")
    for k, study in enumerate(studies):
        dot = tag("circle", cx=float(left + 150 * k), cy=12.0, r=4.0, class_="dot")
        body += tag("g", dot + label(left + 150 * k + 9, 16, short_name(study)), class_=f"point g{k % 8}")
    for i, (name, marks) in enumerate(drawn):
        y = top + line * i + 10
        body += label(left - 10, y + step * (len(marks) - 1) / 2 + 4, short_name(name), "end")
        for k, mark in enumerate(marks):
            if mark is not None:
                body += _mark(x, y + step * k, mark, f"{name}, {studies[k]}", k)
    return figure(width, bottom + 42, f"Differences to base in dev {metric.upper()} in {len(studies)} studies", body)


def _shown(found: Difference | None, metric: str) -> tuple[float, ...] | None:
    """(estimate, lower, upper), or the estimate alone."""
    if found is None or found.estimate is None:
        return None
    if found.se is None or found.df is None or found.lower is None:
        return (METRICS[metric].shown(found.estimate),)
    ends = map(float, Estimate(found.estimate, found.se, found.df).interval())  # its own are at its looks' level
    return tuple(METRICS[metric].shown(v) for v in (found.estimate, *ends))


def _mark(x: Scale, y: float, mark: tuple[float, ...], name: str, k: int) -> str:
    said = f"{name}: {mark[0]:+.2f}"
    body = ""
    low, high = min(x.low, x.high), max(x.low, x.high)
    if not low <= mark[0] <= high:  # so far out that the rest would be squeezed together: its number at the edge
        inside = mark[0] < low
        words = f"‹ {mark[0]:+.0f}" if inside else f"{mark[0]:+.0f} ›"
        body += label(x(low if inside else high), y + 4, words, "start" if inside else "end", "tick")
    else:
        if len(mark) == 3:
            said += f" [{mark[1]:+.2f}, {mark[2]:+.2f}]"
            ends = [min(max(v, low), high) for v in mark[1:]]
            body += tag("line", x1=x(ends[0]), x2=x(ends[1]), y1=y, y2=y, class_="interval")
        body += tag("circle", cx=x(mark[0]), cy=y, r=3.5, class_="dot")
    return tag("g", tag("title", attribute(said)) + body, class_=f"point hover g{k % 8}")
