"""Norm(x + y * keep) of a post-norm residual in one pass, and its gradients in another.

`formula` says what it is, in torch; model/layers.py:joined computes the same by an addcmul and the norm. Numbers
between are float32. Rows are summed up in a fixed order and no two programs write to one place: each leaves its share
of the gradients of gain and shift in a row of its own.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from lightning_tfm.model.kernels.jit import kernel
from lightning_tfm.model.norms import RMSNorm

ROWS = 32
"""rows that one program takes backward"""


def formula(
    x: Tensor, y: Tensor, keep: Tensor, gain: Tensor, shift: Tensor | None, eps: float, centred: bool
) -> Tensor:
    """gain * (s - m) / sqrt(mean of (s - m)² + eps) + shift with s = x + y * keep; m is its mean, or 0: RMS norm."""
    s = x + y * keep
    s = s - s.mean(-1, keepdim=True) if centred else s
    normal = s / (s.square().mean(-1, keepdim=True) + eps).sqrt()
    return normal * gain if shift is None else normal * gain + shift


def forward(
    x, y, keep, gain, shift, out, total, mean, scale, D, eps,
    CENTRED: tl.constexpr, SHIFTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out and total (the sum before the norm) [N, D]; mean and scale, 1 / the root, [N]. One program for each row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside, here = column < D, row * D + column
    s = tl.load(y + here, mask=inside, other=0.0).to(tl.float32) * tl.load(keep + here, mask=inside, other=0.0)
    s += tl.load(x + here, mask=inside, other=0.0).to(tl.float32)
    tl.store(total + here, s, mask=inside)
    if CENTRED:
        middle = tl.sum(s, 0) / D
        tl.store(mean + row, middle)
        s = tl.where(inside, s - middle, 0.0)
    root = tl.math.rsqrt(tl.sum(s * s, 0) / D + eps)
    tl.store(scale + row, root)
    normal = s * root * tl.load(gain + column, mask=inside, other=0.0)
    if SHIFTED:
        normal += tl.load(shift + column, mask=inside, other=0.0)
    tl.store(out + here, normal, mask=inside)


def backward(
    grad, total, keep, gain, mean, scale, grad_x, grad_y, of_gain, of_shift, N, D,
    CENTRED: tl.constexpr, SHIFTED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """grad_x, grad_y [N, D]; of_gain, of_shift [programs, D] sum over the rows of a program. Each takes ROWS rows."""
    program = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < D
    factor = tl.load(gain + column, mask=inside, other=0.0)
    gain_sum, shift_sum = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for row in range(program * ROWS, tl.minimum(program * ROWS + ROWS, N)):
        here = row * D + column
        g = tl.load(grad + here, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(total + here, mask=inside, other=0.0)
        root = tl.load(scale + row)
        if CENTRED:
            s = tl.where(inside, s - tl.load(mean + row), 0.0)
        normal = s * root
        gain_sum += g * normal
        if SHIFTED:
            shift_sum += g
        g *= factor
        along = g - normal * (tl.sum(g * normal, 0) / D)
        if CENTRED:
            along -= tl.sum(g, 0) / D
        along *= root
        tl.store(grad_x + here, along, mask=inside)
        tl.store(grad_y + here, along * tl.load(keep + here, mask=inside, other=0.0), mask=inside)
    tl.store(of_gain + program * D + column, gain_sum, mask=inside)
    if SHIFTED:
        tl.store(of_shift + program * D + column, shift_sum, mask=inside)


def warps(D: int) -> int:
    return 4 if D <= 1024 else 8


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, keep: Tensor, gain: Tensor, shift: Tensor | None, eps: float, centred: bool
    ) -> Tensor:
        x, y, keep = x.contiguous(), y.contiguous(), keep.contiguous()
        D = x.shape[-1]
        N = x.numel() // D
        out, total = (torch.empty(x.shape, dtype=gain.dtype, device=x.device) for _ in range(2))
        mean, scale = (torch.empty(N, dtype=torch.float32, device=x.device) for _ in range(2))
        how = {"CENTRED": centred, "SHIFTED": shift is not None, "BLOCK": triton.next_power_of_2(D)}
        if N:
            kernel(forward)[(N,)](x, y, keep, gain, shift, out, total, mean, scale, D, eps, **how, num_warps=warps(D))
        ctx.save_for_backward(total, keep, gain, mean, scale)
        ctx.kinds, ctx.how = (x.dtype, y.dtype), how
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, Tensor, Tensor | None, None, None]:
        total, keep, gain, mean, scale = ctx.saved_tensors
        N, D = len(scale), len(gain)
        programs = triton.cdiv(N, ROWS)
        grad_x, grad_y = (torch.empty(total.shape, dtype=kind, device=total.device) for kind in ctx.kinds)
        shares = torch.empty(2, programs, D, dtype=torch.float32, device=total.device)
        tensors = grad.contiguous(), total, keep, gain, mean, scale, grad_x, grad_y, *shares.unbind()
        if N:
            kernel(backward)[(programs,)](*tensors, N, D, **ctx.how, ROWS=ROWS, num_warps=warps(D))
        of_shift = shares[1].sum(0) if ctx.how["SHIFTED"] else None
        return grad_x, grad_y, None, shares[0].sum(0), of_shift, None, None


def takes(norm: nn.Module) -> bool:
    """Whether the kernel is of this norm: those of the user's own are not."""
    return type(norm) in (nn.LayerNorm, RMSNorm)


def joined(x: Tensor, y: Tensor, keep: Tensor, norm: nn.Module) -> Tensor:
    """As model/layers.py:joined, of a norm that it `takes`: [..., D], in the dtype of the norm's gain, float32."""
    shift = norm.bias if isinstance(norm, nn.LayerNorm) else None
    return _Joined.apply(x, y, keep, norm.weight, shift, norm.eps, isinstance(norm, nn.LayerNorm))
