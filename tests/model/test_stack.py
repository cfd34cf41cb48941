"""One stack over source and target: against a plain computation by hand, its masks, its decoding, what it refuses."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.autograd.functional import jacobian

from lightning_tfm.config import Experiment, Model, Training, override
from lightning_tfm.config_validation import check
from lightning_tfm.data.batch import Batch, make_batch
from lightning_tfm.errors import UserError
from lightning_tfm.inference.export import unlike_ctranslate2
from lightning_tfm.model import causality_check
from lightning_tfm.model.attention_types import AttentionType, Softmax, masked_softmax, scaled_scores
from lightning_tfm.model.beam_search import beam_search
from lightning_tfm.model.dropout import masks_set
from lightning_tfm.model.one_stack import OneStack, OneStackDecoder, make_model
from lightning_tfm.model.positions import sinusoids
from lightning_tfm.model.size import count_parameters
from lightning_tfm.registry import ATTENTIONS, LAYERS, SCHEMES
from lightning_tfm.runs.train import count_by_part
from lightning_tfm.special_tokens import BOS, EOS
from lightning_tfm.study.rows import all_rows, apply
from lightning_tfm.study.settings import load_experiment
from lightning_tfm.training.masks import SentenceMasks
from lightning_tfm.training.module import TransformerModule
from tests.model.test_beam_search import pad, plain_search, same, sources

STACKS = ("prefix", "causal")
V = 31
SIZES = {"N": 2, "d_model": 14, "d_ff": 23, "h": 3, "d_k": 4, "d_v": 11, "max_positions": 40, "neighbourhood": 3}


def build(stack: str, **change) -> OneStack:
    """In float64, its weights off the start."""
    model = make_model(Model(**(SIZES | change), stack=stack), V, 1).double().eval().requires_grad_(False)
    draw = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64), alpha=0.1)
    return model


CHANGES = [{"positions": name} for name in SCHEMES] + [{"attention": name} for name in ATTENTIONS if name != "softmax"]
CHANGES += [{"tie": "none"}, {"tie": "decoder", "norm": "pre"}, {"norm": "sandwich", "kv_heads": 1, "qk_norm": True}]
CHANGES += [{"scores": "additive"}, {"attention": "gated", "positions": "shaw", "attention_where": "self"}]
EVERY = [(stack, change) for stack in STACKS for change in CHANGES]
EVERY += [("causal", {"layer": name}) for name in LAYERS if name != "attention"]


# --- what it computes ---


def by_hand(
    model: OneStack, source: list[int], target: list[int], masks: list[torch.Tensor] | None, row: int
) -> torch.Tensor:
    """Logits of one pair of a post-norm model with sinusoids, query by query."""
    c, n, ids = model.config, len(source), torch.tensor([*source, *target])
    x = model.embedding_WD[ids] * math.sqrt(c.d_model) + sinusoids(len(ids), c.d_model, "interleaved")

    def dropped(x: torch.Tensor, place: int) -> torch.Tensor:
        if masks is None:
            return x
        return x * torch.cat([side[place, row, :length] for side, length in zip(masks, (n, len(target)), strict=True)])

    x = dropped(x, 0)
    for number, layer in enumerate(model.decoder):
        q, k, v = layer.self_attention.W_QKV(x).split([c.h * c.d_k, c.h * c.d_k, c.h * c.d_v], -1)
        mixed = torch.zeros(len(ids), c.h * c.d_v, dtype=torch.float64)
        for i in range(len(ids)):
            seen = max(i + 1, n) if c.stack == "prefix" else i + 1
            for h in range(c.h):
                K, W = slice(h * c.d_k, (h + 1) * c.d_k), slice(h * c.d_v, (h + 1) * c.d_v)
                scores = torch.stack([q[i, K] @ k[j, K] / math.sqrt(c.d_k) for j in range(seen)])
                mixed[i, W] = scores.softmax(0) @ v[:seen, W]
        x = layer.residual_1.norm(x + dropped(layer.self_attention.W_O(mixed), 1 + 2 * number))
        x = layer.residual_2.norm(x + dropped(layer.feed_forward(x), 2 + 2 * number))
    return x[n:] @ model.embedding_WD.T


PAIRS = [([5, 6, 7, 8, EOS], [BOS, 9, 10]), ([11, EOS], [BOS, 12, 13, 14]), ([EOS], [BOS])]


def batch_of(pairs: list[tuple[list[int], list[int]]], index: list[int]) -> Batch:
    """Of sources with their end and targets with their begin."""
    return make_batch([np.array(s[:-1]) for s, _ in pairs], [np.array(t[1:]) for _, t in pairs], np.array(index))


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("wet", [False, True], ids=["plain", "dropout"])
def test_it_is_the_computation_by_hand_of_every_pair_alone(stack, wet):
    model = build(stack)
    source, target = pad([s for s, _ in PAIRS]), pad([t for _, t in PAIRS])
    batch = batch_of(PAIRS, [4, 2, 9])
    sides = SentenceMasks(model.config, 3).between(7, batch, model.embedding_WD) if wet else None
    keeps = model.by_layer(batch, *(side.unbind(0) for side in sides)) if sides else []
    with masks_set(list(zip(model.dropouts() if sides else [], keeps, strict=True))):
        found = model(source, target)
    assert found.shape == (*target.shape, V)
    for row, (s, t) in enumerate(PAIRS):
        assert (found[row, : len(t)] - by_hand(model, s, t, sides, row)).abs().max() < 1e-12


@pytest.mark.parametrize("stack", STACKS)
def test_the_jacobian_of_a_layer_is_its_mask(stack):
    """[query, key] over a row of 4 source pieces, 3 target positions and one column of padding."""
    model, seen = build(stack, d_model=6, d_ff=5), []
    source, target = torch.tensor([[5, 6, 7, EOS], [8, EOS, 0, 0]]), torch.tensor([[BOS, 9, 10], [BOS, 11, 12]])
    hook = model.decoder[0].register_forward_pre_hook(lambda layer, given: seen.append(given))
    model(source, target)
    hook.remove()
    x_BLD, allowed = seen[0]
    moved = jacobian(lambda x: model.decoder[0](x, allowed), x_BLD)
    assert not moved[0, :, :, 1].any() and not moved[1, :, :, 0].any(), "rows of a batch see each other"
    for row, n in ((0, 4), (1, 2)):
        depends = moved[row, :, :, row].abs().amax((1, 3)) > 1e-12
        q, k = torch.arange(7)[:, None], torch.arange(7)
        expected = (k <= q) | ((k < n) & (stack == "prefix"))
        assert torch.equal(depends[: n + 3], expected[: n + 3])


@pytest.mark.parametrize(("stack", "change"), EVERY, ids=str)
def test_no_leak_and_a_cache_changes_nothing(stack, change):
    """Later positions, padding, what else is in the batch; decoded piece by piece as all at once."""
    model = build(stack, **change)
    before, after = causality_check.with_another_piece(model)
    assert not causality_check.later_position(before, after)
    assert (before[:, causality_check.CHANGED :] != after[:, causality_check.CHANGED :]).any(2).all()
    assert not causality_check.padding(model, 1e-12) and not causality_check.piece_by_piece(model, 1e-12)
    for row in range(3):
        alone = model(
            causality_check.pad(causality_check.SOURCES[row : row + 1]),
            causality_check.pad(causality_check.TARGETS[row : row + 1]),
        )
        assert (alone[0] - before[row]).abs().max() < 1e-12


class OwnMix(Softmax):
    """As a user would write it."""


class Blind(AttentionType):
    """Looks at every key, whatever the mask says."""

    def weights(self, q_BHTK, k_BHSK, mask, bias):
        return masked_softmax(scaled_scores(q_BHTK, k_BHSK, bias), None)


@pytest.mark.parametrize("stack", STACKS)
def test_an_attention_of_the_users_own_acts_and_is_asked_before_the_first_step(stack):
    own = Model(**SIZES, stack=stack, attention=f"{__name__}.OwnMix")
    causality_check.check_own_classes(own)
    found = make_model(own, V, 1)
    plain = make_model(replace(own, attention="softmax"), V, 1)
    source, target = causality_check.pad(causality_check.SOURCES), causality_check.pad(causality_check.TARGETS)
    assert sum(isinstance(module, OwnMix) for module in found.modules()) == 2
    assert torch.allclose(found.eval()(source, target), plain.eval()(source, target), atol=1e-5)
    with pytest.raises(UserError, match="positions 0 to 2 changed with the token at position 3"):
        causality_check.check_own_classes(replace(own, attention=f"{__name__}.Blind"))


@pytest.mark.parametrize("stack", STACKS)
def test_the_whole_source_arrives(stack):
    model, source = build(stack), causality_check.pad(causality_check.SOURCES)
    before = model(source, causality_check.pad(causality_check.TARGETS))
    for place in range(len(causality_check.SOURCES[0])):
        other = source.clone()
        other[0, place] = 29
        moved = (model(other, causality_check.pad(causality_check.TARGETS)) != before).any(2)
        assert moved[0].all() and not moved[1:].any()


# --- decoding ---


@pytest.mark.parametrize(
    ("stack", "change"), [("prefix", {}), ("causal", {"positions": "rotary"}), ("causal", {"layer": "gru"})]
)
@pytest.mark.parametrize("beam", [1, 4])
def test_beam_search_is_the_plain_one(stack, change, beam):
    """Sources of several lengths in one batch, against a search without cache of each alone."""
    model, rows = build(stack, **change), sources(V, 6, 4, 2)
    model.embedding_WD *= 3
    for source, found in zip(rows, beam_search(model, pad(rows), beam, 0.6, 4), strict=True):
        same(found, plain_search(model, source, beam, 0.6, 4, 1))


ALONE = [change for stack, change in EVERY if stack == "causal" and change.get("tie", "all") == "all"]
"""of a language model, whose text has no source but an end token"""


@pytest.mark.parametrize("change", ALONE, ids=str)
def test_the_jacobian_of_a_language_model_is_causal(change):
    """Of all its layers: [position, position] over the end token and five pieces."""
    model, seen = build("causal", **(change | {"d_model": 6, "d_ff": 5})), []
    hooks = [
        layer.register_forward_pre_hook(lambda layer, given, named: seen.append((given, named)), with_kwargs=True)
        for layer in model.decoder
    ]
    model(torch.tensor([[EOS]]), torch.tensor([[BOS, 9, 10, 11, 12]]))
    for hook in hooks:
        hook.remove()

    def through(x_BLD: torch.Tensor) -> torch.Tensor:
        for layer, (arguments, named) in zip(model.decoder, seen, strict=True):
            x_BLD = layer(x_BLD, *arguments[1:], **named)
        return x_BLD

    depends = jacobian(through, seen[0][0][0])[0, :, :, 0].abs().amax((1, 3)) > 1e-12
    assert not depends.triu(1).any() and depends.diagonal().all() and depends.diagonal(-1).any()


@pytest.mark.parametrize("change", ALONE, ids=str)
@pytest.mark.parametrize("beam", [1, 3])
def test_a_prompt_is_continued_as_without_a_cache(change, beam):
    model, begin = build("causal", **change), [9, 10, 11]
    model.embedding_WD *= 3
    (found,) = beam_search(model, torch.tensor([[EOS]]), beam, 0.6, 4, 1, begin_BP=torch.tensor([begin]))
    same(found, plain_search(model, [EOS], beam, 0.6, 4, 1, begin))


def test_rows_may_change_places_between_lengths():
    model, target = build("prefix", positions="t5"), torch.randint(4, V, (3, 9))
    decoder, order = OneStackDecoder(model, causality_check.pad(causality_check.SOURCES)), torch.arange(3)
    for t in range(target.shape[1]):
        if t in (2, 5):
            decoder.select(swap := torch.tensor([2, 0, 1, 1][: 3 + (t == 5)]), None)
            order = order[swap]
        found = decoder.step(target[order, t], t)
    expected = model(causality_check.pad(causality_check.SOURCES), target)[order, -1].log_softmax(-1)
    assert (found - expected).abs().max() < 1e-12


def test_learned_positions_end_somewhere():
    """Source and target share them; a batch whose padding alone passes the last one is no longer than its rows."""
    model = build("prefix", positions="learned", max_positions=11)
    long, short = [*range(4, 12), EOS], [5, EOS]
    found = model(pad([long, short]), pad([[BOS, 6], [BOS, 7, 8, 9]]))
    assert (found[1] - model(pad([short]), pad([[BOS, 7, 8, 9]]))[0]).abs().max() < 1e-12
    with pytest.raises(UserError, match="12 tokens is longer than the 11 learned positions"):
        model(pad([long]), pad([[BOS, 6, 7]]))
    (best,) = beam_search(model, pad([long]), 2, 0.6, 50)
    assert len(best[0].pieces) <= 1


# --- counts, masks, rows ---


@pytest.mark.parametrize(("stack", "change"), EVERY, ids=str)
def test_parameters_by_formula(stack, change):
    model = build(stack, **change)
    parts, built = count_parameters(model.config, V), count_by_part(model.requires_grad_(True))
    assert parts == {name: getattr(built, name) for name in parts} and parts["encoder"] == 0


def test_the_source_has_the_masks_of_two_stacks_and_the_target_those_of_its_sublayers():
    batch, like = batch_of(PAIRS, [3, 1, 0]), torch.empty(0)
    two, one = (
        SentenceMasks(Model(**SIZES, stack=stack), 3).between(5, batch, like) for stack in ("encoder_decoder", "causal")
    )
    assert torch.equal(one[0], two[0])
    assert two[1].shape == (7, 3, 4, 14) and one[1].shape == (5, 3, 4, 14)
    assert torch.equal(one[1][0, 1], two[1][0, 1]), "the longest target's embedding is drawn first"


@pytest.mark.parametrize("stack", STACKS)
def test_inner_masks_are_of_one_text_and_of_a_sentence_in_any_company(stack):
    change = {"P_attention": 0.3, "P_ff": 0.2, "P_drop": 0.0}
    e = Experiment(model=Model(**(SIZES | change), stack=stack), training=Training(seed=3, precision="float64"))
    module = TransformerModule(e, V)
    pairs = [([*range(4, 4 + S), EOS], [BOS, *range(5, 5 + T)]) for S, T in ((3, 5), (9, 2), (1, 0))]

    @torch.no_grad()
    def loss(rows: list[int]) -> float:
        batch = batch_of([pairs[i] for i in rows], rows)
        return float(module.batch_loss(5, batch)[0])

    together, apart = loss([0, 1, 2]), sum(loss([i]) for i in range(3))
    assert together == pytest.approx(apart, rel=1e-12)
    plain = TransformerModule(replace(e, model=replace(e.model, P_attention=0.0)), V)
    batch = batch_of(pairs, [0, 1, 2])
    assert float(plain.batch_loss(5, batch)[0].detach()) != pytest.approx(together, rel=1e-3)
    ((_, weights), *_) = module.masks.within(5, batch, module.transformer)
    assert weights.shape == (3, 3, 16, 16)
    assert float((weights[1, :, :13, :13] == 0).double().mean()) == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("row", [name for name in all_rows() if name != "base"])
def test_every_row_of_table_3_takes_a_step_under_prefix(row):
    """At width ÷ 16 and depth ÷ 2."""
    changes = {"model.stack": "prefix", "miniature.width": 16, "data.vocab_size": V}
    base = override(load_experiment("experiments/miniature.yaml"), changes, "tests")
    exact = apply(base, all_rows()[row]).scaled(row)
    check(exact)
    module = TransformerModule(exact, V)
    optimizer = module.configure_optimizers()
    batch = batch_of(PAIRS, [0, 1, 2])
    losses = []
    for step in range(2):
        optimizer.param_groups[0]["lr"] = 1e-3
        loss, _ = module.batch_loss(step, batch)
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[0] != losses[1]
    assert count_by_part(module.transformer).total == count_parameters(exact.model, V)["total"]


def test_other_formats_have_no_place_for_it():
    assert unlike_ctranslate2(Model(stack="prefix")) == ["stack=prefix has no encoder"]
