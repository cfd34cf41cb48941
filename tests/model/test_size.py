"""Parameters and operations, counted."""

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lightning_tfm.config import Experiment, Model
from lightning_tfm.errors import UserError
from lightning_tfm.model import size
from lightning_tfm.model.attention_types import Gated
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.model.one_stack import make_model
from lightning_tfm.model.transformer import SequenceModel, Transformer
from lightning_tfm.registry import ATTENTIONS, FEED_FORWARDS, LAYERS, SCHEMES, gated_width
from lightning_tfm.study.rows import all_rows, apply
from lightning_tfm.yaml_files import read_yaml

FIRST_CODE = read_yaml("experiments/first_code.yaml").values


def rounded_millions(model: Model, V: int) -> int:
    return math.floor(size.count_parameters(model, V)["total"] / 1e6 + 0.5)


def test_ten_of_the_eleven_printed_counts():
    """facts: 40,960 pieces with the first code's biases; 'big' needs another vocabulary than the others."""
    base = Experiment(model=Model(**FIRST_CODE["model"]))
    V = FIRST_CODE["data"]["vocab_size"]
    printed = {r.name: r for r in all_rows().values() if r.paper.params is not None}
    assert len(printed) == 11
    missed = {n for n, r in printed.items() if rounded_millions(apply(base, r).model, V) != r.paper.params}
    assert missed == {"big"}
    assert round(size.count_parameters(apply(base, printed["big"]).model, V)["total"] / 1e6, 2) == 218.33


@pytest.mark.parametrize(("row", "body"), [("base", 44_101_632), ("big", 176_283_648)])
def test_bodies_by_the_papers_formulas(row, body):
    parts = size.count_parameters(apply(Experiment(), all_rows()[row]).model, 37000)
    assert parts["encoder"] + parts["decoder"] == body
    assert sum(v for k, v in parts.items() if k != "total") == parts["total"]


@pytest.mark.parametrize(
    ("change", "more"),
    [
        ({"attention_bias": True}, 18 * (2 * 3 * 5 + 3 * 7 + 11)),
        ({"target_spaces": 4}, 4 * 11),
        ({"norm": "pre"}, 2 * 2 * 11),
        ({"positions": "learned"}, 2 * 512 * 11),
        ({"positions": "shaw"}, 2 * 6 * 33 * 5),
        ({"positions": "rotary"}, 0),
        ({"positions": "alibi"}, 0),
        ({"positions": "none"}, 0),
        ({"feed_forward": "relu2"}, 0),
        ({"norm_kind": "rms"}, -30 * 11),
        ({"bias": False}, -12 * (13 + 11) - 30 * 11),
        ({"bias": False, "norm_kind": "rms"}, -12 * (13 + 11) - 30 * 11),
        ({"kv_heads": 1}, -18 * 2 * 11 * (5 + 7)),
        ({"kv_heads": 1, "attention_bias": True}, 18 * (2 * 3 * 5 + 3 * 7 + 11) - 18 * 2 * 12 * (5 + 7)),
        ({"kv_heads": 3}, 0),
        ({"qk_norm": True}, 18 * 2 * 5),
        ({"tie": "decoder"}, 17 * 11),
        ({"tie": "none"}, 2 * 17 * 11),
        ({"norm": "sandwich"}, (30 + 2) * 2 * 11),
        ({"feed_forward": "swiglu"}, 12 * (3 * 11 * 9 + 2 * 9 + 11 - (2 * 11 * 13 + 13 + 11))),
    ],
)
def test_each_option_adds_what_it_says(change, more):
    sizes = {"d_model": 11, "d_ff": 13, "h": 3, "d_k": 5, "d_v": 7}
    plain = size.count_parameters(Model(**sizes), 17)["total"]
    assert size.count_parameters(Model(**sizes, **change), 17)["total"] == plain + more


@pytest.mark.parametrize("field", ["positions", "layer", "feed_forward", "norm_kind"])
def test_a_class_of_the_users_own_is_not_guessed(field):
    with pytest.raises(UserError, match=r"mine\.Mine"):
        size.count_parameters(Model(**{field: "mine.Mine"}), 100)


