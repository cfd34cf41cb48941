"""One run of a study: a row at a seed, or a trial of a search."""

from dataclasses import dataclass, field
from typing import Any

from lightning_tfm.config import Experiment


@dataclass(frozen=True)
class Cell:
    """One run of a study: a row at a seed."""

    row: str
    seed: int
    training_hash: str
    cost: float
    """predicted length in any unit: longer runs are started first"""
    change: dict[str, Any] = field(default_factory=dict, hash=False)
    """dotted keys and values that a search set for this run; empty in a table"""
    more: tuple[tuple[int, str], ...] = ()
    """(seed, training hash) of the further runs if a trial of a search has several; `cost` is that of all"""

    @property
    def runs(self) -> "list[Cell]":
        """One cell for each run, in the order of seeds: itself, unless a trial has several."""
        if not self.more:
            return [self]
        found = [(self.seed, self.training_hash), *self.more]
        return [Cell(self.row, seed, run, self.cost / len(found), self.change) for seed, run in found]


Plan = tuple[Experiment, dict[str, Any]]
"""an experiment at its true sizes, and its training identity"""
