"""Lines that fit the terminal, and stay whole where another program reads them."""

import codecs
import os
import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING

from lightning_tfm.plural_words import LETTERS, by_columns, without_filler
from lightning_tfm.study.user_classes import earlier_words

ASCII = str.maketrans("◂▸│─━╸╺●○◇÷×±−–—“”’…→Δ·≤≥²\N{NO-BREAK SPACE}", '<>|-===*ox/x~---""\'.>d.<>2 ')
"""one letter for another, so that columns stay aligned"""

if TYPE_CHECKING:
    from lightning_tfm.report.charts.forest import Forest
    from lightning_tfm.study.study import Study


def say_reading(study: "Study") -> None:
    """A first line for whoever waits for a study's runs to be read and its tests to be computed; another one where its
    user-defined classes are of an earlier version."""
    if sys.stderr.isatty():
        print(f"reading {study.name}{': ' * bool(study.title)}{study.title}", file=sys.stderr, flush=True)
    if words := earlier_words(study.classes):
        print(f"{study.name}: {words}", file=sys.stderr)


def without_utf_8() -> None:
    """A terminal that knows only few letters gets others for the rest, or escapes (\\uac00), and never an error."""

    def letters(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        words = error.object[error.start : error.end].translate(ASCII)
        return words.encode("ascii", "backslashreplace").decode(), error.end

    codecs.register_error(LETTERS, letters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors=LETTERS)


def forest_text(forest: "Forest", width: int) -> str:
    """The main figure, with colours on a terminal that wants them, and an empty line after it."""
    from lightning_tfm.report.charts.forest_text import to_text

    return "".join(f"{text}\n" for text in [to_text(forest, width, colours())] if text)


def colours() -> bool:
    """Whether the terminal that is printed to wants them."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def width() -> int | None:
    """Columns of the terminal that is printed to; None where it is not one."""
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else None


def align(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """A line for each row, its columns side by side; those numbered in `right` are aligned to the right."""
    rows = [list(map(by_columns, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    kinds = [f"{'>' if i in right else '<'}{width}" for i, width in enumerate(widths)]
    return without_filler("\n".join("  ".join(map(format, row, kinds)).rstrip() for row in rows))


def fit_width(text: str, indent: int) -> str:
    """`text` with lines wider than the terminal continued below, indented by `indent` columns."""
    room = width()
    if room is None:
        return text
    further = " " * min(indent, room // 2)
    lines = [
        textwrap.wrap(line, room, subsequent_indent=further, break_on_hyphens=False) or [""]
        for line in text.splitlines()
    ]
    return "\n".join(part for line in lines for part in line)
