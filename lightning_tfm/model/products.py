"""Who multiplies matrices in a training step on a CPU: torch, by MKL, or oneDNN, which `trainer.products` asks for.

MKL keeps to AVX2 on AMD's processors; oneDNN takes AVX-512 there, at twice the speed. The sums are rounded otherwise,
as on another processor. oneDNN makes code for every new shape, which pays from d_model 256 or so.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def has_onednn() -> bool:
    """Whether this torch has the operators that are used here."""
    there = torch.backends.mkldnn.is_available()
    return there and all(hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight"))


def by_onednn(x: Tensor, W: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + bias for x [..., k], W [n, k]: float32 on a CPU, without a gradient. W may be laid out for it before."""
    return torch.ops.mkldnn._linear_pointwise(x, W, bias, "none", [], "")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, W)
        return by_onednn(x, W, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, W = ctx.saved_tensors
        rows = grad.flatten(0, -2)
        grad_x = by_onednn(rows, W.T).view(x.shape) if ctx.needs_input_grad[0] else None
        grad_W = by_onednn(rows.T, x.flatten(0, -2).T) if ctx.needs_input_grad[1] else None
        return grad_x, grad_W, rows.sum(0) if ctx.needs_input_grad[2] else None


def _linear(module: nn.Linear, x: Tensor) -> Tensor:
    if torch.is_grad_enabled():
        return _Linear.apply(x, module.weight, module.bias)
    return by_onednn(x, module.weight, module.bias)


@contextmanager
def linear_by(model: nn.Module, make: Callable[[nn.Linear], Callable[[Tensor], Tensor]]) -> Iterator[None]:
    """Inside, every nn.Linear of `model` computes by what `make` makes of it; those with a forward of their own do not.

    Nor do those whose weight a hook makes before each forward (torch.nn.utils.weight_norm).
    """
    found = [module for module in model.modules() if _is_plain(module)]
    for module in found:
        module.__dict__["forward"] = make(module)
    try:
        yield
    finally:
        for module in found:
            del module.__dict__["forward"]


def _is_plain(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether it computes x W^T + bias for its `weight` of any moment, a parametrized one's included."""
    own = "forward" in vars(module) or module._forward_pre_hooks
    return isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward and not own


def linear_by_onednn(model: nn.Module) -> AbstractContextManager[None]:
    """Inside, every nn.Linear of `model` multiplies by oneDNN, gradients too, as `linear_by` has it."""
    return linear_by(model, lambda module: partial(_linear, module))


class Products:
    """The three products of the loss (training/loss.py), by torch. Shapes: x [N, d], W [V, d], g [N, V]."""

    def logits(self, x: Tensor, W: Tensor) -> Tensor:
        """x W^T."""
        return F.linear(x, W)

    def write(self, out: Tensor, g: Tensor, W: Tensor) -> None:
        """out = g W."""
        torch.mm(g, W, out=out)

    def add(self, total: Tensor, g: Tensor, x: Tensor) -> None:
        """total += g^T x."""
        if x.dtype is total.dtype:
            total.addmm_(g.T, x)
        else:
            total += g.T @ x


class OneDNNProducts(Products):
    """The same by oneDNN."""

    def logits(self, x: Tensor, W: Tensor) -> Tensor:
        return by_onednn(x, W)

    def write(self, out: Tensor, g: Tensor, W: Tensor) -> None:
        out.copy_(by_onednn(g, W.T))

    def add(self, total: Tensor, g: Tensor, x: Tensor) -> None:
        total += by_onednn(g.T, x.T)
