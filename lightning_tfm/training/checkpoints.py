"""Weights on disk, and the mean of the last k snapshots of one run (6.1: the last 5 for base, 20 for big).

Only plain types, so that `weights_only=True` reads them back; a full disk is an OSError. Lightning's own way goes
through a second copy in the folder for temporary files, which a kill leaves there, and torch hides a full disk behind a
RuntimeError.
"""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import CheckpointIO
from torch import Tensor

from lightning_tfm.errors import UserError
from lightning_tfm.training.weight_files import load, write


class Checkpoints(CheckpointIO):
    """How a Trainer writes and reads checkpoints."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        (storage_options or write)(checkpoint, Path(path))  # a run hands over how: its CheckpointWriter's

    def load_checkpoint(
        self, path: Any, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return torch.load(path, map_location=map_location or "cpu", weights_only=True)  # ranks do not share a first GPU

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink()


def average(snapshots: list[Path], run: str) -> dict[str, Tensor]:
    """Weights averaged in float64 and cast back. Raises UserError unless all are whole snapshots of run `run`."""
    if not snapshots:
        raise UserError("no snapshots to average: training.average_last was 0 when this run was trained")
    total: dict[str, Tensor] = {}
    first: dict[str, Tensor] = {}
    for path in snapshots:
        weights = load(path, run)
        first = first or weights
        if _shapes(weights) != _shapes(first):
            raise UserError(f"{path} and {snapshots[0]} hold different parameters: they are not snapshots of one run")
        for name, value in weights.items():
            total[name] = total[name] + value.double() if name in total else value.double()
    return {name: (value / len(snapshots)).to(first[name].dtype) for name, value in total.items()}


def _shapes(weights: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in weights.items()}
