"""Estimates with their intervals, one line below the other: rows of several studies, effects."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightning_tfm.plural_words import interval, signed
from lightning_tfm.report.charts import svg, verdict_icons
from lightning_tfm.report.charts.svg import LETTER, Scale, bottom_axis, figure, label, spanning, tag
from lightning_tfm.report.wording.word import DISC

FAR = 4.0
"""beyond this many times the 80th percentile of all estimates a mark is at the edge, as a number"""
WIDTH, TOP, STEP, NUMBER = 620, 12, 11, 56


@dataclass(frozen=True)
class Mark:
    """An estimate as printed, perplexity in percent."""

    said: str
    """what it is, when it is pointed at"""
    estimate: float
    lower: float | None = None
    upper: float | None = None
    class_: str = ""
    """of its colour"""
    shape: str = DISC
    """a path around (0, 0)"""
    paper: float | None = None
    """the paper's own, a hollow diamond"""
    more: str = ""
    """after the numbers"""
    number: str = ""
    """to the right of its line"""


def picture(
    lines: Sequence[tuple[str, Sequence[Mark | None]]], axis: str, title: str, key: Sequence[tuple[str, str]] = ()
) -> Markup:
    """Empty where there is nothing to draw.

    `lines`: (name, marks, None for a place left empty); `key`: (words, class of a colour).
    """
    every = [mark for _, own in lines for mark in own if mark]
    if not every:
        return Markup()
    sizes = sorted(abs(mark.estimate) for mark in every)
    edge = FAR * sizes[int(0.8 * (len(sizes) - 1))] or sizes[-1] or 1.0
    numbers = [v for m in every for v in (m.estimate, m.lower, m.upper, m.paper) if v is not None]
    most = max(len(own) for _, own in lines)
    left, line, top = 18 + round(LETTER * max(len(name) for name, _ in lines)), STEP * (most + 1), TOP + 16 * len(key)
    bottom = top + line * len(lines)
    right = WIDTH - 14 - NUMBER * any(mark.number for mark in every)
    x = spanning([v for v in numbers if abs(v) <= edge] + [0.0], left, right)
    body = bottom_axis(x, bottom, top, axis)
    body += tag("line", x1=x(0), x2=x(0), y1=top, y2=bottom, class_="zero")
    for k, (words, class_) in enumerate(key):
        dot = tag("circle", cx=float(left), cy=8.0 + 16 * k, r=4.0, class_="dot")
        body += tag("g", dot + label(left + 9, 12 + 16 * k, words), class_=f"point {class_}")
    for i, (name, own) in enumerate(lines):
        middle = top + line * (i + 0.5)
        body += label(left - 10, middle + 4, name, "end")
        for k, mark in enumerate(own):
            y = middle + STEP * (k - (len(own) - 1) / 2)
            if mark is not None:
                body += _mark(mark, x, y)
                body += label(WIDTH - 4, y + 4, mark.number, "end") if mark.number else ""
    return figure(WIDTH, bottom + 42, title, body)


def _mark(mark: Mark, x: Scale, y: float) -> str:
    said, body = f"{mark.said}: {signed(mark.estimate, 2)}", ""
    ends = None if mark.lower is None or mark.upper is None else (mark.lower, mark.upper)
    if ends is not None:
        said += f" {interval(*ends, lambda end: signed(end, 2))}"
    if not x.low <= mark.estimate <= x.high:  # so far out that it would squeeze the rest together
        body += _far(mark, x, y)
    else:
        if ends is not None:
            low, high = (x(min(max(v, x.low), x.high)) for v in ends)
            body += tag("line", x1=low, x2=high, y1=y, y2=y, class_="interval")
        body += verdict_icons.icon_at(mark.shape, x(mark.estimate), y)
    if mark.paper is not None:
        said += f", the paper {signed(mark.paper, 2)}"
    if mark.paper is not None and x.low <= mark.paper <= x.high:
        px = x(mark.paper)
        body += tag("path", d=f"M{svg.number(px - 5)} {svg.number(y)}l5-5 5 5-5 5z", class_="paper")
    return tag("g", body, class_=f"hover {mark.class_}", data_tip=said + mark.more)


def _far(mark: Mark, x: Scale, y: float) -> str:
    """Its mark at the edge, with its number and an arrow."""
    right = mark.estimate > x.high
    arrow = "\N{RIGHTWARDS ARROW}" if right else "\N{LEFTWARDS ARROW}"
    words = f"{signed(mark.estimate, 0)} {arrow}" if right else f"{arrow} {signed(mark.estimate, 0)}"
    at, inward = (x.end, -1) if right else (x.start, 1)
    text = label(at + inward * 16, y + 4, words, "end" if right else "start")
    return verdict_icons.icon_at(mark.shape, at + inward * 6, y) + text
