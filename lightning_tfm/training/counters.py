"""What a run counts as it goes, and keeps in its checkpoints: time, tokens, sums since the last log, where it ran."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lightning_tfm.data.batch import Step

PARTS = ("forward", "backward", "optimizer")
"""of a training step"""


class RunCounters:
    """`this_attempt` says where it runs, `earlier_attempts` where the earlier steps were made, each as a
    record.Segment."""

    def __init__(
        self, this_attempt: dict[str, Any] | None = None, earlier_attempts: Sequence[dict[str, Any]] = ()
    ) -> None:
        self.this_attempt, self.earlier_attempts = dict(this_attempt or {}), list(earlier_attempts)
        self.seconds = {"train": 0.0, "validate": 0.0, "checkpoint": 0.0, "data": 0.0}
        self.parts = dict.fromkeys(PARTS, 0.0)
        """of the seconds of training"""
        self.tokens = {"source": 0, "target": 0}
        """of all ranks"""
        self.cells = 0.0
        """of this rank's batches; NaN where an earlier version did not count all ranks'"""
        self.pending_tokens = 0
        """target tokens since the last log"""
        self.shares = np.zeros((1, 3))
        """loss and nll since the last log, and cells, of each rank, as of the last checkpoint"""
        self.validated: Callable[[Any, int], None] = lambda module, step: None
        """called by the process that records, after each validation, with the module and the step"""
        self._began = 0.0

    def add(self, step: Step) -> None:
        """Count a step that was made."""
        self.tokens["source"] += step.source_tokens
        self.tokens["target"] += step.target_tokens
        self.pending_tokens += step.target_tokens
        self.cells += sum(b.source_BS.numel() + b.target_in_BT.numel() for b in step.micro)

    def share(self, sums: np.ndarray, rank: int, world: int) -> np.ndarray:
        """[world, 3], this rank's row filled; summed over all ranks they are `shares`. `sums`: loss and nll."""
        shares = np.zeros((world, 3))
        shares[rank] = [*sums, self.cells]
        return shares

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "seconds": dict(self.seconds),
            "parts": dict(self.parts),
            "tokens": dict(self.tokens),
            "shares": self.shares.tolist(),
            "pending_tokens": self.pending_tokens,
            "ran": self.ran(),
        }

    def load(self, state: dict[str, Any], rank: int, world: int) -> np.ndarray:
        """Resume from a checkpoint; returns this rank's loss and nll since the last log.

        On equally many ranks each takes its own, so that sums continue in the order of an uninterrupted run's.
        """
        self.seconds = dict(state["seconds"])
        self.parts.update(state["parts"])
        self.tokens = {side: state["tokens"][side] for side in self.tokens}
        self.pending_tokens = state["pending_tokens"]
        self._began = self.seconds_trained()
        self.earlier_attempts = state.get("ran", self.earlier_attempts)
        self.shares = np.array(state.get("shares") or [[*state["pending"], np.nan]])
        mine = self.shares.sum(0) if rank == 0 else np.zeros(3)
        loss, nll, self.cells = (self.shares[rank] if len(self.shares) == world else mine).tolist()
        return np.array([loss, nll])

    def note(self, inexact: list[str]) -> None:
        """Add late findings about what may keep another machine from the same numbers."""
        self.this_attempt["inexact"] = list(dict.fromkeys([*self.this_attempt.get("inexact", []), *inexact]))

    def padding(self) -> float | None:
        """Share of the cells of all ranks' batches, as of the last checkpoint; None where not all were counted."""
        cells = float(self.shares[:, 2].sum())
        return None if np.isnan(cells) else round(1 - sum(self.tokens.values()) / cells, 5)

    def ran(self) -> list[dict[str, Any]]:
        """Where all steps were made (record.Segment), the first ones first."""
        return [
            *self.earlier_attempts,
            self.this_attempt | {"seconds": round(self.seconds_trained() - self._began, 3)},
        ]

    def seconds_trained(self) -> float:
        """Seconds of training and its data, of all attempts up to the last checkpoint of each."""
        return self.seconds["train"] + self.seconds["data"]
