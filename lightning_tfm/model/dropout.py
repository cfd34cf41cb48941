"""Dropout whose mask may be given for a micro-batch, keyed by sentence (training/masks.py)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Module):
    """x * mask / (1 - P): `keep`, 0 or 1/(1-P), where training has given one; else torch's generator draws."""

    def __init__(self, P: float):
        super().__init__()
        self.P = P
        self.keep: Tensor | None = None

    @property
    def acts(self) -> bool:
        return self.keep is not None or (self.training and self.P > 0)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.P, self.training) if self.keep is None else x * self.keep

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + dropout(y)."""
        if self.keep is None:
            return x + F.dropout(y, self.P, self.training)
        if y.dtype is x.dtype or torch.compiler.is_compiling():  # the compiler joins them itself
            return torch.addcmul(x, y, self.keep)
        return _Add.apply(x, y, self.keep)


Given = list[tuple[Dropout, Tensor]]


@contextmanager
def masks_set(masks: Given) -> Iterator[None]:
    """These masks, in the block."""
    for dropout, keep in masks:
        dropout.keep = keep
    try:
        yield
    finally:
        for dropout, _ in masks:
            dropout.keep = None


class _Add(torch.autograd.Function):
    """x + y * keep for a y of fewer bits than x, as autocast passes it on: addcmul's numbers, without its copies of y
    and of y's gradient in x's bits (a tenth of the bytes of a GPU's step)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, keep: Tensor) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.y_dtype = y.dtype
        return torch.addcmul(x, y, keep, out=torch.empty_like(x))  # autocast leaves what has an `out`

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (keep,) = ctx.saved_tensors
        return grad, torch.mul(grad, keep, out=torch.empty_like(grad, dtype=ctx.y_dtype)), None
