"""Scores over the values of two fields, as a table whose cells are shaded by their rank: one cell that diverged would
take all shades from the others."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

NOTHING = "–"
SHADE = 40
"""percent of the accent colour behind the best cell"""


@dataclass(frozen=True)
class Shaded:
    """What templates/macros.html:heat_map shows."""

    title: str
    heads: list[str]
    rows: list[tuple[str, list[tuple[str, int]]]]
    """(value of the first field, (words, shade) of each cell)"""


def shaded(
    title: str, down: Sequence[str], across: Sequence[str], values: Sequence[Sequence[float | None]], less: bool
) -> Shaded:
    """The table of `values` [down][across]; None: there is no run yet. `less`: the smaller the better."""
    known = sorted(value for line in values for value in line if value is not None)
    last = len(known) - 1

    def cell(value: float | None) -> tuple[str, int]:
        if value is None:
            return NOTHING, 0
        rank = (bisect_left(known, value) + bisect_right(known, value) - 1) / 2 / last if last else 0.5
        return f"{value:.4g}", round(SHADE * (1 - rank if less else rank))

    rows = [(name, [cell(value) for value in line]) for name, line in zip(down, values, strict=True)]
    return Shaded(title, list(across), rows)
