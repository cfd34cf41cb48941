"""Blocks for a terminal."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from lightning_tfm.plural_words import by_columns, without_filler
from lightning_tfm.report.blocks import Block, Fold, Main, Notes, Table, Text, Widest
from lightning_tfm.report.charts import forest_text

LEAST, NAME = 12, 24
"""columns that words keep unless single ones are shorter; longer text is broken only beyond this many"""
Lines = Sequence[str]
"""of one cell"""


def to_text(blocks: Sequence[Block], width: int = 79) -> str:
    """Tables and notes, an empty line between them; pictures are left out. Words too long for `width` are folded."""
    parts = []
    for block in blocks:
        if isinstance(block, Table):
            parts.append("\n".join(_table(block, width)))
        elif isinstance(block, Main):
            drawn = forest_text.to_text(replace(block.picture, title=block.title, scope=""), width)
            parts += [drawn.strip("\n")] * bool(drawn)
        elif isinstance(block, Widest):
            parts += _widest(block, width)
        elif isinstance(block, Fold):
            parts.append(to_text(block.blocks, width).rstrip("\n"))
        elif isinstance(block, Notes | Text) and block.lines:
            parts.append(_notes(block, width))
    return without_filler("\n\n".join(parts)).replace("\N{NO-BREAK SPACE}", " ") + "\n"


def _notes(block: Notes | Text, width: int) -> str:
    whole = [by_columns(line).replace(" %", "\N{NO-BREAK SPACE}%") for line in block.lines]
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
        for line in whole
    )


def _widest(block: Widest, width: int) -> list[str]:
    """Columns are left out before words are folded."""
    for view, room in [(view, None) for view in block.views] + [(view, width) for view in block.views[block.folds :]]:
        parts = [_table(part, room) if isinstance(part, Table) else [_notes(part, width)] for part in view]
        tables = [lines for part, lines in zip(view, parts, strict=True) if isinstance(part, Table)]
        if all(len(line) <= width for lines in tables for line in lines):
            break
    return [text for text in map("\n".join, parts) if text]


def _table(table: Table, width: int | None) -> list[str]:
    """None: as wide as needed."""
    left = [column.words for column in table.columns]
    folds = [column.words and column.kind != "word" for column in table.columns]
    cells: list[list[Lines]] = [[by_columns(str(cell)).split("\n") for cell in row] for row in table.rows]
    heads: list[Lines] = [(column.lines or column.head).split("\n") for column in table.columns]
    gap = 1 if table.dense else 2
    if width is not None:
        heads, *cells = _narrower_rows([heads, *cells], folds, width, gap)
    widths = _widths([heads, *cells])
    first = _cell_lines(heads, widths, left, gap, bottom=True)
    body = [_cell_lines(row, widths, left, gap) for row in cells]
    rule = "─" * max(len(line) for lines in (first, *body) for line in lines)
    title = textwrap.wrap(table.title, width) if width else [table.title] * bool(table.title)
    parts = [part for i, lines in enumerate(body) for part in (*[rule] * (i in table.rules), *lines)]
    return [*title, *first, rule, *parts, *[rule] * (len(body) in table.rules)]


def _narrower_rows(rows: list[list[Lines]], folds: Sequence[bool], width: int, gap: int) -> list[list[Lines]]:
    """Columns of words, but for verdicts, in as many lines as they need, the first last; words are broken where nothing
    else helps, and columns of short words made narrow only where the table then fits."""
    of_words = [i for i in range(len(folds) - 1, -1, -1) if folds[i]]
    for most, least in ((NAME, LEAST), (LEAST, LEAST), (LEAST, 1)):
        before = rows
        for i in of_words:
            excess = _excess(rows, width, gap)
            if excess > 0:
                longest = max(len(word) for row in rows for line in row[i] for word in line.split(" "))
                room = max(_widths(rows)[i] - excess, least, min(longest, most))
                rows = [[*row[:i], _lines(row[i], room), *row[i + 1 :]] for row in rows]
    return before if _excess(rows, width, gap) > 0 else rows


def _excess(rows: Sequence[Sequence[Lines]], width: int, gap: int) -> int:
    """Columns of the terminal that a table is too wide by."""
    widths = _widths(rows)
    return sum(widths) + gap * (len(widths) - 1) - width


def _lines(cell: Lines, width: int) -> Lines:
    return [part for line in cell for part in textwrap.wrap(line, width, break_on_hyphens=False) or [""]]


def _widths(rows: Sequence[Sequence[Lines]]) -> list[int]:
    return [max(len(line) for cell in cells for line in cell) for cells in zip(*rows, strict=True)]


def _cell_lines(
    cells: Sequence[Lines], widths: Sequence[int], left: Sequence[bool], gap: int, bottom: bool = False
) -> list[str]:
    height = max(map(len, cells))
    stacks = []
    for cell, width, words in zip(cells, widths, left, strict=True):
        blank = [""] * (height - len(cell))
        lines = [*blank, *cell] if bottom else [*cell, *blank]
        stacks.append([line.ljust(width) if words else line.rjust(width) for line in lines])
    return [(" " * gap).join(parts).rstrip() for parts in zip(*stacks, strict=True)]
