"""Blocks for a terminal."""

import textwrap
from collections.abc import Sequence

from lightning_tfm.report.blocks import Block, Fold, Notes, Table, Text

NAME = 12
"""columns that the names of rows keep, however narrow the terminal"""


def to_text(blocks: Sequence[Block], width: int = 79) -> str:
    """Tables and notes, an empty line between them; pictures are left out. Names too long for `width` are cut."""
    parts = []
    for block in blocks:
        if isinstance(block, Table):
            parts.append("\n".join(_table(block, width)))
        elif isinstance(block, Fold):
            parts.append(to_text(block.blocks, width).rstrip("\n"))
        elif isinstance(block, Notes | Text) and block.lines:
            parts.append("\n".join(textwrap.fill(line, width, subsequent_indent="  ") for line in block.lines))
    return "\n\n".join(parts) + "\n"


def _table(table: Table, width: int) -> list[str]:
    rows = [[column.head for column in table.columns], *table.rows]
    first, *others = _widths(rows)
    kept = list(range(len(table.columns)))
    if first + sum(others) + 2 * len(others) > width and any(column.short is not None for column in table.columns):
        kept = [i for i, column in enumerate(table.columns) if column.short is not None]
        rows = [[table.columns[i].short or "" for i in kept], *([row[i] for i in kept] for row in table.rows)]
        first, *others = _widths(rows)
    widths = [min(first, max(NAME, width - sum(others) - 2 * len(others))), *others]
    left = [table.columns[i].words for i in kept]
    lines = [_aligned(cells, widths, left) for cells in rows]
    rule = "─" * max(map(len, lines))
    body = [part for i, line in enumerate(lines[1:]) for part in (*[rule] * (i in table.rules), line)]
    title = textwrap.wrap(table.title, width)
    return [*title, lines[0], rule, *body]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, cells)) for cells in zip(*rows, strict=True)]


def _aligned(cells: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    placed = zip(cells, widths, left, strict=True)
    return "  ".join(_cut(cell, w).ljust(w) if words else cell.rjust(w) for cell, w, words in placed).rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
