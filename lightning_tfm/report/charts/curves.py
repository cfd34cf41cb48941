"""Learning curves: one wide picture where rows are few, small multiples beside base where they are many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from markupsafe import Markup

from lightning_tfm.metrics import PPL
from lightning_tfm.report.charts.panels import BASE, FEW, Panel, panels
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
from lightning_tfm.report.records import Cells
from lightning_tfm.report.summary import Summary

MANY = 60
"""rows beyond which they are no longer drawn together"""
POINTS = 60
"""of one curve"""
FALLS = 2.0
"""times their lowest value: where curves begin higher, the axis is logarithmic at first"""
ABOVE = 1.8
"""times the highest final value: where a straight axis ends"""
LONGER = 1.5
"""times the steps of another row: from there on all rows are drawn over the share of their own training"""
WIDE, SMALL = (1200, 430), (440, 300)
LETTERS = {1200: (10.6, 19.0)}
"""width of one and distance of lines at the curves' ends, of a wide picture as large as a tablet and paper have them
(templates/pictures.css)"""
Band = list[tuple[float, float, float, float]]
"""(step, lowest, mean, highest) over seeds"""


@dataclass(frozen=True)
class Picture:
    """The same curves over both axes."""

    title: str
    linear: Markup
    log: Markup


@dataclass(frozen=True)
class Curves:
    """What templates/parts/curves.html shows."""

    panels: list[Picture]
    narrow: list[Picture]
    """the same for a narrow screen; empty where the panels are small anyway"""
    together: Picture | None
    """all rows in one, where there are many"""
    rows: list[str]
    log: bool
    """whether the axis is logarithmic at first"""
    shares: bool = False
    """whether all rows are drawn over the share of their own training, as some trained far longer"""


def curves(report: Summary, cells: Cells) -> Curves | None:
    """Dev perplexity in the course of training; None where no run has any."""
    found = {r.name: _band(cells, r.name) for r in report.rows}
    found = {name: band for name, band in found.items() if band}
    if not found:
        return None
    drawn = [r for r in report.rows if r.name in found]
    chosen, few = panels(drawn), len(drawn) <= FEW
    frame = Frame.around(found, marked=len(drawn) <= MANY)
    every = [_picture(found, panel, frame.sized(*(WIDE if few else SMALL))) for panel in chosen]
    last = [band[-1][0] for band in found.values()]
    shares, together = max(last) > LONGER * min(last), None
    if not few and len(drawn) <= MANY:
        whole = Panel("all rows", list(found), {r.name: BASE if r.base else "rest" for r in drawn}, {})
        shown = {name: _of_its_own(band) for name, band in found.items()} if shares else found
        frame = replace(
            frame.sized(*WIDE), names=False, step="share of each row's own training, %" if shares else "step"
        )
        together = _picture(shown, whole, frame)
    narrow = [_picture(found, panel, frame.sized(420, 380)) for panel in chosen] if few else []
    log = falls(frame.lowest, frame.highest)
    return Curves(every, narrow, together, list(found), log, shares and together is not None)


def falls(lowest: float, highest: float) -> bool:
    """Whether curves between these values fall so far that their axis is logarithmic at first."""
    return highest > FALLS * lowest


def _of_its_own(band: Band) -> Band:
    return [(100 * s / band[-1][0], low, middle, high) for s, low, middle, high in band]


@dataclass(frozen=True)
class Frame:
    """What the pictures of one study have in common."""

    lowest: float
    highest: float
    """of all values"""
    ends: float
    """of the mean perplexities at the end, the highest"""
    marked: bool
    """with a mark at each point, to be pointed at"""
    names: bool = True
    """at the ends of the curves"""
    width: int = 0
    height: int = 0
    step: str = "step"

    @classmethod
    def around(cls, found: Mapping[str, Band], marked: bool) -> "Frame":
        values = [v for band in found.values() for _, *vs in band for v in vs]
        final = [band[-1][2] for band in found.values()]
        return cls(min(values), max(values), max(final), marked)

    def sized(self, width: int, height: int) -> "Frame":
        return replace(self, width=width, height=height)


def _picture(found: Mapping[str, Band], panel: Panel, frame: Frame) -> Picture:
    return Picture(panel.title, *(_drawn(found, panel, frame, log) for log in (False, True)))


def _drawn(found: Mapping[str, Band], panel: Panel, frame: Frame, log: bool) -> Markup:
    names = [name for name in panel.rows if name in found]
    letter, line = LETTERS.get(frame.width, (7.6, 13.0))
    beside = round(letter * max(len(panel.labels[name]) for name in names)) + 10 if frame.names else 14
    left, right, top, bottom = 46, frame.width - beside, 26, frame.height - 44
    x = spanning([s for name in names for s, *_ in found[name]], left, right, margin=0.02)
    # on a straight axis the first validations would flatten all the rest
    high = frame.highest if log else min(frame.highest, ABOVE * frame.ends)
    y = spanning([frame.lowest, high], bottom, top, log)
    body = bottom_axis(x, bottom, top, frame.step) + left_axis(y, left, right, "dev perplexity")
    for name in names:
        body += _series(name, found[name], x, y, panel.classes[name], frame)
    if frame.names:
        places = apart([y(found[name][-1][2]) for name in names], line, top, bottom)
        for name, place in zip(names, places, strict=True):
            at = label(right + 6, place + 4, panel.labels[name], class_="label end")
            body += tag("g", at, class_=f"named {panel.classes[name]}", data_row=name)
    said = f"Learning curves{': ' * bool(panel.title)}{panel.title}, {'logarithmic' if log else 'straight'} axis"
    return figure(frame.width, frame.height, said, body)


def _series(name: str, band: Band, x: Scale, y: Scale, class_: str, frame: Frame) -> str:
    inside = below(band, y.high)
    area = [(x(s), y(min(hi, y.high))) for s, _, _, hi in inside]
    area += [(x(s), y(lo)) for s, lo, _, _ in reversed(inside)]
    content = tag("polygon", points=points(area), class_="band")
    content += tag("polyline", points=points([(x(s), y(m)) for s, _, m, _ in inside]), class_="curve")
    for s, _, m, _ in [at for at in inside if at in band] if frame.marked and frame.names else []:
        content += dot(x(s), y(m), f"{name}, step {s}: {m:.3f}")
    dashed = " base" if class_ == BASE else ""
    return tag("g", pointed(name) + content, class_=f"series {class_}{dashed}", data_row=name)


def below(band: Band, high: float) -> Band:
    """The band from where its mean comes below `high`, at the point between two steps where it does; never above it."""
    first = next((i for i, (_, _, m, _) in enumerate(band) if m <= high), len(band))
    found = []
    for before, after in pairwise(band[max(first - 1, 0) :]):
        share = (high - before[2]) / (after[2] - before[2]) if (before[2] > high) != (after[2] > high) else 0.0
        crossing = tuple(p + share * (q - p) for p, q in zip(before, after, strict=True))
        found += [*[before] * (before[2] <= high), *[crossing] * (share > 0)]
    found += band[-1:] if first < len(band) else []
    return [(s, lo, min(m, high), hi) for s, lo, m, hi in found]


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


def _band(cells: Cells, row: str) -> Band:
    """At the steps that every seed has."""
    runs = [cell.validations for cell in cells.of(row)]
    runs = [run for run in runs if run]
    shared = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
    return [(s, min(v), PPL.mean(v), max(v)) for s in thinned(shared) if (v := [run[s] for run in runs])]


def thinned(steps: Sequence[int], most: int = POINTS) -> list[int]:
    """At most `most` of them, evenly, the last among them."""
    if len(steps) <= most:
        return list(steps)
    every = (len(steps) - 1) / (most - 1)
    return [steps[round(i * every)] for i in range(most)]
