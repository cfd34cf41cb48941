"""What the page's script draws: curves, as plain data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lightning_tfm.watch.run_state import Points

COLOURS = 8
"""classes g0 … g7 of the style sheet"""


@dataclass(frozen=True)
class Curve:
    """One line."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int
    dashed: bool = False
    line: bool = False
    """in a chart of dots, this one is a line"""
    rest: bool = False
    """one of many that stand behind another"""


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
    smooth: bool = False
    """the page's smoothing acts on it"""
    dots: bool = False
    big: bool = False
    """as wide as the page"""
    last: float | None = None
    """where the axis ends at least: the last step"""
    across: dict[str, Points] = field(default_factory=dict)
    """name of another axis -> (step, its value)"""

    @property
    def choose(self) -> bool:
        """Whether there are so many curves that one wants to pick one out."""
        return len(self.curves) > 6

    def plain(self) -> dict[str, Any]:
        """For JSON; numbers as short as a picture needs them."""
        series = [
            {"name": c.name, "colour": c.colour % COLOURS, "points": [[_round(x), _round(y)] for x, y in c.points]}
            | ({"dashed": True} if c.dashed else {})
            | ({"line": True} if c.line else {})
            | ({"rest": True} if c.rest else {})
            for c in self.curves
        ]
        found: dict[str, Any] = {"title": self.title, "log": self.log, "smooth": self.smooth, "series": series}
        found |= {"x0": 0} if not self.dots else {"dots": True}
        found |= {"x1": self.last} if self.last else {}
        across = {key: [[_round(x), _round(y)] for x, y in points] for key, points in self.across.items()}
        return found | ({"across": across} if across else {})


def _round(value: float) -> float:
    if value == 0 or not math.isfinite(value):
        return 0
    return int(value) if value == int(value) and abs(value) < 1e15 else float(f"{value:.5g}")
