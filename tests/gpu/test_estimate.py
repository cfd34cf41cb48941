"""The estimate of a step's kernels counts rightly, and gives what an H100 took for two steps whose kernels were summed.

Both are of the paper's base in bfloat16, 25,000 + 25,000 tokens, masks by their kernel: 43 ms of kernels a step with
the loss by its kernel, 70 ms by its formula. The first had residuals by a kernel that is gone (`ResidualKernel`).
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.gpu.estimate import ATTENTION, BYTES, LEAST, PRODUCTS, Count, Counting, Launch, batches, step
from lightning_tfm.config import Model
from lightning_tfm.model import dropout
from lightning_tfm.model.transformer import Residual

WITHIN = 0.15
"""of what was measured"""


class ResidualKernel(torch.autograd.Function):
    """Norm(x + y * keep) as a kernel that reads its tensors once, and one for its gradients: their shapes alone."""

    count: Count

    @staticmethod
    def launch(name: str) -> Callable[..., None]:
        def kernel() -> None: ...

        kernel.__module__, kernel.__name__ = "residual", name
        return Launch(ResidualKernel.count, kernel)[()]

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, keep: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
        out, total = torch.empty_like(x), torch.empty_like(x)
        ResidualKernel.launch("forward")(x, y, keep, out, total)
        ctx.save_for_backward(total, keep, gain)
        ctx.y_dtype = y.dtype
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        total, keep, gain = ctx.saved_tensors
        grad_x, grad_y = torch.empty_like(total), torch.empty_like(total, dtype=ctx.y_dtype)
        shares = torch.empty(2, len(total.flatten(0, -2)) // 32, len(gain))  # a row of each for 32 rows
        ResidualKernel.launch("backward")(grad, total, keep, grad_x, grad_y, shares)
        return grad_x, grad_y, None, shares[0].sum(0), shares[1].sum(0)


def test_products_kernels_and_casts_are_counted():
    """One map of 25 x 16 to 24: its product, its bytes; each weight is cast once."""
    layer, count = nn.Linear(16, 24), Count()
    with Counting(count, {id(layer.weight), id(layer.bias)}), torch.autocast("cpu", torch.bfloat16):
        layer(torch.zeros(25, 16)).relu()
        layer(torch.zeros(25, 16))
    assert (count.casts, count.cast_bytes) == (2, 6 * (16 * 24 + 24))
    assert set(count.by_kind) >= {"addmm", "relu", "_to_copy"} and "t" not in count.by_kind
    assert count.seconds == pytest.approx(count.kernels * LEAST)
    with Counting(large := Count(), set()), torch.device("meta"):
        torch.mm(torch.empty(2048, 4096), torch.empty(4096, 8192))
        torch.empty(1 << 20).neg()
    product, moved = 2 * 2048 * 4096 * 8192 / PRODUCTS, 8 * (1 << 20) / BYTES
    assert large.products == pytest.approx(product) and large.seconds == pytest.approx(product + moved)


def test_attention_counts_whole_tiles():
    """A sentence of five pieces takes as long as one of 40; one of 129, four tiles for one."""
    found = []
    for T in (5, 40, 129):
        with Counting(count := Count(), set()), torch.device("meta"):
            q = torch.empty(500, 8, T, 64, dtype=torch.bfloat16)
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, q, q)
        found.append(count.seconds)
    assert found == pytest.approx([500 * 8 * 4 * 128**2 * 64 * tiles / ATTENTION for tiles in (1, 1, 4)])


@pytest.fixture(scope="module")
def steps():
    pytest.importorskip("triton", reason="NOT TESTED: Triton is not installed (pip install --no-deps triton)")
    return batches(37_000, 25_000)


def test_the_step_with_all_formulas_is_what_was_measured(steps, monkeypatch):
    now = step(Model(), 37_000, steps, "none")
    monkeypatch.setattr(dropout, "_Add", SimpleNamespace(apply=torch.addcmul))  # as it was then
    then = step(Model(), 37_000, steps, "none")
    assert 1e3 * then.seconds == pytest.approx(70, rel=WITHIN)
    assert then.kernels - now.kernels == 90, "for each of thirty residuals: y, its gradient and their sum's cast"
    assert 1e3 * (then.seconds - now.seconds) > 2.5


def test_the_step_with_all_kernels_is_what_was_measured(steps, monkeypatch):
    def forward(self: Residual, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        assert isinstance(self.norm, nn.LayerNorm)
        return ResidualKernel.apply(x, sublayer(x), self.dropout.keep, self.norm.weight, self.norm.bias)

    monkeypatch.setattr(Residual, "forward", forward)
    ResidualKernel.count = Count()
    found = step(Model(), 37_000, steps, "all")
    lost = ResidualKernel.count.mean(len(steps))
    assert lost.kernels == 60 and 1e3 * lost.seconds == pytest.approx(5.0, rel=WITHIN)
    assert 1e3 * found.by_kind["mm"] == pytest.approx(12.1, rel=WITHIN)
    assert 1e3 * (found.seconds + lost.seconds) == pytest.approx(43, rel=WITHIN)
