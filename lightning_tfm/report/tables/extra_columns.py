"""What a row is beside its scores. A line here, of a number that SummaryRow holds, is a column of every view: terminal,
Markdown, LaTeX, the page and its chooser, CSV, JSON, W&B's table, and a picture of perplexity against it. A number with
an interval is three columns where a program reads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lightning_tfm.report.row import SummaryRow


@dataclass(frozen=True)
class Fact:
    name: str
    """of the row's attribute; with blanks its key in CSV and JSON"""
    label: str
    """in W&B's table"""
    about: str
    written: Callable[[Any], str]
    brief: bool = False
    """where there is little room, too: in a terminal, in LaTeX, in a table without tests, on the page at first"""
    axis: str = ""
    """its label on an axis; empty: perplexity is not drawn against it"""
    narrow: str = ""
    """its head where columns are narrow; empty: `label`"""
    folded: str = ""
    """the same in a terminal, in lines"""
    interval: bool = False
    """an Interval, which people see only where a row has one"""

    @property
    def head(self) -> str:
        return self.narrow or self.label

    @property
    def key(self) -> str:
        return self.name.replace("_", " ")

    def of(self, row: SummaryRow) -> float | None:
        return self.data(row)[self.key]

    def data(self, row: SummaryRow) -> dict[str, float | None]:
        """What a program reads: the number, and the ends of its interval."""
        number = getattr(row, self.name)
        if not self.interval:
            return {self.key: number}
        ends = {f"{self.key} {end}": getattr(number, end, None) for end in ("lower", "upper")}
        return {self.key: getattr(number, "estimate", None)} | ends

    def cell(self, row: SummaryRow) -> str:
        """As it is printed; empty where nobody knows it."""
        number = getattr(row, self.name)
        return "" if number is None else self.written(number)


def millions(count: float) -> str:
    """374K, 1.4M, 65.1M."""
    return f"{count / 1e6:.1f}M" if count >= 1_000_000 else f"{count / 1e3:.0f}K"


FACTS = [
    Fact(
        "parameters",
        "parameters",
        "parameters",
        millions,
        brief=True,
        axis="parameters",
        narrow="params",
        folded="par-\nams",
    ),
    Fact("flops", "FLOPs", "floating-point operations of one training", "{:.2e}".format, axis="training FLOPs"),
    Fact("seconds", "seconds", "seconds of one training", "{:,.0f}".format),
    Fact("worth", "compute", "compute multiplier in steps", str, brief=True, interval=True),
    Fact("worth_flops", "compute (FLOPs)", "compute multiplier in FLOPs", str, interval=True),
]


def extra_facts(rows: Sequence[SummaryRow]) -> list[Fact]:
    """Those for people."""
    return [fact for fact in FACTS if not fact.interval or any(map(fact.cell, rows))]


def brief_facts(rows: Sequence[SummaryRow]) -> list[Fact]:
    """Those for views with little room."""
    return [fact for fact in extra_facts(rows) if fact.brief]
