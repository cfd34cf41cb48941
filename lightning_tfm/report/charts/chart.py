"""Lines and points over two axes, as data, and the one place that draws them."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from markupsafe import Markup

from lightning_tfm.report.charts.svg import (
    Scale,
    bottom_axis,
    bottom_line,
    figure,
    in_percent,
    label,
    left_axis,
    number,
    points,
    spanning,
    tag,
)

LETTER, SLIM, SMALL = 7.4, 6.4, 8.4
"""width of a letter of a name in a chart, in a narrow one, in one of several small ones"""
LINE = 14.0
"""distance of names, one below the other"""
SHORT = 22
"""letters of a line of a name in a narrow chart"""
LEADER = 14
"""from a line's end to its name"""
AWAY = (9, 18, 30, 44, 60, 80)
"""pixels from a point where its name is tried, the nearest first"""
WAYS = ((1, 0), (-1, 0), (0.7, 0.7), (0.7, -0.7), (-0.7, 0.7), (-0.7, -0.7), (0.1, 1), (0.1, -1))


@dataclass(frozen=True)
class Axis:
    title: str = ""
    log: bool = False
    around: float = 0.0
    """where not 0, logarithmic on both sides of zero and straight within ± this"""
    ends: tuple[float, float] | None = None
    """None: around what is drawn"""
    most: float | None = None
    """where it ends at most; lines are cut there"""
    words: Mapping[float, str] = field(default_factory=dict)
    """its ticks, where they are not round numbers"""
    percent: str = ""
    """of differences in percent: what stands at zero"""
    margin: float = 0.06

    def scale(self, values: Sequence[float], start: float, end: float) -> Scale:
        if self.ends:
            return Scale(*self.ends, start, end, self.log)
        if self.around:
            low, high = (1.1 * f([*values, 0.0]) for f in (min, max))
            return Scale(low, high if high > low else self.around, start, end, around=self.around)
        return spanning([min(v, self.most or v) for v in values], start, end, self.log, self.margin)


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    tip: str = ""
    """what pointing at it shows; empty: what the series says"""
    low: float | None = None
    high: float | None = None
    """of a band, or of a bar"""


@dataclass(frozen=True)
class Series:
    """A line through its points, or only these."""

    name: str
    """of its row or trial, which a page finds it by"""
    points: Sequence[Point]
    class_: str = ""
    """of its colour"""
    label: str = ""
    """beside its end, or beside the point"""
    tip: str = ""
    """what pointing at it says, before what the page says of its row everywhere"""
    line: bool = True
    marked: bool = False
    """each point of a line has a mark"""
    bars: bool = False
    """`low` … `high` as a bar at each point, not as a band"""
    hollow: bool = False
    """it ends early, in a hollow mark"""
    r: float = 4.0
    of: str = "row"
    """what `name` names: row, trial, or a line of this chart alone"""


@dataclass(frozen=True)
class Rule:
    """A line of reference, at one of them."""

    x: float | None = None
    y: float | None = None
    words: Sequence[str] = ()


@dataclass(frozen=True)
class Chart:
    title: str
    """for a screen reader"""
    x: Axis
    y: Axis
    series: Sequence[Series]
    size: tuple[int, int] = (640, 340)
    rules: Sequence[Rule] = ()
    shade: tuple[float, float] | None = None
    """of the x axis"""
    front: Sequence[tuple[float, float]] = ()
    """joined by a dashed line"""
    left: int = 50


def both(chart: Chart, narrow: tuple[int, int] = (380, 400)) -> Markup:
    """For a page: the form that its width asks for is seen."""
    forms = (("on-screens", draw(chart)), ("on-phones", draw(replace(chart, size=narrow), SLIM, SHORT)))
    return Markup("").join(Markup(tag("div", drawn, class_=form)) for form, drawn in forms if drawn)


def draw(chart: Chart, letter: float = LETTER, most: int = 36) -> Markup:
    """Empty where there is nothing to draw; `letter`: width of one of the names at the ends, `most` of them a line."""
    every = [p for one in chart.series for p in one.points]
    if not every:
        return Markup()
    named = [one for one in chart.series if one.line and one.label and one.points]
    lines = [(one, words) for one in named for words in textwrap.wrap(one.label, most)]
    ends = [words for _, words in lines] + [w for rule in chart.rules if rule.y is not None for w in rule.words]
    width, top = chart.size[0], 26
    right = width - 14 - (LEADER + round(letter * max(map(len, ends))) if ends else 0)
    bottom = max(chart.size[1] - 44, top + round(LINE * len(lines)))
    left = max([chart.left, *(14 + round(letter * len(words)) for words in chart.y.words.values())])
    x = chart.x.scale([p.x for p in every], left, right)
    y = chart.y.scale([v for p in every for v in (p.y, p.low, p.high) if v is not None], bottom, top)
    body = ""
    if chart.shade:
        low, high = map(x, chart.shade)
        body += tag("rect", x=low, y=float(top), width=high - low, height=float(bottom - top), class_="late")
    words, title = in_percent(x, chart.x.percent) if chart.x.percent else chart.x.words, chart.x.title
    if letter * sum(map(len, words.values())) > 0.8 * (right - left):
        words = dict(list(words.items())[1::2])
    body += bottom_line(x, bottom, words, title) if words else bottom_axis(x, bottom, top, title)
    ticks = in_percent(y, chart.y.percent) if chart.y.percent else chart.y.words
    body += left_axis(y, left, right, chart.y.title, ticks)
    body += "".join(_rule(rule, x, y) for rule in chart.rules)
    if chart.front:
        body += tag("polyline", points=points([(x(a), y(b)) for a, b in chart.front]), class_="front")
    at = apart([y(min(one.points[-1].y, y.high)) for one, _ in lines], LINE, top + 4, bottom - 6)
    beside: dict[str, list[tuple[float, str]]] = {}
    for (one, part), place in zip(lines, at, strict=True):
        beside.setdefault(one.name, []).append((place, part))
    alone = _names_of_points(chart, x, y)
    body += "".join(_series(one, x, y, beside.get(one.name, []), alone.get(one.name)) for one in chart.series)
    return figure(width, bottom + 44, chart.title, body)


