"""Dropout masks: drawn by step and sentence, in each sub-layer and type of layer."""

from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from lightning_tfm.config import Experiment, Hardware, Model, Training
from lightning_tfm.data.batch import Batch, Step, make_batch
from lightning_tfm.model.attention import SelfAttention
from lightning_tfm.model.dropout import masks_set
from lightning_tfm.model.feed_forward import make_feed_forward
from lightning_tfm.model.one_stack import make_model
from lightning_tfm.registry import LAYERS, SCHEMES
from lightning_tfm.runs.trainer import make_trainer
from lightning_tfm.training.masks import SOURCE, TARGET, SentenceMasks
from lightning_tfm.training.module import TransformerModule

LENGTHS = (3, 14, 1, 9, 6, 30)


def batch(index: list[int], lengths: tuple[int, ...] = LENGTHS) -> Batch:
    """Those sentences of the step, padded to the longest among them."""
    draw = np.random.default_rng(4)
    source, target = ([draw.integers(4, 31, n + more).astype(np.int32) for n in lengths] for more in (0, 2))
    return make_batch([source[i] for i in index], [target[i] for i in index], np.array(index))


MODEL = Model(N=3, d_model=62, P_drop=0.1)
"""62 is no multiple of the four words of a draw"""


def sizes(model: Model, side: int, lengths: np.ndarray) -> tuple[int, np.ndarray, int]:
    return 1 + (2 if side == SOURCE else 3) * model.N, lengths, model.d_model


def words(step=0, side=SOURCE, index=(0,), lengths=(9,), seed=1, model=MODEL) -> np.ndarray:
    return SentenceMasks(model, seed).words(step, side, np.array(index), *sizes(model, side, np.array(lengths)))


@pytest.mark.parametrize("P_drop", [0.05, 0.1, 0.2, 0.3, 0.5])
def test_share_of_dropped_elements_and_value_of_the_kept(P_drop):
    masks = SentenceMasks(Model(N=3, d_model=512, P_drop=P_drop), 1)
    dropped = total = 0
    for step in range(20):
        mask = masks.masks(
            masks.words(step, TARGET, np.arange(20), *sizes(masks.model, TARGET, np.full(20, 31))), torch.float32
        )
        dropped += int((mask == 0).sum())
        total += mask.numel()
    assert total > 6e7
    assert abs(dropped / total - P_drop) < 1e-4
    values = mask.unique().tolist()
    assert len(values) == 2 and values[0] == 0 and values[1] == pytest.approx(1 / (1 - P_drop), abs=2e-5)


def test_the_expectation_is_exact():
    """Of the 65,536 words each occurs once: the mean of the mask is 1 to rounding."""
    masks = SentenceMasks(MODEL, 1).masks(np.arange(65536, dtype=np.uint16), torch.float64)
    assert float(masks.mean()) == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_same_elements_in_every_precision(dtype):
    masks, drawn = SentenceMasks(MODEL, 1), words()
    assert torch.equal(masks.masks(drawn, dtype) == 0, masks.masks(drawn, torch.float64) == 0)


def test_words_are_uniform():
    drawn = np.concatenate([words(step, lengths=(97,)).ravel() for step in range(40)])
    for bits in (drawn >> 8, drawn & 255):
        assert stats.chisquare(np.bincount(bits, minlength=256)).pvalue > 1e-4


def independent(a: np.ndarray, b: np.ndarray) -> bool:
    """Chi-square on the 2 x 2 table of dropped and kept, and correlation of the words themselves."""
    a, b = a.ravel(), b.ravel()
    limit = round(65536 * 0.1)
    table = np.histogram2d(a < limit, b < limit, bins=2)[0]
    correlation = np.corrcoef(a.astype(float), b.astype(float))[0, 1]
    return stats.chi2_contingency(table).pvalue > 1e-4 and abs(correlation) < 4 / np.sqrt(a.size)


def test_fresh_in_every_step_sentence_side_and_seed():
    T = 211
    first = words(lengths=(T,))
    others = {
        "step": words(step=1, lengths=(T,)),
        "distant step": words(step=2**40, lengths=(T,)),
        "sentence": words(index=(1,), lengths=(T,)),
        "seed": words(seed=2, lengths=(T,)),
        "side": words(side=TARGET, lengths=(T,))[: first.shape[0]],
    }
    for name, other in others.items():
        assert (first == other).mean() < 1e-3, name
        assert independent(first, other), name


