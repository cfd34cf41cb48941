"""The main figure as SVG: in columns on a screen and on paper, with two lines for each change on a telephone."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightning_tfm.plural_words import numeral
from lightning_tfm.report.charts.forest import Axis, Entry, Forest, Line
from lightning_tfm.report.charts.svg import Scale, figure, label, number, tag
from lightning_tfm.report.wording.verdict_words import Verdict

WIDE, SLIM = 1000, 380
NAME = 34
"""letters of a name before it takes a second line"""
SIDE = 7.4
"""width of a letter of the words that say which side is better"""
BOLD = 1.2
"""times the width of letters: of bold ones"""
DIAMOND = 6.5
"""half of its height: it shows beside a mark that lies on it"""


@dataclass(frozen=True)
class Face:
    """Sizes of one of the two forms, in the picture's own pixels."""

    width: int
    size: int
    """of letters"""
    letter: float
    """width of one, in the widest of common fonts"""
    title: float
    """of a letter of the title, which is larger and bold"""
    line: int
    """of text"""
    row: int
    mark: float


COLUMNS = Face(WIDE, 14, 8.3, 12.2, 18, 26, 5.5)
LINES = Face(SLIM, 13, 7.2, 9.8, 17, 36, 5.0)


def wide(forest: Forest, titled: bool = False) -> Markup:
    """Names, both metrics, numbers and verdicts in columns. `titled`: with title and scope, to stand alone."""
    if not forest.lines:
        return Markup()
    f, face = forest, COLUMNS
    names = [textwrap.wrap(line.name, NAME) or [""] for line in f.lines]
    room = [_room([axis.number(e.estimate) for _, e in f.entries(i)], face) + 6 for i, axis in enumerate(f.axes)]
    sure = _room([*(e.sure for _, e in f.entries(0)), f.asks + "  "], face) if f.tested else 0.0
    left = 1.05 * _room([part for name in names for part in name], face) + 12
    plot = face.width - left - sum(room) - sure - 14 * (len(f.axes) + bool(sure)) - 14 * (len(f.axes) - 1)
    shares = [1.0] if len(f.axes) == 1 else [0.68, 0.32]
    height = face.row + 14 * (max(map(len, names)) - 1)
    body, top = _titles(f, face) if titled else ("", 0)
    ends, at, panels = top + 44 + height * len(f.lines), left, []
    for i, axis in enumerate(f.axes):
        scale = Scale(*_with_margin(f.ends(i)), at, at + plot * shares[i])
        panels.append((axis, scale, at + plot * shares[i] + 8 + room[i]))
        body += _panel(axis, scale, top, ends, f.heading if i == 0 else axis.name)
        at += plot * shares[i] + 8 + room[i] + 20
    if sure:
        body += label(face.width - sure, top + 14, f.asks, class_="strong")
        if len(f.axes) > 1:
            body += label(face.width - sure, top + 34, f"in {f.axes[0].prose or f.axes[0].name}", class_="tick")
    for k, (line, name) in enumerate(zip(f.lines, names, strict=True)):
        middle = top + 44 + height * (k + 0.5)
        own = tag("rect", x=0.0, y=middle - height / 2, width=face.width, height=height, class_="ground row")
        for j, part in enumerate(name):
            own += label(left - 12, middle + 5 + 15 * (j - (len(name) - 1) / 2), part, "end")
        for i, (axis, scale, right) in enumerate(panels):
            entry = line.entries[i]
            if entry is not None:
                drawn = _entry(entry, axis, scale, middle, face.mark * (1 if i == 0 else 0.82))
                drawn += label(
                    right, middle + 5, axis.number(entry.estimate), "end", "sure strong" if i == 0 else "sure"
                )
                own += tag("g", drawn, class_=entry.style)
        if sure and line.entries[0] is not None:
            words = label(face.width - sure, middle + 5, line.entries[0].sure, class_="sure")
            own += tag("g", words, class_=line.entries[0].style)
        body += tag("g", own, class_="forest-row", data_row=line.row, data_tip="\n".join(tip(line, f)))
    legend, more = _legend(f, face, left, ends + 46)
    return figure(face.width, round(more), f.title, body + legend, face.size)


