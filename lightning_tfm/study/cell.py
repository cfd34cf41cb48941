"""One run of a study: a row at a seed, or a trial of a search."""

from dataclasses import dataclass, field
from typing import Any

from lightning_tfm.config import Experiment
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.registry import LAYERS


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
        pairs = [(self.seed, self.training_hash), *self.more]
        return [Cell(self.row, seed, run, self.cost / len(pairs), self.change) for seed, run in pairs]


Plan = tuple[Experiment, dict[str, Any]]
"""an experiment at its true sizes, and its training identity"""


PIECES = 25
"""of a sentence, on a side, if sentence lengths are unknown"""


def predicted_cost(exact: Experiment, V: int, length: int = PIECES) -> float:
    """Training FLOPs of a run if every step is full and a sentence has `length` pieces on a side, to order runs by."""
    tokens = exact.training.tokens
    compared = LAYERS.traits(exact.model.layer).pairs
    near = tokens * compared(exact.model, length) // length
    pairs = AttentionPairs(near, near, tokens * length, 2 * length * length)
    if exact.model.one_stack:
        pairs = AttentionPairs(0, tokens * compared(exact.model, 2 * length) // length, 0, 4 * length * length)
    return float(exact.training.steps * training_flops(exact.model, V, tokens, tokens, pairs))
