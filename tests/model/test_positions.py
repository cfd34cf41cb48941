"""Positions, types of layer, and the suites that users are given."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_tfm.config import Experiment, Model, training_identity
from lightning_tfm.model.attention import SelfAttention
from lightning_tfm.model.layer_types import LayerSizes, find_layer, make_layer
from lightning_tfm.model.positions import PositionSizes, Shaw, find_scheme, look_up, sinusoids, t5_bucket
from lightning_tfm.model.size import layer_parameters
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.registry import ATTENTIONS, FEED_FORWARDS, KINDS, LAYERS, NORMS, SCHEMES, inner_width
from lightning_tfm.testing import AttentionSuite, FeedForwardSuite, LayerSuite, NormSuite, SchemeSuite
from lightning_tfm.testing.model import ModelSuite


def order_matters(positions: str) -> float:
    """How far the encoder's output moves, rows put back, when its input is reversed."""
    config = replace(SchemeSuite.sizes, positions=positions)
    model = Transformer(config, 31).double().eval()
    source = torch.randint(4, 31, (2, 7), generator=torch.Generator().manual_seed(7))
    return float((model.encode(source, None) - model.encode(source.flip(1), None).flip(1)).abs().max().detach())


def test_a_reversal_is_seen_by_all_but_none_and_alibi():
    blind = {positions for positions in SCHEMES if order_matters(positions) < 1e-12}
    assert blind == {"none", "alibi", "kerple"}  # these two see distances, which a reversal keeps


