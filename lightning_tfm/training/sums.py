"""Loss and nll of a rank's micro-batches, read from a GPU only now and then: to read is to wait until it has done all
that it was asked."""

import numpy as np
import torch
from torch import Tensor

from lightning_tfm.data.batch import Batch

READ_EVERY = 10
"""steps after which those of a GPU are read at the latest"""


class NotFinite(FloatingPointError):
    """The loss of a step is NaN or infinite."""


class Sums:
    """In nats. `every`: steps between two looks; with 1 each micro-batch is looked at before the next one."""

    def __init__(self, every: int = 1):
        self.every = every
        self._total = np.zeros(2)
        self._unread: list[tuple[int, int, Batch, Tensor]] = []

    def add(self, step: int, number: int, batch: Batch, loss: Tensor, nll: Tensor) -> None:
        """Those of micro-batch `number` of a step. Raises NotFinite."""
        self._unread.append((step, number, batch, torch.stack((loss.detach(), nll)).double()))
        if self.every == 1:
            self.read()

    def step_done(self, step: int) -> None:
        """Raises NotFinite."""
        if (step + 1) % self.every == 0:
            self.read()

    def read(self) -> None:
        """Raises NotFinite, which names the first step that is not."""
        unread, self._unread = self._unread, []
        found = torch.stack([sums for *_, sums in unread]).cpu().numpy() if unread else ()
        for (step, number, batch, _), sums in zip(unread, found, strict=True):
            if not np.isfinite(sums).all():
                shape = f"{tuple(batch.source_BS.shape)} -> {tuple(batch.target_in_BT.shape)}"
                raise NotFinite(f"the loss is {sums[0]} at step {step}, micro-batch {number} of shape {shape}")
            self._total += sums

    def take(self) -> np.ndarray:
        """(loss, nll) since the last call. Raises NotFinite."""
        self.read()
        total, self._total = self._total, np.zeros(2)
        return total
