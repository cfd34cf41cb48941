"""Products of matrices on a CPU by oneDNN, in a training step (`trainer.products`) and in beam search (`--packed`).

MKL keeps to AVX2 on AMD's processors; oneDNN uses AVX-512 there, at twice the speed. The sums are rounded differently,
as on another processor: a translation may differ where two scores agree to some 1e-6. oneDNN makes code for every
new shape, which pays in training from d_model 256 or so.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from lightning_tfm.errors import UserError
from lightning_tfm.model.one_stack import make_model
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.training.backend import Backend
from lightning_tfm.training.loss import Products, smoothed_nll

ROWS = 256
"""beams of a batch, about, which the layout of packed weights is chosen for; any number may follow"""


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


class Multiplying(TorchFunctionMode):
    """Inside, every x W^T + bias of float32 on a CPU is oneDNN's, its gradients too, whoever asks for it."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        return linear(*args, **kwargs) if func is F.linear else func(*args, **kwargs)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear, with its names; by torch where oneDNN's operator is not for it."""
    if input.dim() < 2 or weight.dim() < 2 or {input.dtype, weight.dtype} != {torch.float32}:
        return F.linear(input, weight, bias)
    if torch.is_grad_enabled():
        return _Linear.apply(input, weight, bias)
    return by_onednn(input, weight, bias)


class OneDNNProducts(Products):
    def logits(self, x: Tensor, W: Tensor) -> Tensor:
        return by_onednn(x, W)

    def write(self, out: Tensor, g: Tensor, W: Tensor) -> None:
        out.copy_(by_onednn(g, W.T))

    def add(self, total: Tensor, g: Tensor, x: Tensor) -> None:
        total += by_onednn(g.T, x.T)


def by_products(precision: str, device: torch.device) -> Backend:
    """The formulas, but products by oneDNN. Its operator would multiply in float32 inside autocast, too."""
    if not has_onednn():
        raise UserError("trainer.products=onednn: this torch has no oneDNN: remove it")
    if precision != "float32" or device.type != "cpu":
        raise UserError(f"trainer.products=onednn multiplies float32 on CPUs, not {precision} on {device}")
    return Backend(loss=partial(smoothed_nll, by=OneDNNProducts()), around=Multiplying)


def can_pack(model: SequenceModel) -> bool:
    """Whether `packed` can be used: float32 on a CPU, with a torch that has oneDNN's operators."""
    weight = model.embedding_WD
    return has_onednn() and weight.device.type == "cpu" and weight.dtype is torch.float32


class _Packed(nn.Module):
    """x W^T + bias by a copy of its weight that is laid out for oneDNN. No gradients."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.laid = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()  # own classes may read them

    def forward(self, x: Tensor) -> Tensor:
        return by_onednn(x, self.laid, self.bias)


class _Packing:
    """The logits by a packed matrix."""

    packed: _Packed

    def logits(self, hidden_BTD: Tensor) -> Tensor:
        return self.packed(hidden_BTD)


def PackedTransformer(model: SequenceModel) -> SequenceModel:
    """A copy of `model` only for decoding: its linear maps, and the logits, by its present weights, packed.

    A linear map with its own forward, or whose weight a hook makes, is not changed.
    """
    copy = make_model(model.config, model.V)
    copy.load_state_dict(model.state_dict(), assign=True)  # its tensors, no second copy of them
    pack_below(copy.eval())
    copy.__class__ = type("Packed", (_Packing, type(copy)), {})
    copy.packed = _Packed(copy.generator_WD, None)
    return copy


def pack_below(parent: nn.Module) -> None:
    """Put packed copies in the place of the plain linear maps below `parent`."""
    for name, child in parent.named_children():
        if _is_plain(child):
            setattr(parent, name, _Packed(child.weight, child.bias))
        else:
            pack_below(child)


def _is_plain(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether it computes x W^T + bias for its `weight` of any moment, a parametrized one's included."""
    own = "forward" in vars(module) or module._forward_pre_hooks
    return isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward and not own
