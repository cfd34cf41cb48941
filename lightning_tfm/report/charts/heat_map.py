"""Scores over the values of two fields, as a table whose cells are shaded by their rank: one cell that diverged would
take all shades from the others."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from lightning_tfm.report.blocks import Table, columns

NOTHING = "–"
SHADE = 40
"""percent of the accent colour behind the best cell"""
STRONGER = "the stronger the colour, the better"


def heat_map(
    title: str, down: Sequence[str], across: Sequence[str], values: Sequence[Sequence[float | None]], less: bool
) -> Table:
    """Of `values` [down][across]; None: there is no run yet. `less`: the smaller the better."""
    known = sorted(value for line in values for value in line if value is not None)
    last = len(known) - 1

    def shade(value: float | None) -> int:
        if value is None:
            return 0
        rank = (bisect_left(known, value) + bisect_right(known, value) - 1) / 2 / last if last else 0.5
        return round(SHADE * (1 - rank if less else rank))

    rows = [
        [name, *(NOTHING if value is None else f"{value:.4g}" for value in line)]
        for name, line in zip(down, values, strict=True)
    ]
    return Table(title, columns("", *across), rows, shades=[[0, *map(shade, line)] for line in values])
