"""The formula of FLOPs against torch's own count of matrix products; no position and no key is padded."""

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lightning_tfm.config import Model
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.model.transformer import Transformer

B, S, T, V = 3, 19, 17, 31
MODERN = [{"feed_forward": "swiglu"}, {"kv_heads": 1, "tie": "none"}]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"N": 3},
        {"d_ff": 29},
        {"h": 1},
        {"d_k": 17},
        {"d_v": 19},
        {"norm": "pre"},
        {"feed_forward": "swiglu"},
        {"kv_heads": 1, "tie": "none"},
    ],
    ids=str,
)
def test_torch_counts_as_many(change):
    config = Model(**({"N": 2, "d_model": 14, "d_ff": 23, "h": 3, "d_k": 4, "d_v": 11, "P_drop": 0.0} | change))
    model = Transformer(config, V)
    source, target = torch.randint(4, V, (B, S)), torch.randint(4, V, (B, T))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        F.cross_entropy(model(source, target).flatten(0, 1), target.flatten()).backward()
    pairs = AttentionPairs(source=B * S * S, target=B * T * T, cross=B * S * T)
    assert training_flops(config, V, B * S, B * T, pairs) == counter.get_total_flops()
    assert training_flops(config, V, B * S, B * T, pairs, model.weights()) == counter.get_total_flops()
