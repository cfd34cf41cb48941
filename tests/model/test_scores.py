"""How queries and keys are compared: each kind by its formula, and in the suite."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lightning_tfm.config import Experiment, Model
from lightning_tfm.config_validation import check
from lightning_tfm.errors import UserError
from lightning_tfm.model.attention import CrossAttention, SelfAttention
from lightning_tfm.registry import attention_parameters
from lightning_tfm.testing import LayerSuite, SchemeSuite

KINDS = ("unscaled", "additive", "cosine")
SIZES = Model(N=2, d_model=12, d_ff=9, h=6, kv_heads=2, d_k=4, d_v=3)


class TestCosineWithShawsValues(SchemeSuite):
    """Padding, neighbours, decoding piece by piece, precisions."""

    scheme, sizes = "shaw_values", replace(SchemeSuite.sizes, scores="cosine")


class TestAdditiveRestricted(LayerSuite):
    layer, sizes = "restricted", replace(LayerSuite.sizes, scores="additive", neighbourhood=3)


@pytest.mark.long
class TestUnscaledRotary(SchemeSuite):
    scheme, sizes = "rotary", replace(SchemeSuite.sizes, scores="unscaled", qk_norm=True)


def drawn(cls, scores: str):
    torch.manual_seed(1)
    layer = cls(replace(SIZES, scores=scores), *([None] if cls is SelfAttention else [])).double()
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=0.7)
    return layer.requires_grad_(False)


@pytest.mark.parametrize("scores", KINDS)
def test_scores_are_their_formula(scores):
    """Head by head and pair by pair, causal and with padding."""
    layer, x = drawn(SelfAttention, scores), torch.randn(2, 5, 12, dtype=torch.float64)
    Q, K, V = layer.W_QKV.weight.split([6 * 4, 2 * 4, 2 * 3])
    q, k, v = (x @ M.T for M in (Q, K, V))
    result = torch.zeros(2, 5, 6, 3, dtype=torch.float64)
    for b in range(2):
        for head in range(6):
            group = head // 3
            for t in range(5):
                one = q[b, t, 4 * head : 4 * head + 4]
                keys = k[b, : t + 1, 4 * group : 4 * group + 4]
                if scores == "unscaled":
                    z = keys @ one
                elif scores == "additive":
                    z = torch.tanh(keys + one) @ layer.additive.u_HK[head]
                else:
                    z = keys @ one / keys.norm(dim=1) / one.norm() * layer.q_norm.gain_H[head] * 2
                result[b, t, head] = z.softmax(0) @ v[b, : t + 1, 3 * group : 3 * group + 3]
    torch.testing.assert_close(layer(x, None, True), layer.W_O(result.flatten(2)), atol=1e-12, rtol=0)


@pytest.mark.parametrize("scores", KINDS)
def test_attention_over_the_memory_compares_in_the_same_way(scores):
    """Of a memory that is the text itself it is the self-attention with the same matrices."""
    ours, own = drawn(CrossAttention, scores), drawn(SelfAttention, scores)
    state = own.state_dict()
    Q, KV = state.pop("W_QKV.weight").split([24, 14])
    ours.load_state_dict(state | {"W_Q.weight": Q, "W_KV.weight": KV})
    x, allowed = torch.randn(2, 5, 12, dtype=torch.float64), torch.ones(2, 1, 1, 5, dtype=torch.bool)
    allowed[1, ..., 3:] = False
    torch.testing.assert_close(ours(x, *ours.keys_values(x), allowed), own(x, allowed, False), atol=1e-12, rtol=0)


def test_random_scores_have_variance_one_but_for_unscaled_ones():
    """Footnote 4 of the paper, and why the cosine is multiplied with sqrt(d_k)."""
    spread = {}
    for scores in ("scaled", "unscaled", "cosine"):
        layer = SelfAttention(Model(d_model=256, h=4, d_k=64, d_v=64, scores=scores), None)
        torch.manual_seed(2)
        torch.nn.init.normal_(layer.W_QKV.weight, std=1 / 16)
        q, k, _ = layer.heads(torch.randn(1, 200, 256), 0)
        spread[scores] = float((q @ k.transpose(2, 3) / 8).detach().var())
    assert spread == pytest.approx({"scaled": 1, "unscaled": 64, "cosine": 1}, rel=0.1)


@pytest.mark.parametrize("scores", KINDS)
def test_parameters_and_operations(scores):
    layer = SelfAttention(replace(SIZES, scores=scores), None)
    assert sum(p.numel() for p in layer.parameters()) == attention_parameters(replace(SIZES, scores=scores))
    counts = {}
    for kind in ("scaled", scores):
        with FlopCounterMode(display=False) as counter:
            SelfAttention(replace(SIZES, scores=kind), None)(torch.randn(1, 99, 12), None, False)
        counts[kind] = counter.get_total_flops()
    assert counts["scaled"] == counts[scores]


def test_norms_twice_are_refused():
    with pytest.raises(UserError, match=r"model\.scores=cosine norms queries and keys already"):
        check(Experiment(model=Model(scores="cosine", qk_norm=True)))
