"""The feed-forwards that ship, each held to its formula; to the suite of users' own: test_suites."""

import pytest
import torch
from torch.nn import functional as F

from lightning_tfm.model.feed_forward import make_feed_forward, product_weights
from lightning_tfm.registry import gated_width

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
