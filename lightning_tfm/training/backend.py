"""What computes a training step: the formulas themselves, by torch and NumPy, on any device.

accel/ replaces some of these functions, which `accel.select.backend` picks by the machine, `trainer.kernels`
and `trainer.products`. Only a step's results, up to what `notes` say, depend on which.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from lightning_tfm.config import Evaluation, Model
from lightning_tfm.data.batch import Batch
from lightning_tfm.model.beam_search import Hypothesis, beam_search
from lightning_tfm.model.positions import BiasScheme, find_scheme
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.training.loss import smoothed_nll
from lightning_tfm.training.masks import SentenceMasks

if TYPE_CHECKING:
    from lightning_tfm.training.module import TransformerModule

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


# --- what a run's device really used: attention's backends, kernels, compiled variants; for its record ---

VARIANTS = 64
"""compiled forms that all layers share: training, scoring, decoding, each with padding and without; torch stops at 8,
and every further one runs uncompiled"""


def compile_layers(model: SequenceModel) -> None:
    """torch.compile every layer for any shape, in place; parameters keep their names."""
    torch._dynamo.config.recompile_limit = VARIANTS
    for layer in (*model.encoder, *model.decoder):
        layer.compile(dynamic=True)


def backends_used(module: "TransformerModule") -> list[str]:
    """For the list `inexact` of a run's record; empty on a CPU without a compiler. What was not compiled also goes
    to standard error."""
    t, used = module.experiment.training, []
    if module.device.type == "cuda":
        used.append(attention_backends(module.experiment.model, module.device, t.precision))
    used += module.backend.notes
    if tried := variants_tried():
        counters = sys.modules["torch._dynamo.utils"].counters
        good, breaks = counters["frames"]["ok"], counters["graph_break"].total()
        uncompiled = f", {tried - good} or more that run uncompiled" if tried > good else ""
        used.append(f"compiled: {good} variants{uncompiled}" + (f", {breaks} interruptions" if breaks else ""))
        if uncompiled:
            print(f"{used[-1]}: the training was slower than it need be", file=sys.stderr)
    return used


def variants_tried() -> int:
    """What torch's compiler was asked to do in this process; importing its module takes a second."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo.counters["frames"]["total"] if dynamo else 0


def attention_backends(c: Model, device: torch.device, precision: str) -> str:
    """The backends that torch uses for training's attention on `device`: over the memory (padded), in the encoder, in
    the decoder (causal); in one stack."""
    kinds = {"bfloat16": torch.bfloat16, "float64": torch.float64}
    kind = kinds.get(precision, torch.float32)
    q = torch.zeros(2, c.h, 64, c.d_k, requires_grad=True, device=device, dtype=kind)
    v = torch.zeros(2, c.h, 64, c.d_v, requires_grad=True, device=device, dtype=kind)
    padded = torch.ones(2, 1, 1, 64, dtype=torch.bool, device=device)
    scheme = find_scheme(c.positions)
    biased = issubclass(scheme, BiasScheme)
    bias = torch.zeros(2, c.h, 64, 64, requires_grad=c.positions != "alibi", device=device, dtype=kind)

    def backend_of(mask: Tensor | None, causal: bool = False) -> str:
        mask = mask if mask is None else mask.expand(2, c.h, 64, 64)
        return SDPBackend(torch._fused_sdp_choice(q, q, v, mask, 0.0, causal)).name.removesuffix("_ATTENTION").lower()

    encoder = backend_of(bias) if biased else backend_of(padded)
    decoder = backend_of(bias) if biased else backend_of(None, True)
    if c.layer != "attention":
        encoder = decoder = backend_of(padded) if c.layer == "restricted" else f"none ({c.layer})"
    if c.one_stack:
        prefix = torch.ones(2, 1, 64, 64, dtype=torch.bool, device=device)
        return f"attention: {decoder if c.stack == 'causal' else backend_of(bias if biased else prefix)}"
    return f"attention: memory {backend_of(padded)}, encoder {encoder}, decoder {decoder}"
