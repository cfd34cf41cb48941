"""What the page's script draws: curves, as plain data."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from lightning_tfm.watch.run_state import Points

COLOURS = 8
"""classes g0 … g7 of the style sheet; further curves reuse them, with other dashes"""
KEYED = 30
"""curves of which a key shows each"""


@dataclass(frozen=True)
class Curve:
    """One line."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int
    hollow: bool = False
    """stopped early: its marks, of a line the last, are not filled"""
    line: bool = False
    """in a chart of dots, this one is a line"""
    rest: bool = False
    """one of many behind another"""
    band: Sequence[tuple[float, float, float]] = ()
    """(x, lowest, highest) of the curves that this is the mean of"""
    row: str = ""
    """whose it is, where the page shows a verdict on it"""
    steps: int = 0
    """of its whole training"""
    across: dict[str, Points] = field(default_factory=dict)
    """name of another axis -> (step, its value)"""


@dataclass(frozen=True)
class Chart:
    """Curves over one axis."""

    title: str
    curves: list[Curve]
    note: str = ""
    log: bool = False
    """logarithmic at first"""
    scales: bool = True
    """the reader may choose"""
    dots: bool = False
    big: bool = False
    """as wide as the page"""
    from_zero: bool = True
    """the axis begins at step 0, else where the curves do"""
    last: float | None = None
    """where the axis ends at least: the last step"""
    to: str = ""
    """name of the curve that others are shown against at first, at the same share of their own training"""

    @property
    def choose(self) -> bool:
        """Whether there are too many curves for a key that hides and shows each, so that a list picks one out."""
        return len(self.curves) > KEYED

    def plain(self) -> dict[str, Any]:
        """For JSON; numbers as short as a picture needs them."""
        found: dict[str, Any] = {"title": self.title, "log": self.log, "series": [_series(c) for c in self.curves]}
        found |= {"dots": True} if self.dots else {"x0": 0} if self.from_zero else {}
        return found | ({"x1": self.last} if self.last else {}) | ({"to": self.to} if self.to else {})


def _series(curve: Curve) -> dict[str, Any]:
    found: dict[str, Any] = {"name": curve.name, "colour": curve.colour % COLOURS, "points": _short(curve.points)}
    found |= {key: True for key in ("hollow", "line", "rest") if getattr(curve, key)}
    found |= {"dash": curve.colour // COLOURS} if curve.colour >= COLOURS else {}
    found |= {"band": _short(curve.band)} if curve.band else {}
    found |= {"row": curve.row, "steps": curve.steps} if curve.row else {}
    return found | ({"across": {key: _short(points) for key, points in curve.across.items()}} if curve.across else {})


def _short(points: Sequence[Sequence[float]]) -> list[list[float]]:
    return [[_round(value) for value in point] for point in points]


def _round(value: float) -> float:
    if value == 0 or not math.isfinite(value):
        return 0
    return int(value) if value == int(value) and abs(value) < 1e15 else float(f"{value:.5g}")


def mean_curve(
    name: str, colour: int, curves: Sequence[Points], mean: Callable[[Sequence[float]], float] = fmean
) -> Curve:
    """The mean of curves at the steps that all of them have, and from the lowest to the highest of them a band."""
    steps: dict[float, list[float]] = {}
    for curve in curves:
        for step, value in curve:
            steps.setdefault(step, []).append(value)
    shared = sorted((step, values) for step, values in steps.items() if len(values) == len(curves))
    band = [(step, min(values), max(values)) for step, values in shared] if len(curves) > 1 else []
    return Curve(name, [(step, mean(values)) for step, values in shared], colour, band=band)
