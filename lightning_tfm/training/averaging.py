"""The mean of the last k snapshots of one run (6.1: the last 5 for base, 20 for big)."""

from pathlib import Path

import torch
from torch import Tensor

from lightning_tfm.errors import UserError


def average(snapshots: list[Path]) -> dict[str, Tensor]:
    """Weights averaged in float64 and cast back. All snapshots must hold the same names and shapes."""
    if not snapshots:
        raise UserError("no snapshots to average: training.average_last was 0 when this run was trained")
    total: dict[str, Tensor] = {}
    first: dict[str, Tensor] = {}
    for path in snapshots:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        first = first or weights
        if _shapes(weights) != _shapes(first):
            raise UserError(f"{path} holds other parameters than {snapshots[0]}: not snapshots of one run")
        for name, value in weights.items():
            total[name] = total[name] + value.double() if name in total else value.double()
    return {name: (value / len(snapshots)).to(first[name].dtype) for name, value in total.items()}


def _shapes(weights: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in weights.items()}
