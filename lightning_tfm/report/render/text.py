"""Blocks for a terminal."""

import textwrap
from collections.abc import Sequence

from lightning_tfm.report.blocks import Block, Notes, Table

NAME = 12
"""columns that the names of rows keep, however narrow the terminal"""


def to_text(blocks: Sequence[Block], width: int = 79) -> str:
    """Tables and notes, an empty line between them; pictures are left out. Names too long for `width` are cut."""
    parts = []
    for block in blocks:
        if isinstance(block, Table):
            parts.append("\n".join(_table(block, width)))
        elif isinstance(block, Notes) and block.lines:
            parts.append("\n".join(textwrap.fill(line, width, subsequent_indent="  ") for line in block.lines))
    return "\n\n".join(parts) + "\n"


def _table(table: Table, width: int) -> list[str]:
    heads = [column.head for column in table.columns]
    first, *others = [max(map(len, cells)) for cells in zip(heads, *table.rows, strict=True)]
    widths = [min(first, max(NAME, width - sum(others) - 2 * len(others))), *others]
    left = [column.words for column in table.columns]
    lines = [_aligned(cells, widths, left) for cells in (heads, *table.rows)]
    rule = "─" * max(map(len, lines))
    body = [part for i, line in enumerate(lines[1:]) for part in (*[rule] * (i in table.rules), line)]
    title = textwrap.wrap(table.title, width)
    return [*title, lines[0], rule, *body]


def _aligned(cells: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    placed = zip(cells, widths, left, strict=True)
    return "  ".join(_cut(cell, w).ljust(w) if words else cell.rjust(w) for cell, w, words in placed).rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
