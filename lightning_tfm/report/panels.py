"""Which rows share a picture: all where they are few, else those of a group."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightning_tfm.report.summary import SummaryRow

FEW = 8
"""rows that one picture tells apart by colour"""
BASE = "g0"
"""class of base's colour"""


def short_name(name: str, most: int = 22) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


@dataclass(frozen=True)
class Panel:
    """Rows that are told apart by colour: base first where there is one."""

    title: str
    rows: list[str]
    classes: dict[str, str]
    """row -> class of its colour"""


def panels(rows: Sequence[SummaryRow]) -> list[Panel]:
    """All rows in one, or one for each group, a group of many in several."""
    base = [r.name for r in rows if r.base]
    if len(rows) <= FEW:
        return [Panel("", *_coloured(base, [r.name for r in rows if not r.base]))]
    groups: dict[str, list[str]] = {}
    for r in rows:
        if not r.base:
            groups.setdefault(r.group, []).append(r.name)
    found = []
    for group, names in groups.items():
        parts = [names[i : i + FEW - 1] for i in range(0, len(names), FEW - 1)]
        for i, part in enumerate(parts):
            title = short_name(group) + (f", {i + 1} of {len(parts)}" if len(parts) > 1 else "")
            found.append(Panel(title, *_coloured(base, part)))
    return found


def _coloured(base: list[str], names: list[str]) -> tuple[list[str], dict[str, str]]:
    return base + names, {name: BASE for name in base} | {name: f"g{1 + i % 7}" for i, name in enumerate(names)}
