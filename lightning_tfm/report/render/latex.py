"""Blocks as LaTeX. Needs \\usepackage{array,booktabs}, nothing else."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from lightning_tfm.plural_words import MINUS
from lightning_tfm.report.blocks import Block, Cell, Column, Notes, Table, Text, Widest
from lightning_tfm.report.wording.verdict_words import WORDS

LONG = 20
"""characters of a column's words beyond which they are folded"""
FOLDED, FOLD = r">{\raggedright\arraybackslash}p{8.6em}", 18
"""such a column, and about how many characters a line of it holds"""

ESCAPES = {c: rf"\{c}" for c in "&%$#_{}"}
ESCAPES |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
ESCAPES |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
ESCAPES |= {"±": r"$\pm$", "×": r"$\times$", "÷": r"$\div$", "–": "--", "…": r"\dots{}"}
ESCAPES |= {"“": "``", "”": "''", "Δ": r"$\Delta$", "²": "$^2$", MINUS: "$-$", "\N{NO-BREAK SPACE}": "~"}
UNKNOWN = "?"
ONE = 56
"""characters of a table that fits one of two columns; wider ones span both"""
ENDS = 4
"""characters of an interval's ends, one above the other"""
MANY = 100
"""from where on distances to an interval's ends are whole numbers"""
SIZES = ((100, r"\small"), (118, r"\footnotesize"), (141, r"\scriptsize\setlength{\tabcolsep}{1.3pt}"))
"""(most characters of a table over both columns, 170 mm, in it; size of letters)"""
MOST = SIZES[-1][0]
"""characters of the widest table that fits"""


class Tex(str):
    """LaTeX, unchanged."""


def latex(text: Any) -> str:
    """Harmless in LaTeX: special characters escaped, what its default fonts lack as a question mark."""
    return "".join(map(_character, " ".join(str(text).split())))


def _character(c: str) -> str:
    if c in ESCAPES:
        return ESCAPES[c]
    if not c.isprintable():
        return ""
    composed = 0xC0 <= ord(c) <= 0xFF and c not in "ÐÞðþ"  # by the default fonts
    return c if c.isascii() or composed else UNKNOWN


def to_latex(blocks: Sequence[Block], title: str = "") -> str:
    """A table with the caption `title` and its own for each; notes follow as a list, pictures are left out."""
    parts = []
    for block in (block.views[0][0] if isinstance(block, Widest) else block for block in blocks):
        if isinstance(block, Table):
            caption = latex("; ".join(filter(None, (title, block.title))))
            parts.append(to_table(block, f"{caption}." if caption else "").rstrip("\n"))
        elif isinstance(block, Notes | Text) and block.lines:
            items = [rf"\item {latex(line)}" for line in block.lines]
            parts.append("\n".join([r"\begin{itemize}", *items, r"\end{itemize}"]))
    return "\n\n".join(parts) + "\n"


def to_table(table: Table, caption: str = "", label: str = "", notes: str = "") -> str:
    """Columns whose group has a head (Column.over) share it. `caption`, and `notes` below the table: LaTeX."""
    heads, rules, at = [], [], 1
    for over, some in groupby(table.columns, key=lambda column: column.over):
        count = len(list(some))
        heads.append(rf"\multicolumn{{{count}}}{{c}}{{{latex(over)}}}" if over else " & " * (count - 1))
        rules += [rf"\cmidrule(lr){{{at}-{at + count - 1}}}"] * bool(over)
        at += count
    by_column = [list(_cells(c, cells)) for c, cells in zip(table.columns, zip(*table.rows, strict=True), strict=True)]
    forms = [_form(column, cells) for column, cells in zip(table.columns, zip(*table.rows, strict=True), strict=True)]
    kind = "table" if width(table) <= ONE else "table*"
    lines = [
        "% needs \\usepackage{array,booktabs}",
        *_unknown_characters(table),
        rf"\begin{{{kind}}}[t]",
        r"\centering",
        *[rf"\caption{{{caption}}}"] * bool(caption),
        *[rf"\label{{{label}}}"] * bool(label),
        r"\setlength{\tabcolsep}{2.7pt}",
        r"\renewcommand{\arraystretch}{1.2}",
        next((size for most, size in SIZES if width(table) <= most), SIZES[-1][1]),
        r"\begin{tabular}{@{}" + "".join(forms) + "@{}}",
        r"\toprule",
        *[" & ".join(heads) + r" \\", " ".join(rules)] * bool(rules),
        " & ".join(latex(c.head) if c.latex is None else c.latex for c in table.columns) + r" \\",
    ]
    for i, cells in enumerate(zip(*by_column, strict=True)):
        lines += [r"\midrule"] * (i == 0 or i in table.rules)
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [r"\par\medskip", rf"\parbox{{\linewidth}}{{\footnotesize {notes}}}"] * bool(notes)
    return "\n".join([*lines, rf"\end{{{kind}}}"]) + "\n"


