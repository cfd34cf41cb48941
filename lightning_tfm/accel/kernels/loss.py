"""Label-smoothed cross entropy of whole rows of logits, and its gradient written over them.

`formula` says what it is, in torch; training/loss.py computes the same in chunks that fit a CPU's caches. Here one
program takes one row: it reads the row for its maximum and the sum of its exponentials, and once more, out of the
cache, to write the gradient. Numbers between are float32, sums within a row have a fixed order, and no two programs
write to one place.
"""

from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from lightning_tfm.accel.kernels import kernel

BLOCK, WARPS = 4096, 8
"""logits that a program takes at a time, and its warps"""


def formula(z_NV: Tensor, y_N: Tensor, q_y: float, b: float) -> tuple[Tensor, Tensor, Tensor]:
    """(loss, nll, gradient in z) of every row: -sum_c q_c log p_c with q_y at y and b elsewhere, -log p_y, p - q."""
    log_p = z_NV.log_softmax(1)
    nll = -log_p.gather(1, y_N[:, None])[:, 0]
    q = torch.full_like(z_NV, b).scatter(1, y_N[:, None], q_y)
    return -(q * log_p).sum(1), nll, log_p.exp() - q


def rows(z, y, loss, nll, V, q_y, b, BLOCK: tl.constexpr):
    """z [N, V] becomes its gradient, loss and nll [N] are float32. One program for each row."""
    row = tl.program_id(0).to(tl.int64)
    z += row * V
    wanted = tl.load(y + row)
    z_y = tl.load(z + wanted).to(tl.float32)
    column = tl.arange(0, BLOCK)
    top, exp_sum, z_sum = -float("inf"), 0.0, 0.0
    for start in range(0, V, BLOCK):
        part = tl.load(z + start + column, mask=start + column < V, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(part, 0))
        shift = tl.where(higher == -float("inf"), 0.0, higher)  # where nothing was above it: inf - inf is nan
        exp_sum = exp_sum * tl.exp(top - shift) + tl.sum(tl.exp(part - shift), 0)
        z_sum += tl.sum(tl.where(start + column < V, part, 0.0), 0)
        top = higher
    nll_y = tl.log(exp_sum) + (top - z_y)
    tl.store(nll + row, nll_y)
    tl.store(loss + row, (q_y - b) * nll_y + b * (V * (tl.log(exp_sum) + top) - z_sum))
    for start in range(0, V, BLOCK):
        here = start + column
        p = tl.exp(tl.load(z + here, mask=here < V, other=-float("inf")).to(tl.float32) - top) / exp_sum
        tl.store(z + here, p - tl.where(here == wanted, q_y, b), mask=here < V)


def over_rows(z_NV: Tensor, y_N: Tensor, q_y: float, b: float) -> tuple[Tensor, Tensor]:
    """(loss, nll) of every row, float32; `z_NV`, contiguous, becomes the gradient."""
    loss, nll = (torch.empty(len(y_N), dtype=torch.float32, device=z_NV.device) for _ in range(2))
    kernel(rows)[(len(y_N),)](z_NV, y_N, loss, nll, z_NV.shape[1], q_y, b, BLOCK=BLOCK, num_warps=WARPS)
    return loss, nll


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b in float32, its factors unchanged: a GPU adds up bfloat16 in float32, and need not round the sum."""
    if a.device.type == "cuda" and a.dtype is torch.bfloat16:
        return torch.mm(a, b, out_dtype=torch.float32)
    return (a @ b).float()


class _OnePass(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, E_WD: Tensor, y_N: Tensor, q_y: float, b: float, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        x_ND, factor_WD = x_ND.to(dtype), E_WD.to(dtype)
        z_NV = F.linear(x_ND, factor_WD)
        loss_N, nll_N = over_rows(z_NV, y_N, q_y, b)
        ctx.save_for_backward(z_NV @ factor_WD, product(z_NV.T, x_ND))
        nll = nll_N.sum()
        ctx.mark_non_differentiable(nll)
        return loss_N.sum(), nll

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        grad_x, grad_E = ctx.saved_tensors
        return grad_x.float() * grad_loss, grad_E.mul_(grad_loss), None, None, None, None


def smoothed_nll(
    x_ND: Tensor, E_WD: Tensor, y_N: Tensor, q_y: float, b: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """(loss, nll): sums over the rows in nats, of logits x E^T; products take their factors in `dtype`.

    All logits exist at once. The gradient of E is one float32 buffer, scaled in place: it can be requested once.
    """
    return _OnePass.apply(x_ND, E_WD, y_N, q_y, b, dtype)
