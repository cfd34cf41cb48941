"""Which rows share a picture: all where they are few, else those of a group."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lightning_tfm.report.summary import SummaryRow

FEW = 8
"""rows that one picture tells apart by colour"""
BASE = "g0"
"""class of base's colour"""


def short_name(name: str, most: int = 30) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def short_names(rows: Sequence[SummaryRow], most: int = 36) -> dict[str, str]:
    """row -> what people call it, of at most `most` characters that no other row has, where that can be: in shorter
    words, else the start, else start and end."""
    called = {r.name: r.called for r in rows}
    shorter = {
        name: words.replace(" + ", ", ").replace("learning-rate factor", "rate ×") for name, words in called.items()
    }
    start, ends = ({name: cut(words, most) for name, words in shorter.items()} for cut in (short_name, _ends))
    for found in (called, shorter, start, ends):
        if len(set(found.values())) == len(called) and max(map(len, found.values()), default=0) <= most:
            return found
    return start


def _ends(name: str, most: int) -> str:
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[: most - 1 - half]}…{name[-half:]}"


@dataclass(frozen=True)
class Panel:
    """Rows that are distinguished by colour: base first if there is one."""

    title: str
    rows: list[str]
    classes: dict[str, str]
    """row -> class of its colour"""
    labels: dict[str, str]
    """row -> its name at its curve"""


def panels(rows: Sequence[SummaryRow]) -> list[Panel]:
    """All rows in one, or one for each group, a group of many in several."""
    base, labels = [r.name for r in rows if r.base], short_names(rows, 24)
    if len(rows) <= FEW:
        return [Panel("", base + [r.name for r in rows if not r.base], row_classes(rows), labels)]
    classes = row_classes(rows)
    groups: dict[str, list[str]] = {}
    for r in rows:
        if not r.base:
            groups.setdefault(r.group, []).append(r.name)
    found = []
    for group, names in groups.items():
        each = math.ceil(len(names) / math.ceil(len(names) / (FEW - 1)))
        parts = [names[i : i + each] for i in range(0, len(names), each)]
        for i, part in enumerate(parts):
            title = short_name(group) + (f", {i + 1} of {len(parts)}" if len(parts) > 1 else "")
            found.append(Panel(title, base + part, classes, labels))
    return found


def row_classes(rows: Sequence[SummaryRow]) -> dict[str, str]:
    """row -> class of its colour, in every picture of a page: base's is its own, others come again after seven rows,
    dashed."""
    others = [r.name for r in rows if not r.base]
    return {r.name: BASE for r in rows if r.base} | {
        name: f"g{1 + i % 7}{' again' * (i // 7 % 2)}" for i, name in enumerate(others)
    }
