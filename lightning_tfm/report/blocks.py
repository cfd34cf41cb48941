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


@dataclass(frozen=True)
class Table:
    """Cells as they are read, the first of each row its name."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    rules: frozenset[int] = frozenset()
    """rows that begin a part"""


@dataclass(frozen=True)
class Figure:
    """A picture of a page; in text it is left out."""

    picture: Markup
    caption: str


@dataclass(frozen=True)
class Notes:
    """What the numbers mean, and what is missing, a sentence each."""

    lines: Sequence[str]


Block = Table | Figure | Notes


@dataclass(frozen=True)
class Section:
    """A part of a page with a head of its own."""

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
