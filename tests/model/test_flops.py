"""The formula of FLOPs against torch's own count of matrix products; no position and no key is padded."""

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lightning_tfm.config import Model
from lightning_tfm.model.attention_types import Gated
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.model.one_stack import make_model
from lightning_tfm.model.transformer import SequenceModel, Transformer
from lightning_tfm.registry import ATTENTIONS, FEED_FORWARDS, LAYERS, SCHEMES

B, V = 3, 31


class Gates(Gated):
    """A user-defined attention with linear maps of its own, undeclared."""

    def __init__(self, sizes):
        super().__init__(sizes)
        self.W_first = torch.nn.Linear(sizes.d_model, 7)
        self.W_second = torch.nn.Linear(7, sizes.d_v)

    def finish(self, found_BHTV, x_BTD):
        return super().finish(found_BHTV, x_BTD) * self.W_second(self.W_first(x_BTD))[:, None]


class Declared(Gates):
    """Parameters that are no linear map: declared."""

    def __init__(self, sizes):
        super().__init__(sizes)
        self.matrix_DV = torch.nn.Parameter(torch.empty(sizes.d_model, sizes.d_v))

    @staticmethod
    def flops_per_query(m):
        return 2 * (m.d_model * m.h * m.d_v + 7 * (m.d_model + m.d_v) + m.d_model * m.d_v)

    def finish(self, found_BHTV, x_BTD):
        return super().finish(found_BHTV, x_BTD) + (x_BTD @ self.matrix_DV)[:, None]


SIZES = {"N": 2, "d_model": 14, "d_ff": 23, "h": 3, "d_k": 4, "d_v": 11, "P_drop": 0.0, "neighbourhood": 9, "clip": 3}
CHANGES = [{}, {"N": 3}, {"d_ff": 29}, {"h": 1}, {"d_k": 17}, {"d_v": 19}, {"norm": "pre"}]
CHANGES += [{"kv_heads": 1, "tie": "none"}, {"scores": "additive"}, {"P_attention": 0.1}]
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


@pytest.mark.parametrize(("S", "T"), [(23, 17), (29, 40)])
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
