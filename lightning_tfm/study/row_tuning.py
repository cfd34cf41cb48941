"""What making a tuned study (queue/row_tuning.py) and reporting it (report/analyses/row_tuning.py) share."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning_tfm.schema import OPTIONAL, Kept, Number, Overflowing, read_kept

FILE = "tuning.json"
"""in the study's folder: what was tried for each row, what was taken, and what it cost"""


@dataclass(frozen=True)
class TunedRow:
    """What a row took."""

    row: str
    value: Any
    ppl: dict[str, Overflowing]
    """value -> mean dev PPL over the tuning seeds"""
    other: float | None = field(default=None, metadata=OPTIONAL)
    """share of the redrawn choices that take another value (report/analyses/row_tuning.py)"""


@dataclass(frozen=True)
class TuningSummary(Kept):
    """How every row got its own value of a field."""

    key: str
    values: list[Any]
    seeds: list[int]
    """separate from the table's"""
    study: str
    """of the runs that the choice took"""
    runs: int | None
    """None, as `seconds` and `flops`, if this was not kept"""
    seconds: Number | None
    flops: Number | None
    """of all its runs together"""
    rows: list[TunedRow]


def read_tuning(folder: Path) -> TuningSummary | None:
    """What a study's folder says about its tuning; None if nothing was tuned. Raises UserError for a broken file."""
    return read_kept(TuningSummary, folder / FILE, "a record of tuning", _with_cost)


def _with_cost(plain: dict[str, Any]) -> dict[str, Any]:
    """The cost of all runs together, which is a separate part of the file, and missing in old ones."""
    return dict.fromkeys(("runs", "seconds", "flops")) | plain | (plain.get("cost") or {})


def at_edge(value: Any, values: Sequence[Any]) -> bool:
    """Whether a number is the least or the greatest that was tried, so a better one may be beyond."""
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    return len(numbers) == len(values) and value in (min(numbers), max(numbers))
