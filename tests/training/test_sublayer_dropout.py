"""Dropout of attention weights and within feed-forwards: keyed by sentence, each element where it should be."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lightning_tfm.config import Experiment, Model
from lightning_tfm.config_validation import check
from lightning_tfm.data.batch import Batch, make_batch
from lightning_tfm.errors import UserError
from lightning_tfm.model.attention import SelfAttention
from lightning_tfm.model.dropout import masks_set
from lightning_tfm.model.feed_forward import make_feed_forward
from lightning_tfm.model.one_stack import make_model
from lightning_tfm.training.masks import SentenceMasks

SIZES = {"N": 2, "d_model": 12, "d_ff": 11, "h": 3, "d_k": 4, "d_v": 5, "P_attention": 0.3, "P_ff": 0.2}
LENGTHS = (3, 9, 1, 6)


def batch(index: list[int]) -> Batch:
    draw = np.random.default_rng(4)
    source, target = ([draw.integers(4, 31, n + more).astype(np.int32) for n in LENGTHS] for more in (0, 2))
    return make_batch([source[i] for i in index], [target[i] for i in index], np.array(index))


def masks(index: list[int], step: int = 5, seed: int = 3, **change) -> dict[str, list[torch.Tensor]]:
    """By place, of each layer."""
    model = make_model(Model(**(SIZES | change)), 31).double()
    found = iter(SentenceMasks(model.config, seed).within(step, batch(index), model))
    places = ("encoder", "decoder", "memory", "encoder_ff", "decoder_ff")
    return {place: [next(found)[1] for _ in range(model.config.N)] for place in places}


def test_a_sentence_has_the_same_masks_in_any_company():
    together, alone = masks([0, 1, 2, 3]), masks([3, 0])
    for i in range(2):
        for row, other, S, T in ((3, 0, 7, 9), (0, 1, 4, 6)):  # pieces with the end token
            spans = {"encoder": (S, S), "decoder": (T, T), "memory": (T, S)}
            for place, (queries, keys) in spans.items():
                ours, theirs = together[place][i][row], alone[place][i][other]
                assert torch.equal(ours[:, :queries, :keys], theirs[:, :queries, :keys]), place
            assert torch.equal(together["encoder_ff"][i][row, :S], alone["encoder_ff"][i][other, :S])
            assert torch.equal(together["decoder_ff"][i][row, :T], alone["decoder_ff"][i][other, :T])


def test_every_mask_is_a_draw_of_its_own_at_its_own_share():
    drawn = {place: torch.stack(layers) for place, layers in masks([1], N=40, h=8, d_ff=50).items()}
    for place, keep in drawn.items():
        P = 0.2 if place.endswith("_ff") else 0.3
        assert float((keep == 0).double().mean()) == pytest.approx(P, abs=0.02)
        assert float(keep.max()) == pytest.approx(1 / (1 - P), abs=1e-4)
    starts = {tuple(keep.flatten()[:40].gt(0).tolist()) for keep in drawn.values()}
    starts |= {
        tuple(masks([1], **change)["encoder"][0].flatten()[:40].gt(0).tolist()) for change in ({"step": 6}, {"seed": 4})
    }
    assert len(starts) == 7


def test_masks_between_sub_layers_stay_as_they_are():
    """Under counter words of their own."""
    model, one = make_model(Model(**SIZES), 31), batch([0, 1])
    formula = SentenceMasks(model.config, 3)
    every = formula.given(5, one, model)
    between = [keep for side in formula.between(5, one, torch.empty(0)) for keep in side]
    assert all(torch.equal(keep, wanted) for (_, keep), wanted in zip(every, between, strict=False))
    assert [dropout for dropout, _ in every[: len(between)]] == model.dropouts()
    assert every[-3][1].shape == (2, 10, 11), "of the second feed-forward of the encoder"


def test_attention_weights_are_dropped_after_the_softmax():
    layer = SelfAttention(Model(d_model=12, h=3, d_k=4, d_v=5, P_attention=0.3), None).double().requires_grad_(False)
    x, keep = torch.randn(2, 6, 12, dtype=torch.float64), masks([0, 3])["encoder"][0][:, :, :6, :6]
    q, k, v = layer.heads(x, 0)
    weights = (q @ k.transpose(2, 3) / 2).masked_fill(~torch.ones(6, 6).tril().bool(), float("-inf")).softmax(-1)
    expected = layer.W_O((weights * keep @ v).transpose(1, 2).flatten(2))
    with masks_set([(layer.dropout, keep)]):
        torch.testing.assert_close(layer(x, None, True), expected, atol=1e-12, rtol=0)
    assert torch.equal(layer.eval()(x, None, True), layer(x, None, True)), "nothing is dropped in evaluation"


@pytest.mark.parametrize("name", ["relu", "swiglu"])
def test_feed_forwards_are_dropped_before_the_second_matrix(name):
    module, x = make_feed_forward(name, 12, 30, P_ff=0.5).double(), torch.randn(2, 3, 12, dtype=torch.float64)
    width = module.W_2.in_features
    W_1 = module.W_1(x)
    inner = F.relu(W_1) if name == "relu" else F.silu(W_1[..., :width]) * W_1[..., width:]
    keep = torch.randint(0, 2, (2, 3, width)).double() * 2
    with masks_set([(module.dropout, keep)]):
        torch.testing.assert_close(module(x), module.W_2(inner * keep))
    torch.manual_seed(1)
    assert not torch.equal(module(x), module(x)) and torch.equal(module.eval()(x), module(x))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"P_attention": 1.0}, r"model\.P_attention=1\.0: must be in"),
        ({"P_attention": 0.1, "layer": "restricted"}, "layer=restricted needs it at 0"),
        ({"P_ff": 0.1, "feed_forward": "mine.Mine"}, "acts in feed-forwards that ship: mine.Mine"),
    ],
)
def test_what_cannot_be_dropped_is_refused(change, words):
    with pytest.raises(UserError, match=words):
        check(Experiment(model=Model(**change)))