def test_shaw_on_a_gpu_looks_up_by_a_product_and_neither_sorts_nor_adds_atomically():
    """The meta device stands for one: what is not a CPU takes the product."""

    class Names(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: set[str] = set()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.add(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    found = {}
    for device in ("cpu", "meta"):
        scheme = Shaw(PositionSizes(12, 2, 6, 9, "interleaved")).to(device)
        with Names() as names:
            scheme.bias(torch.zeros(3, 2, 5, 6, device=device, requires_grad=True), 5, 0).sum().backward()
        found[device] = {name for name in names.seen if "gather" in name or "scatter" in name or "index" in name}
    assert found == {"cpu": {"gather", "scatter_add", "scatter_add_"} & found["cpu"], "meta": set()}
    assert "gather" in found["cpu"]


def test_the_product_is_the_look_up_to_the_bit():
    scores = torch.randn(3, 2, 5, 7, requires_grad=True)
    index = torch.randint(7, (5, 9))
    found, expected = look_up(scores, index), scores.gather(3, index.expand(3, 2, 5, 9))
    assert torch.equal(found, expected)
    direction = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad((x * direction).sum(), scores)[0] for x in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


# --- by formula ---

SIZES = PositionSizes(16, 3, 4, 64, "interleaved", clip=2, d_v=5)


def drawn(scheme: str, causal: bool = False) -> torch.nn.Module:
    module = find_scheme(scheme)(replace(SIZES, causal=causal)).double()
    torch.manual_seed(2)
    for p in module.parameters():
        torch.nn.init.normal_(p)
    return module.requires_grad_(False)


def test_buckets_are_those_of_t5():
    """Hand-written from the published code, distances key minus query: 8 exact ones to each side, 16 in a decoder."""
    found = [t5_bucket(d, False) for d in (0, -1, -7, -8, -11, -12, -15, -16, -127, -500, 1, 7, 8, 500)]
    assert found == [0, 1, 7, 8, 8, 9, 9, 10, 15, 15, 17, 23, 24, 31]
    found = [t5_bucket(d, True) for d in (3, 0, -1, -15, -16, -18, -19, -127, -128)]
    assert found == [0, 0, 1, 15, 16, 16, 17, 31, 31]


def test_t5_gives_every_bucket_its_number_in_all_layers():
    module, q = drawn("t5"), torch.zeros(1, 3, 4, 4, dtype=torch.float64)
    bias = module.bias(q, 40, 20)
    for t, s in ((20, 20), (23, 2), (21, 39)):
        assert torch.equal(bias[0, :, t - 20, s], module.table_RH[t5_bucket(s - t, False)])
    model = Transformer(replace(SchemeSuite.sizes, positions="t5"), 31)
    schemes = [layer.self_attention.scheme for layer in (*model.encoder, *model.decoder)]
    assert schemes[0] is schemes[1] is not schemes[2] is schemes[3]


def test_shaws_values_are_their_formula():
    module, x = drawn("shaw_values"), torch.rand(2, 3, 4, 6, dtype=torch.float64)
    found = module.values(x, 1)
    for t in range(4):
        vectors = torch.stack([module.table_RV[min(max(s - t - 1, -2), 2) + 2] for s in range(6)])
        torch.testing.assert_close(found[:, :, t], x[:, :, t] @ vectors, atol=1e-12, rtol=0)


def test_shaws_values_reach_the_result():
    """Attention to one key alone sums up its value and the vector of its distance."""
    config = replace(SchemeSuite.sizes, positions="shaw_values", clip=2)
    layer = SelfAttention(config, find_scheme("shaw_values")(replace(SIZES, d_k=config.d_k, d_v=config.d_v))).double()
    for p in layer.parameters():
        torch.nn.init.normal_(p)
    x, one = torch.randn(1, 3, config.d_model, dtype=torch.float64), torch.tensor([[[[False, False, True]]]])
    value = layer.heads(x, 0)[2][:, :, 2:] + layer.scheme.table_RV[torch.tensor([4, 3, 2])]
    torch.testing.assert_close(layer(x, one, False), layer.W_O(value.transpose(1, 2).flatten(2)))


def test_kerple_and_fire_are_their_formulas():
    module, q = drawn("kerple"), torch.zeros(1, 3, 2, 4, dtype=torch.float64)
    a, b = (torch.log(1 + torch.exp(x)) for x in (module.a_H, module.b_H))
    torch.testing.assert_close(module.bias(q, 9, 3)[0, :, 1, 8], -a * torch.log(1 + b * 4))
    module = drawn("fire", True)
    c, L = math.log1p(math.exp(module.c_1)), 16 * math.log1p(math.exp(module.L_1))
    for t, s in ((3, 1), (50, 7), (4, 9)):
        near = math.log1p(c * abs(t - s)) / math.log1p(c * max(t, L)) * (1 if t > s else -1)
        hidden = (module.W_in.weight[:, 0] * near + module.W_in.bias).clamp(min=0)
        torch.testing.assert_close(module.bias(q, 60, t)[0, :, 0, s], module.W_out.weight @ hidden + module.W_out.bias)


def test_learned_vectors_at_the_sinusoids_size():
    sizes = replace(SchemeSuite.sizes, d_model=64, max_positions=300)
    rms = {}
    for name in ("learned", "learned_scaled"):
        table = Transformer(replace(sizes, positions=name), 31).encoder_positions.table_TD
        rms[name] = float(table.detach().square().mean().sqrt())
    assert rms["learned"] == pytest.approx(0.125, rel=0.02) and rms["learned_scaled"] == pytest.approx(0.707, rel=0.02)
    assert float(sinusoids(300, 64, "interleaved").square().mean().sqrt()) == pytest.approx(0.707, rel=1e-3)


SUITES = {SCHEMES.field: SchemeSuite, FEED_FORWARDS.field: FeedForwardSuite}
SUITES |= {NORMS.field: NormSuite, LAYERS.field: LayerSuite, ATTENTIONS.field: AttentionSuite}
SLOW = (
    "relu gelu relu2 geglu layer attention gru separable dilated restricted learned_scaled kerple fire shaw t5 softmax "
    "sigmoid differential"
).split()
"""what differs little from another that is held to its suite each time"""
OF_SUITES: dict[str, dict[str, Any]] = {
    "gru": {"layer_width": "parameters"},
    "convolution": {"layer_width": "parameters", "kernel": 4},
    "restricted": {"neighbourhood": 3},
    "shaw_values": {"clip": 3},
    "mean": {"attention_where": "cross"},  # within one text it would see no order
}
OTHERS = [
    (SCHEMES, "sinusoidal", {"sinusoid_layout": "concatenated"}),
    (LAYERS, "restricted", {"neighbourhood": 4, "kv_heads": 1, "qk_norm": True}),
]


def suite_of(field: str, name: str, sizes: dict[str, Any]) -> type[ModelSuite]:
    suite = SUITES[field]
    named = next(key for key in suite.__annotations__ if key != "sizes")
    made: type[ModelSuite] = type("Shipped", (suite,), {named: name, "sizes": replace(suite.sizes, **sizes)})
    return made


def cases() -> list[Any]:
    found = [(field, name, OF_SUITES.get(name, {})) for field in SUITES for name in KINDS[field]]
    found += [(kind.field, name, sizes) for kind, name, sizes in OTHERS]
    params = []
    for field, name, sizes in found:
        marks = [pytest.mark.long] * (name in SLOW and sizes == OF_SUITES.get(name, {}))
        checks = [check for check in dir(SUITES[field]) if check.startswith("test_")]
        params += [pytest.param(field, name, sizes, check, marks=marks) for check in checks]
    return params


@pytest.mark.parametrize(("field", "name", "sizes", "check"), cases())
def test_what_ships_passes_its_suite(field: str, name: str, sizes: dict[str, Any], check: str) -> None:
    getattr(suite_of(field, name, sizes)(), check)()


@pytest.mark.parametrize("field", SUITES)
def test_a_part_that_ships_counts_its_parameters(field: str) -> None:
    model = Model()
    for name, part in KINDS[field].items():
        suite = suite_of(field, name, {})()
        assert suite.parameters(replace(model, **{field.partition(".")[2]: name})) is not None, part


D, K = 6, 3


def made(layer: str, causal: bool, **change) -> torch.nn.Module:
    """One layer in float64, its weights all at random."""
    c = Model(**({"d_model": D, "h": 2, "d_k": 3, "d_v": 3, "kernel": K, "layer": layer} | change))
    module = make_layer(c, None, causal, 1).double()
    torch.manual_seed(3)
    for p in module.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return module.requires_grad_(False)


def glued(y: torch.Tensor, module: torch.nn.Module) -> torch.Tensor:
    """Gate and W_O."""
    value, gate = y.chunk(2, -1)
    return value / (1 + (-gate).exp()) @ module.W_O.weight.T


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("layer", "k", "spread"), [("convolution", 3, 1), ("convolution", 4, 1), ("dilated", 3, 2)])
def test_a_convolution_is_its_formula(layer, k, spread, causal):
    """Position by position; the second layer of a dilated stack looks 2 apart."""
    module, x = made(layer, causal, kernel=k), torch.randn(2, 9, D, dtype=torch.float64)
    before = (k - 1) * spread if causal else k // 2 * spread
    y = torch.zeros(2, 9, 2 * D, dtype=torch.float64) + module.W.bias
    for t in range(9):
        for j in range(k):
            seen = t - before + j * spread
            if 0 <= seen < 9:
                y[:, t] += x[:, seen] @ module.W.weight[:, :, j].T
    torch.testing.assert_close(module(x, None, causal), glued(y, module), atol=1e-12, rtol=0)


@pytest.mark.parametrize("causal", [False, True])
def test_a_separable_convolution_is_one_whose_matrices_are_products(causal):
    module, x = made("separable", causal), torch.randn(2, 7, D, dtype=torch.float64)
    full = made("convolution", causal)
    full.W.weight = torch.nn.Parameter(module.pointwise.weight[:, :, None] * module.depthwise.weight[None, :, 0])
    full.W.bias = torch.nn.Parameter(module.pointwise(module.depthwise.bias))
    full.W_O.weight = module.W_O.weight
    torch.testing.assert_close(module(x, None, causal), full(x, None, causal), atol=1e-12, rtol=0)


@pytest.mark.parametrize("layer", ["lstm", "gru"])
def test_a_recurrent_encoder_is_torchs_bidirectional_one(layer):
    """With texts of unequal length packed, as torch has it."""
    module, x = made(layer, False), torch.randn(3, 5, D, dtype=torch.float64)
    lengths = torch.tensor([5, 2, 4])
    both = type(module.onward)(D, D // 2, bidirectional=True, batch_first=True).double()
    for name, p in both.named_parameters():
        ours = module.back if name.endswith("_reverse") else module.onward
        p.data = ours.get_parameter(name.removesuffix("_reverse")).data
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    y, _ = torch.nn.utils.rnn.pad_packed_sequence(both(packed)[0], batch_first=True)
    inside = torch.arange(5) < lengths[:, None]
    found = module(x, inside[:, None, None], False)
    torch.testing.assert_close(found[inside], (y @ module.W_O.weight.T)[inside], atol=1e-12, rtol=0)


@pytest.mark.parametrize("T", [4, 9, 10, 23])
@pytest.mark.parametrize("r", [1, 4, 5])
@pytest.mark.parametrize("causal", [False, True])
def test_restricted_attention_is_attention_under_a_mask(causal, r, T):
    module, x = made("restricted", causal, neighbourhood=r), torch.randn(2, T, D, dtype=torch.float64)
    full = made("attention", causal)
    full.load_state_dict(module.state_dict())
    offset = torch.arange(T) - torch.arange(T)[:, None]
    seen = (offset <= 0) & (offset > -r) if causal else (offset >= -(r // 2)) & (offset < r - r // 2)
    expected = full(x, seen[None, None], False)
    torch.testing.assert_close(module(x, None, causal), expected, atol=1e-12, rtol=0)
    assert int(seen.sum(1).max()) <= r


class Largest(TorchDispatchMode):
    """The largest tensor that an operator made."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor):
            self.numel = max(self.numel, found.numel())
        return found


def test_restricted_attention_holds_no_matrix_of_all_pairs():
    def largest(n: int) -> int:
        module = made("restricted", False, neighbourhood=5)
        with Largest() as seen:
            module(torch.randn(1, n, D, dtype=torch.float64), None, False)
        return seen.numel

    assert largest(400) < 4.1 * largest(100)


# --- sizes ---


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layer", ["lstm", "gru", "convolution", "separable", "dilated"])
@pytest.mark.parametrize("d_model", [8, 64, 512])
def test_a_width_by_parameters_is_the_nearest_to_attention(layer, causal, d_model):
    sizes = {"d_model": d_model, "h": 8, "d_k": d_model // 8, "d_v": d_model // 8}
    model, wanted = Model(**sizes, layer=layer, layer_width="parameters"), 4 * d_model**2
    width = inner_width(model, causal)
    found = layer_parameters(model, causal)
    step = 2 if layer in ("lstm", "gru") and not causal else 1
    for other in (width - step, width + step):
        if other >= step:
            sized = torch.nn.ModuleList([find_layer(layer)(LayerSizes(d_model, other, 3, 8, True, causal, 0))])
            assert abs(sum(p.numel() for p in sized.parameters()) - wanted) >= abs(found - wanted)
    if d_model >= 64:
        assert found == pytest.approx(wanted, rel=0.03)


# --- what enters a name, what is refused ---


def named(**change) -> dict:
    return training_identity(Experiment(model=Model(**change)), "t", {})


def test_fields_that_cannot_act_do_not_enter_an_identity():
    assert named(clip=4) == named() and named(positions="t5", clip=4) == named(positions="t5")
    assert named(positions="shaw", clip=16) == named(positions="shaw") != named(positions="shaw", clip=4)
    assert named(kernel=5, neighbourhood=3) == named()
    assert named(layer="lstm", kernel=5, neighbourhood=3) == named(layer="lstm")
    assert named(layer="restricted", kernel=5) == named(layer="restricted")
    assert named(layer="convolution", neighbourhood=5) == named(layer="convolution") != named()
    assert named(layer="convolution", kernel=5) != named(layer="convolution")
    assert named(layer="restricted", neighbourhood=5) != named(layer="restricted")
    assert named(layer="mine.Mine", kernel=5, neighbourhood=3)["model"]["neighbourhood"] == 3
    assert named(layer="gru", layer_width="parameters") != named(layer="gru")
