"""The model: its outputs, gradients, norms and feed-forward networks."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.nn import functional as F

from lightning_tfm.config import Model
from lightning_tfm.errors import UserError
from lightning_tfm.model.dropout import masks_set
from lightning_tfm.model.feed_forward import make_feed_forward, product_weights
from lightning_tfm.model.norms import Norm, RMSNorm, make_norm
from lightning_tfm.model.transformer import Residual, Transformer
from lightning_tfm.registry import SCHEMES, gated_width
from lightning_tfm.testing import NormSuite
from lightning_tfm.training.loss import smoothed_nll

V = 31
SIZES = {"N": 3, "d_model": 38, "d_ff": 41, "h": 11, "d_k": 26, "d_v": 13, "max_positions": 37}
"""no two alike, so that no axis can stand for another"""


# --- initial weights ---

CHANGES = [
    {"N": 2},
    {"d_ff": 43},
    {"h": 5},
    {"h": 22, "d_k": 13},
    {"d_k": 6},
    {"d_v": 17},
    {"norm": "pre"},
    {"positions": "learned"},
    {"positions": "shaw"},
    {"attention_bias": True},
    {"P_drop": 0.5},
    {"target_spaces": 3},
]


def parts(model: Transformer) -> dict[str, torch.Tensor]:
    """Weights by name; fused projections by the name of each part."""
    found = {}
    for name, p in model.named_parameters():
        module = model.get_submodule(name.rpartition(".")[0])
        if name.endswith(".weight") and hasattr(module, "parts"):
            for part, rows in zip(module.parts, p.split(list(module.parts.values())), strict=True):
                found[f"{name}.{part}"] = rows
        else:
            found[name] = p
    return found


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_rows_share_what_they_have_in_common(change):
    ours = parts(Transformer(Model(**SIZES), V, seed=3))
    theirs = parts(Transformer(Model(**(SIZES | change)), V, seed=3))
    common = [name for name in ours if name in theirs and ours[name].shape == theirs[name].shape]
    assert "embedding_WD" in common and len(common) > len(ours) // 3
    for name in common:
        assert torch.equal(ours[name], theirs[name]), name


def test_other_seeds_and_names_draw_other_weights():
    first, second = (parts(Transformer(Model(**SIZES), V, seed=seed)) for seed in (0, 1))
    drawn = [name for name, p in first.items() if p.dim() == 2]
    for name in drawn:
        assert not (first[name] == second[name]).any(), name
    flat = [first[name].flatten()[:100] for name in drawn]
    assert len({tuple(x.tolist()) for x in flat}) == len(drawn)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("init", ["xavier", "xavier_residual", "unit_scaling"])
def test_ranges_of_the_initial_weights(init, norm):
    model = Transformer(Model(**(SIZES | {"init": init, "positions": "shaw", "norm": norm})), V)
    sublayers = {"encoder": 2 * SIZES["N"], "decoder": 3 * SIZES["N"]}
    for name, p in parts(model).items():
        if "embedding" in name or "table" in name:
            assert abs(float(p.detach().std()) * math.sqrt(p.shape[1]) - 1) < 0.1, name
        elif p.dim() == 2:
            fan_out, fan_in = p.shape
            a = math.sqrt(3 / fan_in) if init == "unit_scaling" else math.sqrt(6 / (fan_in + fan_out))
            if init == "xavier_residual" and name.endswith(("W_O.weight", "W_2.weight")):
                a /= math.sqrt(sublayers[name.split(".")[0]])
            assert 0.99 * a < p.abs().max() <= a * (1 + 1e-6), name
            assert abs(float(p.detach().std()) / (a / math.sqrt(3)) - 1) < 0.05, name
        else:
            assert torch.equal(p, torch.full_like(p, 1.0 if name.endswith("norm.weight") else 0.0)), name


def test_only_what_writes_into_the_residual_stream_is_scaled():
    """The same draws as xavier's, bit for bit, but for W_O and W_2 of every sub-layer."""
    plain, scaled = (
        parts(Transformer(Model(**(SIZES | {"init": init})), V, seed=3)) for init in ("xavier", "xavier_residual")
    )
    writers = [name for name in plain if name.endswith(("W_O.weight", "W_2.weight"))]
    assert len(writers) == 5 * SIZES["N"]
    for name, p in plain.items():
        if name in writers:
            factor = (2 if name.startswith("encoder") else 3) * SIZES["N"]
            assert torch.allclose(scaled[name] * math.sqrt(factor), p, rtol=1e-6, atol=0), name
        else:
            assert torch.equal(scaled[name], p), name


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


@pytest.mark.parametrize("positions", sorted(SCHEMES))
@pytest.mark.parametrize("norm", ["post", pytest.param("pre", marks=pytest.mark.long)])
def test_whole_model_with_loss_and_dropout(positions, norm):
    config = Model(
        N=1, d_model=4, d_ff=5, h=2, d_k=2, d_v=3, P_drop=0.3, positions=positions, max_positions=7, norm=norm,
        norm_eps=1e-3, attention_bias=True, target_spaces=2,
    )  # fmt: skip
    model = Transformer(config, 7).double()
    source, target = torch.tensor([[4, 5, 6, 3], [5, 3, 0, 0]]), torch.tensor([[2, 6, 4], [2, 5, 5]])
    wanted = torch.tensor([6, 4, 3, 5, 5, 3])
    keep = torch.rand(8, 2, 4, 4, dtype=torch.float64).gt(0.3) / 0.7
    masks = list(zip(model.dropouts(), [*keep[:3], *keep[:4, :, :3]], strict=True))
    names = [name for name, _ in model.named_parameters()]

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self):
            with masks_set(masks):
                hidden = self.model.hidden(source, target, (source != 0)[:, None, None, :])
            return smoothed_nll(hidden.flatten(0, 1), self.model.embedding_WD, wanted, 0.1, "vocabulary")[0]

    loss = Loss()

    def run(*weights):
        return functional_call(loss, {f"model.{n}": w for n, w in zip(names, weights, strict=True)}, ())

    weights = tuple((p + 0.2 * torch.randn_like(p)).detach().requires_grad_() for p in model.parameters())
    assert gradcheck(run, weights, fast_mode=True)


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
    module, x = (
        make_feed_forward(Model(feed_forward=name, d_model=6, d_ff=10)).double(),
        torch.randn(2, 3, 6, dtype=torch.float64),
    )
    gated = name in ("swiglu", "geglu")
    W, b = module.W_1.weight, module.W_1.bias
    if gated:
        width = gated_width(6, 10)
        inner = FORMULAS[name](F.linear(x, W[:width], b[:width])) * F.linear(x, W[width:], b[width:])
    else:
        inner = FORMULAS[name](F.linear(x, W, b))
    torch.testing.assert_close(module(x), F.linear(inner, module.W_2.weight, module.W_2.bias), atol=1e-12, rtol=0)
    assert product_weights(module) == (3 * 6 * gated_width(6, 10) if gated else 2 * 6 * 10)