@pytest.mark.parametrize("d_model", [1, 11, 64, 512])
@pytest.mark.parametrize("d_ff", [1, 13, 256, 2048])
def test_a_gated_width_has_the_nearest_number_of_parameters(d_model, d_ff):
    def apart(width):
        return abs((2 * d_model + 1) * d_ff - (3 * d_model + 2) * width)

    found = gated_width(d_model, d_ff)
    assert found == min(range(1, d_ff + 2), key=apart)
    if d_ff > 13:
        assert apart(found) / ((2 * d_model + 1) * d_ff) < 0.003


OPTIONS = [
    {},
    {"attention_bias": True, "norm": "pre", "target_spaces": 3},
    {"feed_forward": "geglu"},
    {"norm": "sandwich", "norm_kind": "rms"},
    {"norm": "pre", "feed_forward": "swiglu", "bias": False},
    {"kv_heads": 1, "attention_bias": True, "qk_norm": True, "tie": "none"},
]
TYPES: list[dict[str, Any]] = [{"layer": name} for name in LAYERS if name != "attention"]
TYPES += [{"layer": name, "layer_width": "parameters"} for name, part in LAYERS.items() if "layer_width" in part.reads]
TYPES += [{"scores": name} for name in ("unscaled", "additive", "cosine")]
TYPES += [{"layer": "convolution", "kernel": 6, "bias": False}, {"layer": "gru", "bias": False}]


@pytest.mark.parametrize(
    "change",
    [{"positions": positions} | options for positions in SCHEMES for options in OPTIONS]
    + [{"attention_bias": True} | change for change in TYPES],
    ids=str,
)
def test_the_built_model_has_as_many(change):
    from lightning_tfm.model.transformer import Transformer

    model = Model(N=2, d_model=10, d_ff=14, h=3, d_k=4, d_v=6, max_positions=9, **change)
    built = sum(p.numel() for p in Transformer(model, 23).parameters())
    assert built == size.count_parameters(model, 23)["total"]


B, V = 3, 31


class Gates(Gated):
    """A user-defined attention with linear maps of its own, undeclared."""

    def __init__(self, sizes):
        super().__init__(sizes)
        self.W_first = torch.nn.Linear(sizes.d_model, 7)
        self.W_second = torch.nn.Linear(7, sizes.d_v)

    def finish(self, mix_BHTV, x_BTD):
        return super().finish(mix_BHTV, x_BTD) * self.W_second(self.W_first(x_BTD))[:, None]


class Declared(Gates):
    """Parameters that are no linear map: declared."""

    def __init__(self, sizes):
        super().__init__(sizes)
        self.matrix_DV = torch.nn.Parameter(torch.empty(sizes.d_model, sizes.d_v))

    @staticmethod
    def flops_per_query(m):
        return 2 * (m.d_model * m.h * m.d_v + 7 * (m.d_model + m.d_v) + m.d_model * m.d_v)

    def finish(self, mix_BHTV, x_BTD):
        return super().finish(mix_BHTV, x_BTD) + (x_BTD @ self.matrix_DV)[:, None]


SIZES = {"N": 2, "d_model": 14, "d_ff": 23, "h": 3, "d_k": 4, "d_v": 11, "P_drop": 0.0, "neighbourhood": 9, "clip": 3}
CHANGES = [{}, {"N": 3}, {"d_ff": 29}, {"h": 1}, {"d_k": 17}, {"d_v": 19}, {"norm": "pre"}]
CHANGES += [{"kv_heads": 1, "tie": "none"}, {"P_attention": 0.1}]
CHANGES += [{"scores": name} for name in ("unscaled", "additive", "cosine")]
CHANGES += [{"feed_forward": name} for name in FEED_FORWARDS]
CHANGES += [{"positions": name} for name in SCHEMES] + [{"layer": name} for name in LAYERS]
CHANGES += [{"attention": name} for name in ATTENTIONS] + [{"attention": "gated", "attention_where": "cross"}]
CHANGES += [{"layer": "restricted", "positions": "rotary", "neighbourhood": 10}]
CHANGES += [{"layer": "convolution", "kernel": 6, "bias": False}, {"layer": "gru", "bias": False}]
CHANGES += [{"stack": "prefix"}, {"stack": "causal"}, {"stack": "prefix", "tie": "none", "kv_heads": 1, "norm": "pre"}]
CHANGES += [{"stack": "prefix", "positions": name} for name in ("shaw_values", "fire", "rotary")]
CHANGES += [{"stack": "causal", "attention": name} for name in ("talking", "gated")]
CHANGES += [{"stack": "causal", "layer": name} for name in LAYERS if name != "attention"]
CHANGES += [
    {"layer": name, "layer_width": "parameters"} for name, part in LAYERS.items() if "layer_width" in part.reads
]


