"""The norms and feed-forwards that ship, each held to its formula; to the suite of users' own: test_suites."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_tfm.config import Model
from lightning_tfm.errors import UserError
from lightning_tfm.model.dropout import masks_set
from lightning_tfm.model.feed_forward import make_feed_forward, product_weights
from lightning_tfm.model.norms import Norm, RMSNorm, make_norm
from lightning_tfm.model.transformer import Residual
from lightning_tfm.registry import gated_width
from lightning_tfm.testing import NormSuite


class MixesRows(Norm):
    def __init__(self, width: int, eps: float):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.gain * (x_BTD - x_BTD.mean(0))


def test_a_norm_of_the_batch_is_caught():
    broken = type("TestOne", (NormSuite,), {"norm_kind": f"{__name__}.MixesRows"})()
    with pytest.raises(AssertionError, match="by itself is off"):
        broken.test_every_position_stands_alone()
    with pytest.raises(UserError, match=r"must derive from Norm \(lightning_tfm\.model\.norms\)"):
        make_norm(Model(norm_kind="torch.nn.Linear"))


def test_rms_is_its_formula_and_float32_under_autocast():
    norm, x = RMSNorm(6, 0.25).double(), torch.randn(2, 3, 6, dtype=torch.float64)
    norm.weight.data.uniform_(0.5, 2)
    expected = x / (x.square().mean(-1, keepdim=True) + 0.25).sqrt() * norm.weight
    torch.testing.assert_close(norm(x), expected, atol=1e-12, rtol=0)
    assert norm.float()(x.bfloat16()).dtype is torch.float32


def test_sandwich_is_a_norm_before_and_one_after_the_sub_layer():
    residual = Residual(Model(d_model=6, norm="sandwich", P_drop=0.0)).double()
    x, keep = torch.randn(2, 3, 6, dtype=torch.float64), torch.randint(0, 3, (2, 3, 6)).double()
    residual.outer_norm.weight.data.uniform_(0.5, 2)
    expected = x + residual.outer_norm(residual.norm(x).square()) * keep
    with masks_set([(residual.dropout, keep)]):
        torch.testing.assert_close(residual(x, torch.square), expected, atol=1e-12, rtol=0)


FORMULAS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2,
    "relu2": lambda x: x.clamp(min=0) ** 2,
    "swiglu": lambda x: x / (1 + (-x).exp()),
    "geglu": lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_each_is_its_formula(name):
    module, x = make_feed_forward(name, 6, 10).double(), torch.randn(2, 3, 6, dtype=torch.float64)
    gated = name in ("swiglu", "geglu")
    W, b = module.W_1.weight, module.W_1.bias
    if gated:
        width = gated_width(6, 10)
        inner = FORMULAS[name](F.linear(x, W[:width], b[:width])) * F.linear(x, W[width:], b[width:])
    else:
        inner = FORMULAS[name](F.linear(x, W, b))
    torch.testing.assert_close(module(x), F.linear(inner, module.W_2.weight, module.W_2.bias), atol=1e-12, rtol=0)
    assert product_weights(module) == (3 * 6 * gated_width(6, 10) if gated else 2 * 6 * 10)
