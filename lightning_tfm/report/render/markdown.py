"""Blocks as Markdown."""

from collections.abc import Sequence

from lightning_tfm.report.blocks import Block, Cell, Fold, Notes, Table, Text, Widest


def to_markdown(blocks: Sequence[Block]) -> str:
    """Tables with their titles, notes as lists; pictures are left out."""
    parts = []
    flat = (part for block in blocks for part in (block.views[0] if isinstance(block, Widest) else (block,)))
    for block in flat:
        if isinstance(block, Table):
            parts += [f"{harmless(block.title)}\n"] * bool(block.title)
            parts.append("\n".join(map(_line, _lines(block))) + "\n")
        elif isinstance(block, Fold):
            parts += filter(None, [to_markdown(block.blocks)])
        elif isinstance(block, Text):
            parts += [f"{harmless(line)}\n" for line in block.lines]
        elif isinstance(block, Notes) and block.lines:
            parts.append("\n".join(f"- {harmless(line)}" for line in block.lines) + "\n")
    return "\n".join(parts)


def _lines(table: Table) -> list[list[str]]:
    rule = ["---" if column.words else "---:" for column in table.columns]
    return [[column.head for column in table.columns], rule, *([_cell(cell) for cell in row] for row in table.rows)]


def _cell(cell: str | Cell) -> str:
    sure = isinstance(cell, Cell) and cell.sure
    return str(cell).replace(cell.main, f"**{cell.main}**") if isinstance(cell, Cell) and sure else str(cell)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(harmless, cells)) + " |"


def harmless(text: str) -> str:
    """On one line, and neither markup nor the end of a cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
