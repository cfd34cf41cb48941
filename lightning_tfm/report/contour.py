"""An objective over two parameters of a search: filled levels between the trials, and nothing where there are none."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.interpolate import griddata
from scipy.spatial import QhullError

from lightning_tfm.report.panels import short_name
from lightning_tfm.report.search_figures import Axis, cross, said, shades, stopped, value_of, value_scale
from lightning_tfm.report.search_summary import SearchSummary
from lightning_tfm.report.svg import attribute, figure, label, number, pointed, short, tag
from lightning_tfm.study.space import Parameter

LEAST = 8
"""trials below which a surface through them says nothing; and it needs more values than LEVELS"""
GRID = 36
LEVELS = 6
MOST = 4
"""parameters of which every pair is drawn: those that matter most"""
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 412, 322, 56, 56 + 8 * GRID, 16, 16 + 7 * GRID
"""of a picture; its cells end at whole pixels, so that none is seen between them"""


def pairs(report: SearchSummary, objective: str) -> list[tuple[Parameter, Parameter]]:
    """Every two of the ranges that explain the most of the objective."""
    shares = next((one.importance or {} for one in report.importance if one.objective == objective), {})
    ranges = [p for p in report.space if p.distribution not in ("categorical", "constant") and p.low != p.high]
    chosen = sorted(ranges, key=lambda p: -shares.get(p.name, 0.0))[:MOST]
    return [(a, b) for i, a in enumerate(chosen) for b in chosen[i + 1 :]]


def contour(report: SearchSummary, objective: str, across: Parameter, up: Parameter) -> str:
    """The levels between the finished trials, interpolated linearly; empty if these are few or on a line."""
    trials = report.with_values(objective)
    x, y = Axis(across, LEFT, RIGHT), Axis(up, BOTTOM, TOP)
    values = [value_of(t, objective) for t in trials]
    if len(trials) < LEAST or len(set(values)) <= LEVELS:
        return ""
    scale = value_scale(values, 0.0, 1.0)
    worth = np.array([scale(v) for v in values])
    places = np.array([(x(t.change[across.name]), y(t.change[up.name])) for t in trials])
    surface_YX = _surface(places, worth)
    if surface_YX is None:
        return ""
    edges = np.quantile(worth, np.linspace(0, 1, LEVELS + 1))
    less = report.objectives[objective] == "minimize"
    body = tag("rect", x=LEFT, y=TOP, width=RIGHT - LEFT, height=BOTTOM - TOP, class_="ground")
    body += "".join(_bands(surface_YX, edges, less)) + _axes(x, y, across, up) + _key(values, less)
    body += "".join(cross(t, x(t.change[across.name]), y(t.change[up.name])) for t in stopped(report))
    kind = shades(report, objective)
    for t, (px, py) in zip(trials, places, strict=True):
        mark = tag("circle", cx=float(px), cy=float(py), r=3.2, class_="dot ringed")
        content = pointed(said(t)) + mark
        body += tag("g", content, class_=f"point {kind[t.trial]}", data_trial=t.trial)
    return figure(WIDTH, HEIGHT, f"{objective} over {across.name} and {up.name}", body)


def _surface(places: np.ndarray, worth: np.ndarray) -> np.ndarray | None:
    """[Y, X] at the middle of every cell, NaN outside of the trials; None if they are on a line."""
    across = LEFT + (np.arange(GRID) + 0.5) * (RIGHT - LEFT) / GRID
    down = TOP + (np.arange(GRID) + 0.5) * (BOTTOM - TOP) / GRID
    try:
        found: np.ndarray = griddata(places, worth, tuple(np.meshgrid(across, down)), method="linear")
    except QhullError:
        return None
    return None if np.isnan(found).all() else found


def _bands(surface_YX: np.ndarray, edges: np.ndarray, less: bool) -> Iterator[str]:
    """Adjacent cells of one level are one rectangle; the better, the stronger."""
    wide, high = (RIGHT - LEFT) / GRID, (BOTTOM - TOP) / GRID
    level_YX = np.clip(np.searchsorted(edges, np.nan_to_num(surface_YX), side="right") - 1, 0, LEVELS - 1)
    level_YX[np.isnan(surface_YX)] = -1
    for j, row in enumerate(level_YX):
        start = 0
        for i in range(1, GRID + 1):
            if i == GRID or row[i] != row[start]:
                if row[start] >= 0:
                    shade = f"{_shade(int(row[start]), less):.2f}"
                    x, y, width = LEFT + start * wide, TOP + j * high, (i - start) * wide
                    yield tag("rect", class_="level", fill_opacity=shade, x=x, y=y, width=width, height=high)
                start = i


def _shade(level: int, less: bool) -> float:
    rank = level / (LEVELS - 1)
    return 0.06 + 0.6 * (1 - rank if less else rank)


def _axes(x: Axis, y: Axis, across: Parameter, up: Parameter) -> str:
    body = tag("line", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM, class_="axis")
    body += tag("line", x1=LEFT, x2=LEFT, y1=TOP, y2=BOTTOM, class_="axis")
    body += "".join(label(place, BOTTOM + 14, words, "middle", "tick") for place, words in x.ticks())
    body += "".join(label(LEFT - 5, place + 4, words, "end", "tick") for place, words in y.ticks())
    body += label((LEFT + RIGHT) / 2, BOTTOM + 34, short_name(across.name, 40), "middle", "title")
    middle = number((TOP + BOTTOM) / 2)
    turned = f"translate(12 {middle}) rotate(-90)"
    return body + tag(
        "text", attribute(short_name(up.name, 36)), transform=turned, text_anchor="middle", class_="title"
    )


def _key(values: Sequence[float], less: bool) -> str:
    """The levels with the values where they end: even shares of the trials."""
    bounds = np.quantile(np.sort(values), np.linspace(0, 1, LEVELS + 1))
    body, step = "", (BOTTOM - TOP) / LEVELS
    for level in range(LEVELS):
        top = TOP + step * (level if less else LEVELS - 1 - level)
        shade = f"{_shade(level, less):.2f}"
        body += tag("rect", x=RIGHT + 12, y=top, width=12, height=step, class_="level", fill_opacity=shade)
    for i, bound in enumerate(bounds):
        y = TOP + step * (i if less else LEVELS - i)
        body += label(RIGHT + 28, y + 4, short(_rounded(float(bound))), "start", "tick")
    return body


def _rounded(value: float) -> float:
    return float(f"{value:.3g}") if math.isfinite(value) else value
