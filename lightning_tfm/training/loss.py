"""Label-smoothed cross entropy of a tied output layer, with its gradient formed in the forward pass.

For a target y the smoothed distribution is q_y = 1 - eps + b, q_c = b elsewhere, with b = eps/V (`vocabulary`: Szegedy
et al. 2016, cited in 5.4) or, with q_y = 1 - eps, b = eps/(V-1) (`others`: the first code). The loss is -sum_c q_c
log p_c, its gradient in the logits p - q. Rows go through in chunks, so that logits of the whole batch never exist.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_tfm.training.precision import any_order, as_autocast

CHUNK_ROWS = 1024
"""Rows of one chunk: 226 rows of V = 37,000 cost a fifth more time, on two cores, than 1,024."""
SMALL_CHUNK, LARGE_CHUNK = 32 << 20, 160 << 20
"""Bytes of logits up to which a chunk may have more rows, and above which it has fewer."""


class Products:
    """The three products of the loss, by torch. Shapes: x [N, d], W [V, d], g [N, V]."""

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


BY_TORCH = Products()


def smoothing_weights(eps_ls: float, V: int, smoothing: str) -> tuple[float, float]:
    """(q_y, b)."""
    if smoothing == "others":
        return 1 - eps_ls, eps_ls / (V - 1)
    return 1 - eps_ls + eps_ls / V, eps_ls / V


def chunk_rows(V: int, itemsize: int) -> int:
    row = V * itemsize
    return max(64, min(max(CHUNK_ROWS, SMALL_CHUNK // row), LARGE_CHUNK // row))


class _SmoothedNLL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, E_WD: Tensor, y_N: Tensor, q_y: float, b: float, by: Products
    ) -> tuple[Tensor, Tensor]:
        N, V = x_ND.shape[0], E_WD.shape[0]
        x_ND, factor_WD = as_autocast(x_ND), as_autocast(E_WD)  # products written into a buffer escape autocast
        grad_x, grad_E = torch.empty_like(x_ND), torch.zeros_like(E_WD)
        loss, nll = x_ND.new_zeros((), dtype=E_WD.dtype), x_ND.new_zeros((), dtype=E_WD.dtype)
        rows = chunk_rows(V, E_WD.element_size())
        for start in range(0, N, rows):
            x, y = x_ND[start : start + rows], y_N[start : start + rows, None]
            z = by.logits(x, factor_WD).to(E_WD.dtype)
            z_y, top, z_sum = z.gather(1, y), z.amax(1, keepdim=True), z.sum()
            exp_z = z.sub_(top).exp_()  # once, for the loss and for its gradient
            exp_sum = exp_z.sum(1, keepdim=True)
            log_sum = exp_sum.log() + top
            nll_rows = log_sum - z_y
            nll += nll_rows.sum()
            loss += ((q_y - b) * nll_rows).sum() + b * (V * log_sum.sum() - z_sum)
            grad_z = exp_z.div_(exp_sum).sub_(b)
            with any_order():
                grad_z.scatter_add_(1, y, torch.full_like(z_y, b - q_y))
            grad_z = grad_z.to(x.dtype)
            by.write(grad_x[start : start + rows], grad_z, factor_WD)
            by.add(grad_E, grad_z, x)
        ctx.save_for_backward(grad_x, grad_E)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        grad_x, grad_E = ctx.saved_tensors
        return grad_x.to(grad_loss.dtype) * grad_loss, grad_E * grad_loss, None, None, None, None


def smoothed_nll(
    x_ND: Tensor, E_WD: Tensor, y_N: Tensor, eps_ls: float, smoothing: str, by: Products = BY_TORCH
) -> tuple[Tensor, Tensor]:
    """(loss, nll): sums over the N rows, in nats; nll is without smoothing and carries no gradient.

    Logits are x E^T. Equals F.cross_entropy(x E^T, y, reduction="sum", label_smoothing=eps_ls) for `vocabulary`.
    """
    return _SmoothedNLL.apply(x_ND, E_WD, y_N, *smoothing_weights(eps_ls, E_WD.shape[0], smoothing), by)


@torch.no_grad()
def token_nll(x_ND: Tensor, E_WD: Tensor, y_N: Tensor) -> Tensor:
    """Unsmoothed -log p(y) of every row [N], in nats."""
    rows = chunk_rows(E_WD.shape[0], E_WD.element_size())
    parts = zip(x_ND.split(rows), y_N.split(rows), strict=True)
    return torch.cat([F.cross_entropy(F.linear(x, E_WD).to(E_WD.dtype), y, reduction="none") for x, y in parts])
