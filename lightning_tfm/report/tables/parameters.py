"""The paper's printed parameter counts against computed ones. No training, no torch."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

from lightning_tfm.config import Experiment
from lightning_tfm.model.size import count_parameters
from lightning_tfm.report.blocks import Block, Notes, Table, columns
from lightning_tfm.study.rows import Row, apply


@dataclass(frozen=True)
class Count:
    """One row's parameters."""

    row: str
    printed: int | None
    """millions in the paper"""
    computed: int

    @property
    def agrees(self) -> bool | None:
        """Whether the computed number rounds to the printed million; None where nothing is printed."""
        return None if self.printed is None else math.floor(self.computed / 1e6 + 0.5) == self.printed


def counts(base: Experiment, V: int, rows: Iterable[Row]) -> list[Count]:
    """Every row over `base` at the paper's scale with a vocabulary of `V` pieces."""
    return [Count(r.name, r.paper.params, count_parameters(apply(base, r).model, V)["total"]) for r in rows]


def blocks(found: list[Count], V: int) -> list[Block]:
    said = {True: "yes", False: "no", None: ""}
    rows = [
        [c.row, "" if c.printed is None else f"{c.printed} M", f"{c.computed / 1e6:.2f} M", said[c.agrees]]
        for c in found
    ]
    heads = columns("row", "printed", "computed", "rounds to it", words=["rounds to it"])
    return [Table("", heads, rows), Notes([summary(found, V)])]


def to_json(found: list[Count], V: int) -> str:
    rows = [{"row": c.row, "printed": c.printed, "computed": c.computed, "agrees": c.agrees} for c in found]
    return json.dumps({"V": V, "rows": rows, "agree": _agree(found)}, indent=1) + "\n"


def summary(found: list[Count], V: int) -> str:
    missed = [c.row for c in found if c.agrees is False]
    but = f"; not: {', '.join(missed)}" if missed else ""
    return f"{_agree(found)} of {sum(c.printed is not None for c in found)} published counts with {V:,} tokens{but}"


def _agree(found: list[Count]) -> int:
    return sum(c.agrees is True for c in found)
