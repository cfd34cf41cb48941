"""What computes a training step: the formulas themselves, by torch and NumPy, on any device.

accel/ replaces some of these functions, which `accel.select.backend` picks by the machine, `trainer.kernels`
and `trainer.products`. Only a step's results, up to what `notes` say, depend on which.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from lightning_tfm.config import Evaluation
from lightning_tfm.data.batch import Batch
from lightning_tfm.model.beam_search import Hypothesis, beam_search
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.training.loss import smoothed_nll
from lightning_tfm.training.masks import SentenceMasks

Draw = Callable[[int, Batch, Tensor], tuple[Tensor, Tensor]]
"""as SentenceMasks.between"""


def host_masks(
    formula: SentenceMasks,
    device: torch.device,
    quicker: str = "give TransformerModule backend=lightning_tfm.accel.select.backend(…)",
) -> Draw:
    """The formula itself, on the CPU; a GPU waits for it, which is said with what is `quicker`."""
    if device.type == "cuda":
        print(f"dropout masks are drawn on the CPU, and {device} waits for them: {quicker}", file=sys.stderr)
    return formula.between


def translate(model: SequenceModel, batches: list[Batch], how: Evaluation) -> dict[int, Hypothesis]:
    """Line number -> the best translation, by the numbers of `model` in its own type."""
    translations: dict[int, Hypothesis] = {}
    for batch in batches:
        best = beam_search(model, batch.source_BS.to(model.embedding_WD.device), how.beam, how.alpha, how.extra_len)
        translations |= {line: hypothesis for line, (hypothesis,) in zip(batch.index_B.tolist(), best, strict=True)}
    return translations


@dataclass(frozen=True)
class Backend:
    """The formulas, unless others are given."""

    masks: Callable[[SentenceMasks, torch.device], Draw] = host_masks
    loss: Callable[[Tensor, Tensor, Tensor, float, str], tuple[Tensor, Tensor]] = smoothed_nll
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    """what the model's forward runs in"""
    translate: Callable[[SequenceModel, list[Batch], Evaluation], dict[int, Hypothesis]] = translate
    notes: tuple[str, ...] = ()
    """what is computed differently from the formulas on a CPU, for the record"""
