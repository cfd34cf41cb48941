"""Products of beam search on a CPU by oneDNN (products.py), whose weights are laid out for it once for a batch.

The sums are rounded otherwise: a translation may differ where two are worth the same to some 1e-6.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from lightning_tfm.model.products import by_onednn, has_onednn, linear_by
from lightning_tfm.model.transformer import Transformer

ROWS = 256
"""beams of a batch, about, which the layout is chosen for; any number may follow"""


def can_pack(model: Transformer) -> bool:
    """Whether `packed` can be used: float32 on a CPU, with a torch that has oneDNN's operators."""
    weight = model.embedding_WD
    return has_onednn() and weight.device.type == "cpu" and weight.dtype is torch.float32


@contextmanager
def packed(model: Transformer) -> Iterator[None]:
    """Inside, `model` multiplies by packed copies of its weights, as they are now. No gradients."""
    with torch.no_grad(), linear_by(model, pack_one):
        model.__dict__["logits"] = partial(by_onednn, W=_pack(model.generator_WD))
        try:
            yield
        finally:
            del model.__dict__["logits"]


def pack_one(linear: nn.Linear) -> Callable[[Tensor], Tensor]:
    """x W^T + bias by a packed copy of its weight."""
    return partial(by_onednn, W=_pack(linear.weight), bias=linear.bias)


def _pack(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)