def test_fresh_in_every_sublayer_position_and_channel():
    drawn = np.concatenate([words(step, lengths=(61,)) for step in range(30)], 1)  # [streams, 30, T, D]
    streams = drawn.shape[0]
    for i in range(streams):
        for j in range(i):
            assert independent(drawn[i], drawn[j]), (i, j)
    assert independent(drawn[:, :, 1:], drawn[:, :, :-1])
    assert independent(drawn[..., 1:], drawn[..., :-1])
    for gap in (2, 4, 8):
        assert independent(drawn[..., gap:], drawn[..., :-gap])


def test_steps_and_sentences_do_not_overlap():
    """Steps and sentences are counters of one generator: no stream may run into the next, however long the sentence."""
    model = Model(N=20, d_model=1024, P_drop=0.1)
    near = [words(0, TARGET, (i,), (256,), model=model) for i in range(2)]
    near += [words(1, TARGET, (0,), (256,), model=model), words(0, SOURCE, (0,), (256,), model=model)]
    heads = [x.ravel()[:64].tobytes() for x in near]
    for i, whole in enumerate(near):
        data = whole.tobytes()
        assert all(head not in data for j, head in enumerate(heads) if j != i)


@pytest.mark.parametrize("side", [SOURCE, TARGET])
def test_neither_padding_nor_neighbours_matter(side):
    together = words(7, side, (4, 9, 2), (5, 13, 8))
    for row, (index, length) in enumerate([(4, 5), (9, 13), (2, 8)]):
        alone = words(7, side, (index,), (length,))
        assert np.array_equal(together[:, row, :length], alone[:, 0])
        assert not together[:, row, length:].any()


def test_numbers_are_the_same_everywhere():
    """Committed: another version of NumPy or another machine must draw these."""
    drawn = words(5, TARGET, (3,), (2,), model=Model(N=1, d_model=4))
    assert drawn.shape == (4, 1, 2, 4)
    assert drawn[:2, 0].tolist() == [
        [[61753, 6488, 28410, 40968], [2152, 12220, 7800, 22854]],
        [[39903, 24847, 42095, 61528], [39821, 37566, 577, 13291]],
    ]


DROPPING = {"N": 2, "d_model": 12, "d_ff": 11, "h": 3, "d_k": 4, "d_v": 5, "P_attention": 0.3, "P_ff": 0.2}
SHORT = (3, 9, 1, 6)


def masks(index: list[int], step: int = 5, seed: int = 3, **change) -> dict[str, list[torch.Tensor]]:
    """By place, of each layer."""
    model = make_model(Model(**(DROPPING | change)), 31).double()
    found = iter(SentenceMasks(model.config, seed).within(step, batch(index, SHORT), model))
    places = ("encoder", "decoder", "memory", "encoder_ff", "decoder_ff")
    return {place: [next(found)[1] for _ in range(model.config.N)] for place in places}


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
    model, one = make_model(Model(**DROPPING), 31), batch([0, 1], SHORT)
    formula = SentenceMasks(model.config, 3)
    every = formula.of_micro_batch(5, one, model)
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
    module, x = (
        make_feed_forward(Model(feed_forward=name, d_model=12, d_ff=30, P_ff=0.5)).double(),
        torch.randn(2, 3, 12, dtype=torch.float64),
    )
    width = module.W_2.in_features
    W_1 = module.W_1(x)
    inner = F.relu(W_1) if name == "relu" else F.silu(W_1[..., :width]) * W_1[..., width:]
    keep = torch.randint(0, 2, (2, 3, width)).double() * 2
    with masks_set([(module.dropout, keep)]):
        torch.testing.assert_close(module(x), module.W_2(inner * keep))
    torch.manual_seed(1)
    assert not torch.equal(module(x), module(x)) and torch.equal(module.eval()(x), module(x))


SIZES = {"N": 2, "d_model": 16, "d_ff": 11, "h": 2, "d_k": 6, "d_v": 5, "P_drop": 0.2, "neighbourhood": 3}


