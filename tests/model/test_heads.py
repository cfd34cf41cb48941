"""Shared heads of keys and values, norms of queries and keys, embeddings apart: by formula, and in the suite."""

from dataclasses import replace

import pytest
import torch

from lightning_tfm.config import Experiment, Model, training_identity
from lightning_tfm.config_validation import check
from lightning_tfm.errors import UserError
from lightning_tfm.model.attention import SelfAttention
from lightning_tfm.model.beam_search import CachedDecoder
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.testing import SchemeSuite

SIZES = Model(N=2, d_model=12, d_ff=9, h=6, d_k=4, d_v=3, norm="pre", attention_bias=True)
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
    ours, full = Transformer(replace(SIZES, kv_heads=G), 11, 1).double().eval(), Transformer(SIZES, 11, 1).double()
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
    base = Experiment(model=SIZES)
    same = Experiment(model=replace(SIZES, kv_heads=6))
    assert training_identity(same, "t", {}) == training_identity(base, "t", {})
    for heads in (4, -1):
        with pytest.raises(UserError, match=rf"model\.kv_heads={heads}: must divide model\.h=6"):
            check(Experiment(model=replace(SIZES, kv_heads=heads)))


@torch.no_grad()
def test_queries_and_keys_have_norm_one_times_their_gain():
    layer = SelfAttention(replace(SIZES, qk_norm=True, norm_eps=1e-12), None).double()
    layer.q_norm.weight.uniform_(0.5, 2)
    q, k, v = layer.heads(torch.randn(2, 5, 12, dtype=torch.float64), 0)
    rms = (q / layer.q_norm.weight).square().mean(-1)
    torch.testing.assert_close(rms, torch.ones_like(rms), atol=1e-6, rtol=0)
    torch.testing.assert_close(k.square().mean(-1), torch.ones_like(rms), atol=1e-6, rtol=0)
    assert v.square().mean(-1).std() > 1e-3, "values are left as they are"


@pytest.mark.parametrize(("tie", "count"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_untied_matrices_each_have_their_place(tie, count):
    model = Transformer(replace(SIZES, tie=tie), 11, 1).double().eval()
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
