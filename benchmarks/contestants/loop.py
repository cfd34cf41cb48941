"""The plain training loop that all torch peers share: batches in, one optimizer step a batch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

PAD, BOS, EOS = 0, 2, 3


def load(folder: Path, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """source [B, S], target with the begin token [B, T], target with the end token [B, T]; 0 pads."""
    arrays = np.load(folder / f"batch-{number}.npz")
    return tuple(torch.from_numpy(arrays[name]) for name in ("source", "target_in", "target_out"))


def sources(folder: Path, number: int) -> tuple[Tensor, int]:
    """source [B, S] of a batch to translate, and the limit of pieces of a translation."""
    source_BS = torch.from_numpy(np.load(folder / f"translate-{number}.npz")["source"])
    return source_BS, source_BS.shape[1] + 50


def training(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> tuple[Callable[[int], None], dict[str, Any]]:
    """`loss(source, target_in, target_out)` is the mean over target tokens."""
    batches: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def step(number: int) -> None:
        if number not in batches:
            batches[number] = load(folder, number)
        optimizer.zero_grad()
        value = loss(*batches[number])
        value.backward()
        optimizer.step()
        value.item()

    model.train()
    return step, {"parameters": sum(p.numel() for p in model.parameters())}
