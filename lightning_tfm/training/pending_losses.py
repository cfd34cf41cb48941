"""Losses of micro-batches that are still on the device.

Reading one from a GPU means waiting until it has finished all its work, so they are read together.
"""

import numpy as np
import torch
from torch import Tensor

from lightning_tfm.data.batch import Batch

READ_EVERY = 10
"""steps after which those of a GPU are read at the latest"""


class NotFinite(FloatingPointError):
    """The loss of a step is NaN or infinite."""


class PendingLosses:
    """`every`: steps between two readings; with 1 each micro-batch is read before the next one."""

    def __init__(self) -> None:
        self.every = 1
        self._pending: list[tuple[int, int, Batch, Tensor]] = []

    def add(self, step: int, number: int, batch: Batch, sums: Tensor) -> None:
        """Loss and nll of micro-batch `number` of a step: float64 [2], in nats."""
        self._pending.append((step, number, batch, sums))

    def add_to(self, total: np.ndarray) -> None:
        """In the order in which they came. Raises NotFinite, which names the first step that is not."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        losses = torch.stack([sums for *_, sums in pending]).cpu().numpy()
        for (step, number, batch, _), sums in zip(pending, losses, strict=True):
            if not np.isfinite(sums).all():
                shape = f"{tuple(batch.source_BS.shape)} -> {tuple(batch.target_in_BT.shape)}"
                raise NotFinite(f"the loss is {sums[0]} at step {step}, micro-batch {number} of shape {shape}")
            total += sums