def narrow(forest: Forest, titled: bool = False) -> Markup:
    """Only the metric that decides: a line of words over a line of the picture for each change."""
    drawn = [(line, entry) for line, entry in forest.entries(0)]
    if not drawn:
        return Markup()
    f, face, axis = forest, LINES, forest.axes[0]
    body, top = _titles(f, face) if titled else ("", 0)
    scale = Scale(*_with_margin(f.ends(0)), 8, face.width - 8)
    numbers = BOLD * _room([axis.number(entry.estimate) for _, entry in drawn], face)
    words = [(line, entry, _beside(line, entry.sure * f.tested, numbers, face)) for line, entry in drawn]
    ends = top + 44 + sum(face.row + face.line * (len(name) - 1) for _, _, name in words)
    body += _panel(axis, scale, top, ends, f.heading, within=True)
    y = top + 44.0
    for line, entry, name in words:
        height = face.row + face.line * (len(name) - 1)
        own = tag("rect", x=0.0, y=y, width=face.width, height=float(height), class_="ground row")
        for j, part in enumerate(name):
            own += label(4, y + 14 + face.line * j, part, class_="haloed")
        at = y + 14 + face.line * (len(name) - 1)
        colour = label(face.width - 4, at, axis.number(entry.estimate), "end", "sure strong haloed")
        colour += label(face.width - 12 - numbers, at, entry.sure, "end", "sure haloed") if f.tested else ""
        colour += _entry(entry, axis, scale, at + 13, face.mark)
        own += tag("g", colour, class_=entry.style)
        body += tag("g", own, class_="forest-row", data_row=line.row, data_tip="\n".join(tip(line, f)))
        y += height
    legend, more = _legend(f, face, 8, ends + 44)
    return figure(face.width, round(more), f.title, body + legend, face.size)


def both(forest: Forest) -> Markup:
    """For a page: the one that its width asks for is seen."""
    if not forest.lines:
        return Markup()
    forms = (("on-screens", wide(forest)), ("on-phones", narrow(forest)))
    return Markup("\n").join(Markup(tag("figure", drawn, class_=f"forest {form}")) for form, drawn in forms)


def _room(words: Sequence[str], face: Face) -> float:
    return face.letter * max(map(len, words), default=0)


def _with_margin(ends: tuple[float, float]) -> tuple[float, float]:
    pad = 0.04 * (ends[1] - ends[0])
    return ends[0] - pad, ends[1] + pad


def _beside(line: Line, sure: str, numbers: float, face: Face) -> list[str]:
    """A name in lines, the last of them empty where number and verdict leave it no room."""
    if 4 + face.letter * (len(line.name) + len(sure)) + 12 + numbers <= face.width:
        return [line.name]
    return [*textwrap.wrap(line.name, int(face.width / face.letter)), ""]


def _titles(f: Forest, face: Face) -> tuple[str, int]:
    body, y = "", 0
    title, class_ = (f.title, "headline") if face is COLUMNS else (f.brief or f.title, "headline small")
    for part in textwrap.wrap(title, int(face.width / face.title)):
        y += round(1.35 * face.line)
        body += label(0, y, part, class_=class_)
    for part in textwrap.wrap(f.scope, int(face.width / face.letter)):
        y += face.line + 2
        body += label(0, y, part, class_="title")
    return body, y + 14