TYPES = [{"layer": name} for name in sorted(LAYERS)]
OTHERS = [{"positions": name} for name in SCHEMES if name not in ("sinusoidal", "none")]
OTHERS += [{"scores": name, "P_attention": 0.1} for name in ("unscaled", "additive", "cosine")]
INNER = {"P_attention": 0.3, "P_ff": 0.2}
DROPPED = [INNER, INNER | {"P_drop": 0.0}, {"P_attention": 0.3, "layer": "lstm"}]
DROPPED += [INNER | {"feed_forward": "geglu", "scores": "additive"}]
FAST = ("lstm", "restricted", "shaw_values", "t5", "cosine")
"""resumed in the fast tests: those that keep most of their own"""

WITHOUT = "scheme.W_out.bias"
"""FIRE's last bias adds one number to all scores of a query, which changes no weight: its gradient is zero"""


def named(change: dict) -> str:
    return "-".join(str(value) for value in change.values())


def marked(changes: list[dict], fast: tuple[str, ...]) -> list:
    """All but those `fast` in the long form."""
    return [pytest.param(c, marks=() if fast_enough(c, fast) else pytest.mark.long, id=named(c)) for c in changes]


def fast_enough(change: dict, fast: tuple[str, ...]) -> bool:
    return any(value in fast for value in change.values())


@pytest.mark.parametrize("change", [*marked(TYPES + OTHERS, (*LAYERS, *FAST)), *DROPPED])
def test_parts_of_a_step_add_up(change):
    training = Training(seed=3, precision="float64")
    module = TransformerModule(Experiment(model=Model(**(SIZES | change)), training=training), 31)

    def gradients(*parts: list[int]) -> list[torch.Tensor]:
        module.zero_grad()
        for index in parts:
            one = batch(index)
            module.batch_loss(5, one)[0].backward()
        return [p.grad.clone() for name, p in module.named_parameters() if not name.endswith(WITHOUT)]

    whole = gradients([0, 1, 2, 3, 4, 5])
    for parts in (([5, 0, 2], [1, 4, 3]), ([0], [1], [2], [3], [4], [5])):
        for ours, theirs in zip(whole, gradients(*parts), strict=True):
            assert ours.abs().max() > 1e-9 and (theirs - ours).abs().max() <= 1e-12 * ours.abs().max()


class Steps:
    """Optimizer steps from `first` on, the sentences of each its own."""

    def __init__(self, first: int):
        self.first = first

    def __iter__(self):
        for step in range(self.first, 99):
            order = np.random.default_rng(step).permutation(len(LENGTHS)).tolist()
            one = batch(order[: 3 + step % 3])
            tokens = (int(one.source_lengths_B.sum()), int(one.target_lengths_B.sum()))
            yield Step(step, *tokens, [one])


class Keep(pl.Callback):
    """Writes a checkpoint after one step, as a run does."""

    def __init__(self, after: int, path: Path):
        self.after, self.path = after, path

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        if trainer.global_step == self.after:
            trainer.save_checkpoint(self.path, storage_options=None)


@pytest.mark.parametrize("change", marked(TYPES + OTHERS, FAST))
def test_what_a_checkpoint_holds_is_enough_to_go_on_exactly(change, tmp_path):
    """Killed after step 3 of 5, it ends with the weights of a run that nobody disturbed, bit for bit."""
    training = Training(seed=3, steps=5, warmup=2, lr_factor=5.0)
    e = Experiment(model=Model(**SIZES, **change), training=training)
    ends = []
    for first, start in ((0, None), (3, tmp_path / "3.ckpt")):
        module = TransformerModule(e, 31)
        trainer = make_trainer(e, Hardware(accelerator="cpu"), [Keep(3, tmp_path / "3.ckpt")] if not first else [])
        trainer.fit(module, train_dataloaders=Steps(first), ckpt_path=start)
        assert trainer.global_step == 5
        ends.append(module.state_dict())
    kept = torch.load(tmp_path / "3.ckpt", weights_only=True)["state_dict"]
    assert ends[0].keys() == ends[1].keys() == kept.keys()
    for name, weight in ends[0].items():
        assert torch.equal(ends[1][name], weight), name
        assert name.endswith(WITHOUT) or not torch.equal(kept[name], weight), f"{name} stood still"
