"""Attention: its types, scores and heads."""

from dataclasses import replace

import pytest
import torch

from lightning_tfm.config import Experiment, Model, training_identity
from lightning_tfm.model import attention
from lightning_tfm.model.attention import CrossAttention, SelfAttention, attend
from lightning_tfm.model.beam_search import CachedDecoder
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.testing import LayerSuite, SchemeSuite

B, H, K, V = 4, 3, 5, 6


def inputs(T: int, S: int, masked: bool, biased: bool):
    torch.manual_seed(T * 100 + S)
    shapes = [(B, H, T, K), (B, H, S, K), (B, H, S, V)] + [(H, T, S)] * biased
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    allowed = None
    if masked:
        allowed = (torch.arange(S) < torch.tensor([S, S - 1, 1 + S // 2, 1])[:, None])[:, None, None, :]
    return leaves, allowed


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("T", "S", "causal"), [(2, 2, True), (7, 9, False), (15, 15, True), (16, 16, True), (64, 64, True)]
)
def test_short_sentences_give_what_the_fused_kernel_gives(T, S, causal, masked, biased, monkeypatch):
    leaves, allowed = inputs(T, S, masked, biased)

    def run():
        q, k, v, *bias = leaves
        found = attend(q, k, v, allowed, causal, bias[0] if bias else None)
        return found, torch.autograd.grad(found.tanh().sum(), leaves)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", None)  # would fail if it were called
    found, gradients = run()
    monkeypatch.undo()
    monkeypatch.setattr(attention, "SHORT", 0)
    expected, wanted = run()
    torch.testing.assert_close(found, expected, atol=1e-14, rtol=1e-12)
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-14, rtol=1e-12)


def test_a_mean_over_the_memory_is_attention_to_its_mean_alone():
    c = Model(N=1, d_model=12, h=3, d_k=4, d_v=4, attention="mean", attention_where="cross")
    layer, one = CrossAttention(c).double(), CrossAttention(replace(c, attention="softmax")).double()
    one.load_state_dict(layer.state_dict())
    x_BTD, memory_BSD = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    lengths = torch.tensor([7, 4])
    allowed = (torch.arange(7) < lengths[:, None])[:, None, None]
    vector_B1D = ((memory_BSD * allowed[:, 0, 0, :, None]).sum(1) / lengths[:, None])[:, None]
    found = layer(x_BTD, *layer.keys_values(memory_BSD), allowed)
    torch.testing.assert_close(found, one(x_BTD, *one.keys_values(vector_B1D), None), atol=1e-14, rtol=1e-12)


@pytest.mark.parametrize(("T", "S", "dtype"), [(1, 9, torch.float32), (9, 65, torch.float32), (9, 9, torch.bfloat16)])
def test_a_decoder_s_step_long_sentences_and_bfloat16_take_the_fused_kernel(T, S, dtype, monkeypatch):
    asked = []
    fused = attention.scaled_dot_product_attention
    monkeypatch.setattr(
        attention, "scaled_dot_product_attention", lambda *args, **more: asked.append(1) or fused(*args, **more)
    )
    (q, k, v), _ = inputs(T, S, False, False)
    attend(q.to(dtype), k.to(dtype), v.to(dtype), None, False, None)
    assert asked


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


HEADS = Model(N=2, d_model=12, d_ff=9, h=6, d_k=4, d_v=3, norm="pre", attention_bias=True)
SOURCE, TARGET = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0]]), torch.tensor([[2, 5, 6], [2, 7, 8]])


class TestSharedHeads(SchemeSuite):
    """Padding, neighbours, decoding piece by piece: all that a scheme has to hold, with all three."""

    scheme, sizes = "rotary", replace(SchemeSuite.sizes, h=6, kv_heads=2, qk_norm=True, tie="none")

    def parameters(self, model: Model) -> int:
        return 0


@pytest.mark.parametrize("G", [1, 2, 3])
@torch.no_grad()
def test_shared_heads_are_equal_heads(G):
    """The same as a model of full heads whose keys and values repeat."""
    ours, full = Transformer(replace(HEADS, kv_heads=G), 11, 1).double().eval(), Transformer(HEADS, 11, 1).double()
    widths = {"Q": (6, 4), "K": (G, 4), "V": (G, 3)}
    for name, parameter in full.named_parameters():
        given = ours.get_parameter(name)
        if ".W_QKV." in name or ".W_KV." in name:
            kinds = ("Q", "K", "V") if ".W_QKV." in name else ("K", "V")
            parts = given.split([heads * width for heads, width in (widths[kind] for kind in kinds)])
            repeated = [
                part.unflatten(0, widths[kind]).repeat_interleave(6 // widths[kind][0], 0).flatten(0, 1)
                for kind, part in zip(kinds, parts, strict=True)
            ]
            given = torch.cat(repeated)
        parameter.copy_(given)
    torch.testing.assert_close(ours(SOURCE, TARGET), full.eval()(SOURCE, TARGET), atol=1e-12, rtol=0)
    decoder = CachedDecoder(ours, SOURCE)
    decoder.step(TARGET[:, 0], 0)
    assert decoder.caches[0].k_BHTK.shape == (2, G, 1, 4) and decoder.memory[0][1].shape == (2, G, 4, 3)


def test_the_same_number_of_heads_is_the_paper_s():
    base = Experiment(model=HEADS)
    same = Experiment(model=replace(HEADS, kv_heads=6))
    assert training_identity(same, "t", {}) == training_identity(base, "t", {})


@torch.no_grad()
def test_queries_and_keys_have_norm_one_times_their_gain():
    layer = SelfAttention(replace(HEADS, qk_norm=True, norm_eps=1e-12), None).double()
    layer.q_norm.weight.uniform_(0.5, 2)
    q, k, v = layer.heads(torch.randn(2, 5, 12, dtype=torch.float64), 0)
    rms = (q / layer.q_norm.weight).square().mean(-1)
    torch.testing.assert_close(rms, torch.ones_like(rms), atol=1e-6, rtol=0)
    torch.testing.assert_close(k.square().mean(-1), torch.ones_like(rms), atol=1e-6, rtol=0)
    assert v.square().mean(-1).std() > 1e-3, "values are left as they are"


@pytest.mark.parametrize(("tie", "count"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_untied_matrices_each_have_their_place(tie, count):
    model = Transformer(replace(HEADS, tie=tie), 11, 1).double().eval()
    matrices = {name for name, p in model.named_parameters() if p.shape == (11, 12)}
    assert len(matrices) == count and {"embedding_WD"} <= matrices <= {"embedding_WD", "target_WD", "output_WD"}
    before = model(SOURCE, TARGET)
    with torch.no_grad():
        model.embedding_WD[[9, 10]] += 1.0  # pieces that stand in no text
    changed = (model(SOURCE, TARGET) != before).any(1).any(0)
    assert changed.tolist() == [False] * 9 + [tie == "all"] * 2
    with torch.no_grad():
        model.embedding_WD[6, :5] += 1.0  # not of all channels: a norm would not see it
    assert (model(SOURCE, TARGET) != before)[0, 0, 5], "the source's embedding acts"