def width(table: Table) -> int:
    """In characters, about."""
    by_column = zip(table.columns, zip(*table.rows, strict=True), strict=True)
    return sum(2 + max(_characters(cell, column) for cell in (column.head, *cells)) for column, cells in by_column)


def _characters(cell: str | Cell, column: Column) -> int:
    if column.kind == "word":
        return 1
    if not isinstance(cell, Cell):
        text = cell if cell != column.head or column.latex is None else re.sub(r"\\[A-Za-z]*|[${}]", "", column.latex)
        return min(len(text), FOLD if column.words else len(text))
    most = FOLD if column.words else MOST
    return min(len(re.sub(r"\\[A-Za-z]+", "", cell.main)) + (ENDS if cell.ends else len(cell.small)), most)


def _unknown_characters(table: Table) -> list[str]:
    """A comment on the characters of names that are shown as question marks."""
    missing = sorted({c for row in table.rows for c in str(row[0]) if c != UNKNOWN and _character(c) == UNKNOWN})
    return [f"% not in pdfTeX's default fonts, so {UNKNOWN} stands for: {' '.join(missing)}"] * bool(missing)


def _form(column: Column, cells: Sequence[str | Cell]) -> str:
    if column.words and column.kind != "word":
        return FOLDED if max(len(str(cell)) for cell in cells) > LONG else "l"
    return "c" if column.kind in ("word", "field") else "r"


def _cells(column: Column, cells: Sequence[str | Cell]) -> Iterator[str]:
    best = _best(column, [cell for cell in cells if isinstance(cell, Cell) and cell.best])
    for cell in cells:
        if not isinstance(cell, Cell):
            yield cell if isinstance(cell, Tex) else latex(cell)
        elif column.kind == "score":
            main = latex(cell.main)
            spread = cell.small.removeprefix("± ").removesuffix(" %")
            bold = cell.best and cell.main == best
            yield (rf"\textbf{{{main}}}" if bold else main) + rf"\,$\pm$\,{spread}" * bool(spread)
        elif column.kind == "difference":
            yield _difference(cell)
        elif column.kind == "p":
            p = cell.value
            yield "" if p is None else "$<$.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")
        elif column.kind == "word":
            yield WORDS[cell.word].latex if cell.word else ""
        else:
            yield cell.main if isinstance(cell.main, Tex) else latex(cell)


def _best(column: Column, cells: Sequence[Cell]) -> str:
    """As it is printed: whatever is printed alike is as good."""
    scored = [cell for cell in cells if cell.value is not None]
    if column.lower_is_better is None or len(scored) < 2:
        return ""
    return (min if column.lower_is_better else max)(scored, key=lambda cell: cell.value).main


def _difference(cell: Cell) -> str:
    if cell.value is None:
        return latex(cell.main)
    if cell.ends is None:
        return f"${cell.main.replace(MINUS, '-')}$"
    up, down = cell.ends[1] - cell.value, cell.value - cell.ends[0]
    digits = len(cell.main.partition(".")[2]) * (max(up, down) < MANY)
    return f"${cell.main.replace(MINUS, '-')}^{{+{up:.{digits}f}}}_{{-{down:.{digits}f}}}$"