def _panel(axis: Axis, scale: Scale, top: float, bottom: float, heading: str, within: bool = False) -> str:
    """Grid, ticks, its heading and which side is better. `within`: the picture ends with the axis."""
    zero = scale(0.0)
    body = label(scale.start, top + 14, heading, class_="strong")
    low, high = scale(scale.low), scale(scale.high)
    ticks = scale.ticks(5 if high - low > 200 else 3)
    for value in ticks if len(ticks) > 1 else scale.ticks(5):
        x = scale(value)
        body += tag("line", x1=x, x2=x, y1=top + 40, y2=bottom, class_="zero-line" if value == 0 else "grid")
        said = "0" if value == 0 else numeral(value, "+g") + " %" * axis.percent
        half = SIDE * (len(said) + 1) / 2  # signs are wider than letters
        middle = min(max(x, half), scale.start + scale.end - half) if within else x
        body += label(middle, bottom + 16, said, "middle", "tick")
    sides = ("better", "worse") if axis.lower_is_better else ("worse", "better")
    for way, side, room in ((-1, sides[0], zero - low), (1, sides[1], high - zero)):
        if room > (20 + SIDE * len(side) if within else 12):  # it may reach beyond the axis: nothing else is there
            body += label(zero + 8 * way, top + 34, side, "end" if way < 0 else "start", "tick")
            body += _arrow(zero + way * (16 + SIDE * len(side)), top + 34, way)
    return body


def _arrow(x: float, y: float, way: int) -> str:
    """A small triangle: not every font has one."""
    corners = f"M{number(x)} {number(y - 9)}L{number(x + 5 * way)} {number(y - 4.5)} {number(x)} {number(y)}z"
    return tag("path", d=corners, class_="arrowhead")


def _entry(entry: Entry, axis: Axis, scale: Scale, y: float, r: float) -> str:
    """Interval, the published difference, and ours above it; what is beyond the edge as an arrow with its interval."""
    body, ends = "", None if entry.lower is None or entry.upper is None else (entry.lower, entry.upper)
    shown = scale.low <= entry.estimate <= scale.high
    dots = [scale(v) for _, v in entry.dots if scale.low <= v <= scale.high]
    beside = []

    def within(value: float) -> float:
        return scale(min(max(value, scale.low), scale.high))

    if ends:
        if entry.outer:
            body += _outer(within(entry.outer[0]), within(entry.outer[1]), y)
        low, high = map(within, ends)
        body += _band(low, y, max(high - low, 1.0), r) * (shown or high > low)
        outside = ((-1, ends[0] < scale.low, low), (1, ends[1] > scale.high, high))
        body += "".join(_arrow(x - 5 * way, y + 4.5, way) for way, beyond, x in outside if beyond and shown)
    if entry.published is not None and scale.low <= entry.published <= scale.high:
        beside = [scale(entry.published)]
        body += _diamond(beside[0], y, DIAMOND * r / COLUMNS.mark)
    body += "".join(_dot(x, y) for x in dots)
    if shown:
        return body + _mark(scale(entry.estimate), y, r, entry.decided)
    way, edge = (1, scale(scale.high)) if entry.estimate > scale.high else (-1, scale(scale.low))
    n = number
    body += tag("path", d=f"M{n(edge)} {n(y)}L{n(edge - 2 * way * r)} {n(y - r)}V{n(y + r)}z", class_="ours")
    said = f"[{axis.number(ends[0], False)}, {axis.number(ends[1])}]" if ends else ""
    at, room = edge - way * (2 * r + 6), SIDE * len(said)
    for x in sorted([*beside, *dots], reverse=way > 0):
        if -10 < way * (at - x) < room + 10:  # the words give way to a mark
            at = x - 12 * way
    cleared = tag("rect", x=at - room * (way > 0), y=y - 8, width=room, height=16.0, class_="ground") if said else ""
    return body + cleared + label(at, y + 4, said, "end" if way > 0 else "start", "tick haloed")


def _mark(x: float, y: float, r: float, decided: bool = True) -> str:
    return tag("circle", cx=x, cy=y, r=r, class_="ours" + " hollow" * (not decided))


