"""What a row is beside its scores. A line here, of a number that SummaryRow holds, is a column of every view: terminal,
Markdown, LaTeX, the page and its chooser, CSV, JSON, W&B's table, and a picture of perplexity against it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from lightning_tfm.report.summary import SummaryRow


@dataclass(frozen=True)
class Fact:
    name: str
    """of the row's attribute; its key in CSV and JSON"""
    label: str
    """in W&B's table"""
    about: str
    written: Callable[[float], str]
    brief: bool = False
    """where there is little room, too: in a terminal, in LaTeX, in a table without tests, on the page at first"""
    axis: str = ""
    """what an axis says of it; empty: perplexity is not drawn against it"""
    narrow: str = ""
    """its head where columns are narrow; empty: `label`"""
    folded: str = ""
    """the same in a terminal, in lines"""

    @property
    def head(self) -> str:
        return self.narrow or self.label

    def of(self, row: SummaryRow) -> float | None:
        found: float | None = getattr(row, self.name)
        return found

    def cell(self, row: SummaryRow) -> str:
        """As it is printed; empty where nobody knows it."""
        found = self.of(row)
        return "" if found is None else self.written(found)


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
]


def brief() -> list[Fact]:
    """Those for views with little room."""
    return [fact for fact in FACTS if fact.brief]
