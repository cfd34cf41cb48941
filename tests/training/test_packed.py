"""Sentences one after another: the same ones, the same masks, the same gradients up to the order of sums."""

import inspect
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.attention.varlen import varlen_attn

from lightning_tfm.accel import choose, packable, packed
from lightning_tfm.config import Experiment, Hardware, Model, Training
from lightning_tfm.data.batch import make_batch
from lightning_tfm.errors import UserError
from lightning_tfm.training.backend import Backend
from lightning_tfm.training.module import TransformerModule
from tests.tiny import experiment, in_child, train, weights, write_corpus

CPU, V = torch.device("cpu"), 31
SMALL = Model(N=2, d_model=12, d_ff=20, h=2, d_k=6, d_v=6)
MODELS = {
    "the paper's": {},
    "learned, pre-norm": {"positions": "learned", "norm": "pre", "P_drop": 0.3},
    "no positions, sandwich": {"positions": "none", "norm": "sandwich"},
    "shared keys, unscaled": {"kv_heads": 1, "scores": "unscaled"},
    "gated, own matrices": {"feed_forward": "swiglu", "tie": "none", "target_spaces": 2},
    "no dropout": {"P_drop": 0.0},
}


def batch_of(lengths: list[tuple[int, int]]):
    draw = np.random.default_rng(1)
    source, target = ([draw.integers(4, V, pair[side]) for pair in lengths] for side in (0, 1))
    return make_batch(source, target, np.arange(5, 5 + len(lengths)))


def gradients(model: Model, by: Backend, lengths: list[tuple[int, int]]) -> list[torch.Tensor]:
    """Loss, unsmoothed loss and every parameter's gradient, in float64."""
    module = TransformerModule(Experiment(model=model, training=Training(precision="float64")), V, by).train()
    batch = batch_of(lengths)
    loss, nll = module.batch_loss(batch, module._noise(3, batch))
    loss.backward()
    return [loss.detach(), nll, *(parameter.grad for parameter in module.parameters())]


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("lengths", [[(3, 5), (80, 2), (1, 70), (9, 9)], [(4, 6)], [(4, 6)] * 3, [(70, 70)] * 2])
def test_losses_and_gradients_are_those_of_padded_sentences(changes, lengths):
    model = replace(SMALL, **changes)
    found = gradients(model, choose.backend(Hardware(packed=True), "float64", CPU), lengths)
    for ours, wanted in zip(found, gradients(model, Backend(), lengths), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-11, atol=1e-11)


def test_masks_are_taken_and_not_drawn_anew():
    """Row by row those of the padded form, in every bit."""
    module, batch = TransformerModule(Experiment(model=SMALL), V), batch_of([(3, 5), (8, 2)])
    noise = module._noise(3, batch)
    side = packed.Side.of(batch.source_lengths_B, CPU)
    wanted = torch.cat([noise.source[:, b, :n] for b, n in enumerate(batch.source_lengths_B)], 1)
    assert torch.equal(side.take(noise.source)[:, 0], wanted)
    assert side.ends.tolist() == [0, 4, 13] and side.ends.dtype is torch.int32 and side.longest == 9


def test_sentences_do_not_see_each_other():
    """Another neighbour changes nothing of a sentence's rows."""
    module = TransformerModule(Experiment(model=replace(SMALL, P_drop=0.0)), V).double()
    found = []
    for other in (4, 9):
        batch = batch_of([(6, 7), (5, 3)])
        batch.source_BS[1, :5] = batch.target_in_BT[1, 1:4] = other
        found.append(packed.hidden_rows(module.transformer, batch, None)[:8])
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_a_gpu_attends_by_torchs_kernel_for_segments():
    """As far as a CPU can say: its arguments, and shapes there and back on tensors that hold no numbers."""
    taken = inspect.signature(varlen_attn).parameters
    assert list(taken)[:7] == ["query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k"]
    assert taken["window_size"].default == (-1, -1)
    there = {"device": "meta", "dtype": torch.bfloat16, "requires_grad": True}
    q, k = torch.empty(1, 2, 11, 8, **there), torch.empty(1, 2, 7, 8, **there)
    none = torch.empty(3, device="meta", dtype=torch.int32)
    of_q, of_k = packed.Side(none, none, none, 6), packed.Side(none, none, none, 4)
    for keys, side in ((k, of_k), (q, of_q)):
        found = packed.by_kernel(q, keys, keys, of_q, side, causal=keys is q)
        assert found.shape == q.shape and found.dtype is torch.bfloat16
        found.sum().backward()
    assert q.grad.shape == q.shape and k.grad.shape == k.shape


REFUSED = {
    "positions": "rotary", "stack": "causal", "layer": "lstm", "scores": "additive", "P_attention": 0.1, "P_ff": 0.1,
    "d_v": 8,
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), REFUSED.items())
def test_what_segments_do_not_know_is_refused_by_name(name, value):
    model = replace(SMALL, **{name: value})
    with pytest.raises(UserError, match=rf"trainer\.packed does not go with model\.{name}={value}"):
        packable.check(Experiment(model=model), Hardware(packed=True))
    module = TransformerModule(Experiment(model=model), V, choose.backend(Hardware(packed=True), "float32", CPU))
    with pytest.raises(UserError, match=r"trainer\.packed does not go with"):
        module.batch_loss(batch_of([(3, 5), (8, 2)]), None)


@pytest.mark.parametrize("changes", [{"devices": 2}, {"num_nodes": 2}, {"micro_tokens": 9}, {"compile": True}])
def test_what_a_packed_training_does_without_is_refused_by_name(changes):
    (name,) = changes
    with pytest.raises(UserError, match=rf"trainer\.packed does not go with trainer\.{name}"):
        packable.check(Experiment(), Hardware(packed=True, **changes))
    with pytest.raises(UserError, match=r"training\.masks=device"):
        packable.check(Experiment(training=Training(masks="device")), Hardware(packed=True))
    packable.check(Experiment(), Hardware(packed=True))


def test_a_gpu_packs_in_bfloat16_and_the_record_says_so():
    with pytest.raises(UserError, match=r"trainer\.packed needs training\.precision=bfloat16 on a GPU, not float32"):
        choose.backend(Hardware(packed=True, kernels="none"), "float32", torch.device("cuda"))
    by = choose.backend(Hardware(packed=True), "float32", CPU)
    assert by.describe() == ["sentences packed, summed in another order"]
    assert choose.backend(Hardware(), "float32", CPU).describe() == []


def test_a_packed_run_keeps_its_name_and_its_record_says_so(tmp_path, monkeypatch, measured_once):
    monkeypatch.setattr("lightning_tfm.runs.result.matrix_rate", measured_once)
    e = experiment(write_corpus(tmp_path / "text"), training__precision="float64", model__d_v=6)
    runs = [in_child(train, e, tmp_path / str(way), Hardware(packed=way)) for way in (False, True)]
    assert runs[0].name == runs[1].name
    records = [json.loads((run / "result.json").read_bytes()) for run in runs]
    assert [one["inexact"] for one in records] == [[], ["sentences packed, summed in another order"]]
    ours, theirs = (weights(run) for run in runs)
    assert all(torch.allclose(ours[key], theirs[key], rtol=0, atol=1e-9) for key in ours)
    assert any(not torch.equal(ours[key], theirs[key]) for key in ours), "the padded form ran"


def test_all_but_the_rows_is_the_inner_backends():
    """A method that Backend gains is not to be lost beneath."""
    own = {name for name, value in vars(Backend).items() if inspect.isfunction(value)}
    assert own <= set(vars(packed.PackedBackend))
