"""What an analysis says, in no format: tables, figures and notes. render/ shows them in a terminal and on pages.

An analysis makes blocks of its own dataclass; a renderer knows a format and no analysis.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup


@dataclass(frozen=True)
class Column:
    """Of a table."""

    head: str
    words: bool = False
    """it holds words, which stand to the left; numbers stand to the right"""
    short: str | None = None
    """its head where the table is too wide for a terminal, which then leaves out the columns that have none"""


@dataclass(frozen=True)
class Table:
    """Cells as they are read, the first of each row its name."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    rules: frozenset[int] = frozenset()
    """rows that begin a part"""
    shades: Sequence[Sequence[int]] | None = None
    """[row][cell] percent of colour behind it, on a page"""


@dataclass(frozen=True)
class Figures:
    """Pictures of a page, each with its caption, side by side; text leaves them out."""

    pictures: Sequence[tuple[Markup, str]]
    title: str = ""
    small: bool = False
    rows: Sequence[str] = ()
    """whose lines can be picked out"""
    colours: Sequence[tuple[str, str]] = ()
    """(row, class of its colour): the key"""


@dataclass(frozen=True)
class Text:
    """Paragraphs."""

    lines: Sequence[str]
    paragraphs: bool = True


@dataclass(frozen=True)
class Notes:
    """What the numbers mean, and what is missing, a sentence each."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Fold:
    """What a page shows when it is asked to."""

    title: str
    blocks: "Sequence[Block]"


Block = Table | Figures | Text | Notes | Fold


@dataclass(frozen=True)
class Section:
    """A part of a page with a head of its own; `key` names it in addresses."""

    key: str
    title: str
    blocks: Sequence[Block] = field(default_factory=list)


def columns(*heads: str, words: Sequence[str] = ()) -> list[Column]:
    """Of these heads; the first, and those in `words`, hold words."""
    return [Column(head, i == 0 or head in words) for i, head in enumerate(heads)]


def blocks_of(sections: Sequence[Section]) -> list[Block]:
    """All of them, in order."""
    return [block for section in sections for block in section.blocks]


Data = Sequence[Mapping[str, object]]
"""lines of a CSV file: head -> value at full precision; a head that a line lacks is empty there"""
