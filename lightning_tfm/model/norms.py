"""Norms of the residual stream. One is one class here and one line in `registry.NORMS`. Shapes: see `transformer`."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import LayerNorm
from torch.nn import functional as F

from lightning_tfm.model.config import Model
from lightning_tfm.model.user_init import construct
from lightning_tfm.registry import NORMS


class Norm(nn.Module, ABC):
    """Constructed as `Class(width, eps)`. Parameters start as the constructor sets them, never at random."""

    @abstractmethod
    def forward(self, x_BTD: Tensor) -> Tensor:
        """-> the same shape, every position only from itself."""


class RMSNorm(Norm):
    """x / sqrt(mean of x² + eps), times a gain for each channel (Zhang and Sennrich 2019)."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x_BTD: Tensor) -> Tensor:
        return F.rms_norm(x_BTD.to(self.weight.dtype), self.weight.shape, self.weight, self.eps)


def make_norm(c: Model) -> nn.Module:
    """Raises UserError where `norm_kind` is neither one that ships nor the import path of a Norm."""
    if c.norm_kind == "layer":
        return LayerNorm(c.d_model, c.norm_eps, bias=c.bias)
    cls: type[nn.Module] = NORMS.find(c.norm_kind, __name__)
    return construct(cls, c.d_model, c.norm_eps)
