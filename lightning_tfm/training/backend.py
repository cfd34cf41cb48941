"""What computes a training step: the formulas themselves, by torch and NumPy, on any device.

accel/ has others, which `accel.choose` picks by the machine and `trainer.kernels`, `trainer.products`. A
TransformerModule is given one; only its results depend on which.
"""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from lightning_tfm.config import Evaluation
from lightning_tfm.data.batch import Batch
from lightning_tfm.model.search import Hypothesis, beam_search
from lightning_tfm.model.transformer import Noise, Transformer
from lightning_tfm.training.dropout_masks import SentenceMasks
from lightning_tfm.training.loss import smoothed_nll


class MaskSource(Protocol):
    """Draws the dropout masks of a micro-batch."""

    def noise(self, step: int, batch: Batch, like: Tensor) -> Noise:
        """As SentenceMasks.noise."""


class Backend:
    """The formulas. A subclass computes the same, up to what its `describe` says."""

    def __init__(self, quicker: str = "give TransformerModule backend=lightning_tfm.accel.choose.backend(…)"):
        self.quicker = quicker
        """what helps a GPU that waits for masks from the CPU"""

    def masks(self, formula: SentenceMasks, device: torch.device) -> MaskSource:
        """What draws the masks of `formula` on `device`."""
        if device.type == "cuda":
            print(f"dropout masks are drawn on the CPU, and {device} waits for them: {self.quicker}", file=sys.stderr)
        return formula

    def multiplying(self) -> AbstractContextManager[object]:
        """Inside, the products of the model's forward, and of their gradients, are this backend's."""
        return nullcontext()

    def smoothed_nll(
        self, x_ND: Tensor, E_WD: Tensor, y_N: Tensor, eps_ls: float, smoothing: str
    ) -> tuple[Tensor, Tensor]:
        """As loss.smoothed_nll."""
        return smoothed_nll(x_ND, E_WD, y_N, eps_ls, smoothing)

    def translate(self, model: Transformer, batches: list[Batch], how: Evaluation) -> dict[int, Hypothesis]:
        """Line number -> the best translation, by the numbers of `model` in its own type."""
        found: dict[int, Hypothesis] = {}
        for batch in batches:
            source_BS = batch.source_BS.to(model.embedding_WD.device)
            best = beam_search(model, source_BS, how.beam, how.alpha, how.extra_len)
            found |= {line: one for line, (one,) in zip(batch.index_B.tolist(), best, strict=True)}
        return found

    def describe(self) -> list[str]:
        """What is computed differently from the formulas on a CPU, for the record."""
        return []