def _rule(rule: Rule, x: Scale, y: Scale) -> str:
    if rule.x is not None:
        at = x(rule.x)
        words = (label(at + 4, y.end + 10 + LINE * i, part, class_="tick") for i, part in enumerate(rule.words))
        return tag("line", x1=at, x2=at, y1=float(y.start), y2=float(y.end), class_="zero") + "".join(words)
    at = y(rule.y or 0.0)
    words = (label(x.end + 10, at + 4 + LINE * i, part) for i, part in enumerate(rule.words))
    return tag("line", x1=float(x.start), x2=float(x.end), y1=at, y2=at, class_="front") + "".join(words)


def _series(
    one: Series, x: Scale, y: Scale, end: Sequence[tuple[float, str]], beside: tuple[float, float, str] | None
) -> str:
    """`end`: lines of the name at a line's end, each with its height; `beside`: where that of a single point stands."""
    inside, body = below(one.points, y.high) if one.line else one.points, ""
    banded = [(x(p.x), y(p.low), y(min(p.high, y.high))) for p in inside if p.low is not None and p.high is not None]
    if one.bars:
        body += "".join(tag("line", x1=px, x2=px, y1=a, y2=b, class_="interval") for px, a, b in banded)
    elif one.line and banded:
        area = [(px, b) for px, _, b in banded] + [(px, a) for px, a, _ in reversed(banded)]
        body += tag("polygon", points=points(area), class_="band")
    if one.line:
        body += tag("polyline", points=points([(x(p.x), y(p.y)) for p in inside]), class_="curve")
    marks = [p for p in inside if p in one.points] if one.marked or not one.line else []
    body += "".join(_mark(x(p.x), y(p.y), one.r, one.hollow and not one.line, p.tip) for p in marks)
    if one.hollow and one.line and inside:
        body += _mark(x(inside[-1].x), y(inside[-1].y), one.r, True, "")
    if beside:
        body += _leader(x(one.points[0].x), y(one.points[0].y), one.label, *beside)
    if end:
        last = y(min(one.points[-1].y, y.high))
        bend = f"M{number(x.end + 2)} {number(last)}L{number(x.end + LEADER - 3)} {number(end[0][0])}"
        body += tag("path", d=bend, class_="leader")
        body += "".join(label(x.end + LEADER, at + 4, words, class_="end") for at, words in end)
    class_ = f"{'series' if one.line else 'point'}{' marked' * one.marked} {one.class_}".strip()
    return tag("g", body, class_=class_, **{f"data_{one.of}": one.name}, **({"data_tip": one.tip} if one.tip else {}))


def _mark(x: float, y: float, r: float, hollow: bool, tip: str) -> str:
    return tag("circle", cx=x, cy=y, r=r, class_="dot" + " hollow" * hollow, **({"data_tip": tip} if tip else {}))


def _leader(px: float, py: float, name: str, x: float, y: float, anchor: str) -> str:
    line = ""
    if abs(x - px) > 11 or abs(y - py) > 11:
        line = tag("line", x1=px, y1=py, x2=x + (-2 if anchor == "start" else 2), y2=y, class_="leader")
    return line + label(x, y + 4, name, anchor, "beside")


def _names_of_points(chart: Chart, x: Scale, y: Scale) -> dict[str, tuple[float, float, str]]:
    """name -> where that of a single point stands, so that it covers nothing; what has no room has none."""
    alone = [one for one in chart.series if not one.line]
    taken = [(x(p.x) - 5, y(p.y) - 5, x(p.x) + 5, y(p.y) + 5) for one in alone for p in one.points]
    found = {}
    for one in sorted((one for one in alone if one.label), key=lambda one: y(one.points[0].y)):
        px, py, room = x(one.points[0].x), y(one.points[0].y), 0.88 * LETTER * len(one.label)
        for away, (dx, dy) in ((away, way) for away in AWAY for way in WAYS):
            at, level = px + away * dx, py + away * dy
            box = (at, level - 7, at + room, level + 7) if dx > 0 else (at - room, level - 7, at, level + 7)
            if x.start < box[0] and box[2] < chart.size[0] and y.end <= box[1] and box[3] < y.start:
                if not any(box[0] < c and a < box[2] and box[1] < d and b < box[3] for a, b, c, d in taken):
                    taken.append(box)
                    found[one.name] = (at, level, "start" if dx > 0 else "end")
                    break
    return found


def below(line: Sequence[Point], high: float) -> list[Point]:
    """The line from where it comes below `high`, at the point between two where it does; never above it."""
    found: list[Point] = []
    for a, b in pairwise(line):
        found += [a] * (a.y <= high)
        if (a.y > high) != (b.y > high):
            share = (high - a.y) / (b.y - a.y)
            ends = [
                None if p is None or q is None else p + share * (q - p) for p, q in ((a.low, b.low), (a.high, b.high))
            ]
            found.append(Point(a.x + share * (b.x - a.x), high, "", *ends))
    return found + [p for p in line[-1:] if p.y <= high]


def apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places of labels, moved so far that none covers another, in their order, within low … high where they fit."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    least = low
    for i in order:
        moved[i] = least = max(moved[i], least)
        least += gap
    most = high
    for i in reversed(order):
        moved[i] = most = min(moved[i], most)
        most -= gap
    return moved