def _band(x: float, y: float, width: float, r: float) -> str:
    return tag("rect", x=x, y=y - 0.75 * r, width=width, height=1.5 * r, rx="2", class_="soft-band")


def _outer(low: float, high: float, y: float) -> str:
    return tag("line", x1=low, x2=high, y1=y, y2=y, class_="outer")


def _dot(x: float, y: float) -> str:
    return tag("circle", cx=x, cy=y, r=2.6, class_="corpus")


def _diamond(x: float, y: float, h: float) -> str:
    n = number
    return tag("path", d=f"M{n(x - h)} {n(y)}L{n(x)} {n(y - h)} {n(x + h)} {n(y)} {n(x)} {n(y + h)}z", class_="paper")


def tip(line: Line, f: Forest) -> list[str]:
    """What pointing at a change says, in lines; the first its name."""
    said = [f"{line.name} ({line.code})" if line.code else line.name]
    for axis, entry in zip(f.axes, line.entries, strict=True):
        if entry is None:
            continue
        text = f"{axis.name} {axis.number(entry.estimate)}"
        if entry.lower is not None and entry.upper is not None:
            text += f", {f.level} % {axis.number(entry.lower, False)} to {axis.number(entry.upper)}"
        text += f", {f.published} {axis.number(entry.published)}" if entry.published is not None else ""
        said.append(text)
        if len(entry.by_seed) > 1:
            said.append("by seed: " + ", ".join(axis.number(v, False) for v in sorted(entry.by_seed)))
        said += [f"{name} {axis.number(v)}" for name, v in entry.dots]
        said += entry.tip
        said += [entry.sure] * bool(entry.verdict)
    return said


def _legend(f: Forest, face: Face, left: float, y: float) -> tuple[str, float]:
    """Inside the picture, in as many lines as it takes; and where it ends."""
    every = [entry for i in range(len(f.axes)) for _, entry in f.entries(i)]
    r = face.mark
    band, diamond = _band(-11, 0, 22, r), _diamond(0, 0, DIAMOND)
    parts = [(_mark(0, 0, r), f.here or f"here{', mean of ' * bool(f.seeds)}{f.seeds}", 8.0)]
    parts += [(band, f"{f.level} % interval", 14.0)] * any(e.lower is not None for e in every)
    parts += [(diamond, f.beside or f"{f.published}, one run", 9.0)] * any(e.published is not None for e in every)
    parts += [(_outer(-11, 11, 0), f.outer, 14.0)] * any(e.outer for e in every)
    parts += [(_dot(0, 0), f.dots, 6.0)] * any(e.dots for e in every)
    if every and not f.tested:
        parts = [(tag("g", mark, class_=every[0].style), words, half) for mark, words, half in parts]
    shown = dict.fromkeys(
        (e.style, e.word.shown) for e in every if e.word and e.decided and e.verdict != Verdict.UNTESTABLE
    )
    if style := next((e.style for e in every if not e.decided), ""):
        parts.append((tag("g", _mark(0, 0, r, False), class_=style), "no difference shown", 8.0))
    for style in dict.fromkeys(style for style, _ in shown):
        words = " or ".join(word for one, word in shown if one == style)
        parts.append((tag("g", _mark(0, 0, r), class_=style), words, 8.0))
    body, x = "", left
    most = int((face.width - left - 44) / face.letter)
    for mark, words, half in ((mark, w if len(w) <= most else w[: most - 1] + "…", half) for mark, w, half in parts):
        room = 2 * half + 8 + face.letter * len(words) + 16
        if x + room > face.width and x > left:
            x, y = left, y + face.line + 2
        body += tag("g", mark, transform=f"translate({number(x + half)} {number(y - 4.5)})")
        body += label(x + 2 * half + 6, y, words)
        x += room
    for part in textwrap.wrap(f.more, int(face.width / face.letter)):
        y += face.line + 4
        body += label(4, y, part, class_="title")
    return body, y + 12