def counted_by_torch(model: SequenceModel, S: int, T: int) -> int:
    """Two things torch sees otherwise: the first step of a recurrent layer multiplies with a state of zeros, for which
    it takes no gradient; and the counter takes the weights' gradient of a depthwise convolution for a full one's."""
    source, target = torch.randint(4, V, (B, S)), torch.randint(4, V, (B, T))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        F.cross_entropy(model(source, target).flatten(0, 1), target.flatten()).backward()
    found = counter.get_total_flops()
    for layers, n in ((model.encoder, S), (model.decoder, S + T if model.config.one_stack else T)):
        for module in (module for layer in layers for module in layer.self_attention.modules()):
            if isinstance(module, torch.nn.RNNBase):
                found += 2 * B * module.weight_hh_l0.numel()
            elif isinstance(module, torch.nn.Conv1d) and module.groups > 1:
                found -= 2 * B * n * module.weight.numel() * (module.groups - 1)
    return found


@pytest.mark.parametrize("change", [one for one in CHANGES if one.get("stack") == "causal"], ids=str)
def test_torch_counts_as_many_without_a_source(change):
    """Whose end token alone is there."""
    test_torch_counts_as_many(change, 1, 40)


@pytest.mark.parametrize(("S", "T"), [(23, 17), pytest.param(29, 40, marks=pytest.mark.long)])
@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_torch_counts_as_many(change, S, T):
    """In texts that are no whole number of a restricted layer's blocks, too, and in one that it compares as a whole.

    None has fewer than 16 keys, up to which a CPU fills them (attention.VECTOR).
    """
    config = Model(**(SIZES | change))
    model = make_model(config, V).double()
    expected = counted_by_torch(model, S, T)
    pairs = AttentionPairs.of(config, torch.full((B,), S).numpy(), torch.full((B,), T).numpy())
    assert training_flops(config, V, B * S, B * T, pairs) == expected
    assert training_flops(config, V, B * S, B * T, pairs, model.weights()) == expected


@pytest.mark.parametrize("where", ["both", "self", "cross"])
@pytest.mark.parametrize("name", ["Gates", "Declared"])
def test_linear_maps_of_a_users_attention_are_counted_in_the_built_model(name, where):
    config = Model(**SIZES, attention=f"{__name__}.{name}", attention_where=where)
    model = Transformer(config, V).double()
    pairs = AttentionPairs.of(config, torch.full((B,), 23).numpy(), torch.full((B,), 17).numpy())
    assert training_flops(config, V, B * 23, B * 17, pairs, model.weights()) == counted_by_torch(model, 23, 17)


def test_a_formula_that_does_not_take_the_sizes_is_refused_in_a_line(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_count.py").write_text(
        "from lightning_tfm.model.feed_forward import FeedForward\n\n\nclass Mine(FeedForward):\n"
        "    @staticmethod\n    def parameter_count():\n        return 3\n"
    )
    name = "own_count.Mine"
    FEED_FORWARDS.find(name, "lightning_tfm.model.feed_forward")
    with pytest.raises(UserError, match=rf"model\.feed_forward={name}: its parameter_count: .*takes 0 "):
        FEED_FORWARDS.count(name, Model())
