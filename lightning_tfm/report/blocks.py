"""What an analysis says, in no format: tables, figures and notes. render/ shows them in a terminal and on pages.

An analysis makes blocks of its own dataclass; a renderer knows a format but no analysis.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from lightning_tfm.report.charts.forest import Forest

NOTHING = "–"
"""in a cell without a value"""


@dataclass(frozen=True)
class Column:
    """Of a table."""

    head: str
    words: bool = False
    """it holds words, aligned to the left; numbers are aligned to the right"""
    lines: str = ""
    """its head in lines, where columns are narrow; empty: `head`"""
    slim: bool = False
    """its cells are short: on a phone it takes less room than others"""
    latex: str | None = None
    """its head in LaTeX; None: `head`"""
    kind: str = ""
    """score, difference, p or word, which some formats show in their own way"""
    lower_is_better: bool | None = None
    """of a score, whose best is set off; None where none is"""
    group: str = ""
    """of columns that belong together"""
    over: str = ""
    """head over the group, in LaTeX"""
    key: str = ""
    """class in a page whose columns can be chosen"""
    about: str = ""
    """what it is, for the chooser"""
    on: bool = True
    """shown at first"""
    narrow: bool = False
    """shown on a narrow screen, too"""


@dataclass(frozen=True)
class Cell:
    """The content of a row's column, if that is more than a text."""

    main: str = ""
    small: str = ""
    """after it, or below"""
    value: Any = None
    """to sort by"""
    ends: tuple[float, float] | None = None
    """of an interval around `value`"""
    word: str = ""
    """a verdict, with its mark"""
    said: str = ""
    """in a line, where that is not main and small"""
    sure: bool = False
    """found by Holm's p too"""
    best: bool = True
    """it may be the best of its column"""
    note: str = ""
    """below that, on a page, in as many lines as it needs"""
    title: str = ""
    """on a page, when it is pointed at"""

    def __str__(self) -> str:
        return self.said or " ".join(filter(None, (self.main, self.small)))


@dataclass(frozen=True)
class Table:
    """Cells as displayed, the first of each row its name."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Cell]]
    rules: frozenset[int] = frozenset()
    """rows that begin a part"""
    shades: Sequence[Sequence[int]] | None = None
    """[row][cell] percent of colour behind it, on a page, of another where it is below zero"""
    dense: bool = False
    """many columns, which are close together in a terminal"""


@dataclass(frozen=True)
class Widest:
    """Tables and their notes, of which a terminal shows the first that is narrow enough, if need be with its words
    folded, and other formats the first. A table is the first of each."""

    views: "Sequence[Sequence[Table | Notes]]"
    folds: int = 0
    """index of the first whose words may be folded"""


@dataclass(frozen=True)
class Main:
    """The picture that answers: on a page drawn, in a terminal as text where it has such a form."""

    picture: Forest
    title: str = ""


@dataclass(frozen=True)
class Figures:
    """Pictures of a page, each with its caption, side by side; text leaves them out."""

    pictures: Sequence[tuple[Markup, str]]
    title: str = ""
    small: bool = False
    rows: Mapping[str, str] = field(default_factory=dict)
    """whose lines can be picked out: name -> what people call it"""
    about: str = ""
    """what they show, below"""
    broad: bool = False
    """as wide as the page"""


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


Block = Table | Widest | Main | Figures | Text | Notes | Fold


@dataclass(frozen=True)
class Section:
    """A part of a page with its own head; `key` names it in addresses."""

    key: str
    title: str
    blocks: Sequence[Block] = field(default_factory=list)
    after: str = ""
    """key of what it follows on a study's page: a part that templates/report.html lists, or another analysis's section;
    empty: before all"""


def columns(*heads: str, words: Sequence[str] = ()) -> list[Column]:
    """Of these heads; the first, and those in `words`, hold words."""
    return [Column(head, i == 0 or head in words) for i, head in enumerate(heads)]


def blocks_of(sections: Sequence[Section]) -> list[Block]:
    """All of them, in order."""
    return [block for section in sections for block in section.blocks]
