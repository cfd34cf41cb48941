"""The main figure in a terminal: a line for each change, in at most so many columns, names and verdicts whole."""

import textwrap
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby

from lightning_tfm.plural_words import by_columns, without_filler
from lightning_tfm.report.charts.forest import Entry, Forest, Line

NAME, PLOT = 1 / 3, 16
"""share of the columns that names may take before they take a second line, and columns of the picture at least"""
WIDE = 104
"""columns from which the other metrics' numbers are shown, too"""
COLOURS = {"good": "32", "found": "34", "bad": "31", "apart": "33", "open": "90", "untested": "90"}
"""style of a verdict -> of the terminal"""
GAP = "\N{NO-BREAK SPACE}"


def to_text(forest: Forest, width: int = 80, colour: bool = False) -> str:
    """Title, scope, the picture and its legend; `colour` by the terminal's codes. Empty where there is nothing to draw.

    Narrower than some 60 columns it is wider than asked for: names, numbers and verdicts are never cut.
    """
    if not any(line.entries[0] for line in forest.lines):
        return ""
    named = [replace(line, name=by_columns(line.name)) for line in forest.lines]
    forest = replace(forest, title=by_columns(forest.title), to=by_columns(forest.to), lines=named)
    drawn = _Drawn(forest, width)
    lines = [*textwrap.wrap(forest.title, width), *textwrap.wrap(forest.scope, width), "", *drawn.head()]
    for line in forest.lines:
        if line.entries[0] is not None:
            lines += drawn.row(line, line.entries[0], colour)
    return without_filler("\n".join(part.rstrip() for part in [*lines, *drawn.legend(width)])) + "\n"


class _Drawn:
    """The columns' widths, and the scale in half columns."""

    def __init__(self, forest: Forest, width: int) -> None:
        self.forest, self.axis = forest, forest.axes[0]
        first = [entry for _, entry in forest.entries(0)]
        self.shown = [i for i in range(len(forest.axes)) if i == 0 or width >= WIDE]
        self.numbers = {
            i: max(len(axis.name) * (i > 0), *(len(axis.number(e.estimate)) for _, e in forest.entries(i)))
            for i, axis in enumerate(forest.axes)
            if i in self.shown and any(forest.entries(i))
        }
        self.name = min(int(NAME * width), max(len(forest.heading), *(len(line.name) for line in forest.lines)))
        self.sure = max(len(forest.asks), *(len(entry.sure) for entry in first)) if forest.tested else 0
        taken = self.name + sum(n + 2 for n in self.numbers.values()) + (self.sure + 2) * bool(self.sure)
        self.plot = max(PLOT, width - taken - 1)
        self.low, self.high = forest.ends(0)

    def column(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low) * (self.plot - 1)

    def at(self, value: float) -> int:
        return round(min(max(self.column(value), 0), self.plot - 1))

    def head(self) -> list[str]:
        zero, sides = self.at(0.0), ("better", "worse") if self.axis.lower_is_better else ("worse", "better")
        *above, heading = textwrap.wrap(self.forest.heading, self.name)
        beside = self.name - len(heading)  # room that the heading leaves
        left = next(said for said in (f"◂ {sides[0]}", sides[0], "◂", "") if len(said) <= zero + beside)
        right = next(said for said in (f" {sides[1]} ▸", f" {sides[1]}", " ▸", "") if len(said) < self.plot - zero)
        said = (left.rjust(zero + beside) + "│" + right).ljust(self.plot + beside)
        numbers = "".join(f"  {self.forest.axes[i].name * (i > 0):>{n}}" for i, n in self.numbers.items())
        return [*above, f"{heading} {said}{numbers}" + f"  {self.forest.asks}" * bool(self.sure)]

    def row(self, line: Line, entry: Entry, colour: bool) -> list[str]:
        *above, name = textwrap.wrap(line.name, self.name, break_on_hyphens=False) or [""]

        def painted(words: str) -> str:
            code = COLOURS.get(entry.style) if colour else None
            return f"\033[{code}m{words}\033[0m" if code and words.strip() else words

        numbers = []
        for i, n in self.numbers.items():
            own = line.entries[i]
            said = f"{'' if own is None else self.forest.axes[i].number(own.estimate):>{n}}"
            numbers.append(painted(said) if i == 0 else said)
        last = "  ".join(["", *numbers, *[painted(entry.sure)] * bool(self.sure)])
        return [*above, f"{name:{self.name}} {self.picture(entry, painted)}{last}"]

    def picture(self, entry: Entry, painted: Callable[[str], str]) -> str:
        cells = [" "] * self.plot
        cells[self.at(0.0)] = "│"
        own: set[int] = set()
        if entry.lower is not None and entry.upper is not None:
            ends = [round(2 * min(max(self.column(v) + 0.5, 0), self.plot)) for v in (entry.lower, entry.upper)]
            halves = set(range(ends[0], max(ends[1], ends[0] + 1)))
            for i in range(self.plot):
                both = (2 * i in halves, 2 * i + 1 in halves)
                if any(both):
                    cells[i] = "━" if all(both) else "╸" if both[0] else "╺"
                    own.add(i)
        if entry.published is not None and self.low <= entry.published <= self.high:
            cells[at := self.at(entry.published)] = "◇"
            own.discard(at)
        at = self.at(entry.estimate)
        inside = self.low <= entry.estimate <= self.high
        cells[at] = ("●" if entry.decided else "○") if inside else "▸" if at else "◂"
        own.add(at)
        parts = groupby(enumerate(cells), key=lambda cell: cell[0] in own)
        joined = ((ours, "".join(cell for _, cell in some)) for ours, some in parts)
        return "".join(painted(cells) if ours else cells for ours, cells in joined)

    def legend(self, width: int) -> list[str]:
        first = [entry for _, entry in self.forest.entries(0)]
        parts = ["● " + (self.forest.here or f"here{', ' * bool(self.forest.seeds)}{self.forest.seeds}")]
        parts += [f"━ {self.forest.level} %"] * any(e.lower is not None for e in first)
        parts += [f"◇ {self.forest.published}"] * any(e.published is not None for e in first)
        parts += ["○ no difference shown"] * any(not e.decided for e in first)
        parts += ["▸ beyond the edge"] * any(not self.low <= e.estimate <= self.high for e in first)
        wrapped = textwrap.wrap("  ".join(part.replace(" ", GAP) for part in parts), width)
        return [*(line.replace(GAP, " ") for line in wrapped), *textwrap.wrap(self.forest.more, width)]
