"""Search on a GPU: one read in some steps, the same hypotheses, memory that is bounded."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lightning_tfm.accel import translation_batches as by_memory
from lightning_tfm.accel.on_gpu import by_kernels
from lightning_tfm.accel.translation_batches import bytes_each, sentences_at_once
from lightning_tfm.config import Evaluation, Experiment, Model
from lightning_tfm.data.batch import make_batch
from lightning_tfm.model import beam_search as search
from lightning_tfm.model.beam_search import Beams, CachedDecoder, beam_search
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.special_tokens import EOS
from lightning_tfm.training import evaluate
from lightning_tfm.training.backend import Backend
from lightning_tfm.training.module import TransformerModule
from tests.model.test_beam_search import build, pad, prefer, sources

CHANGES = [
    {},
    {"positions": "rotary"},
    {"positions": "learned", "max_positions": 12},
    {"kv_heads": 1},
    {"layer": "lstm"},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize(("beam", "alpha", "n_best"), [(1, 0.0, 1), (4, 0.6, 1), (5, 1.0, 5), (4, 0.0, 2)])
def test_hypotheses_do_not_depend_on_when_the_device_is_read(change, beam, alpha, n_best, monkeypatch):
    """All of them with all their numbers, of sentences that end at different steps."""
    for seed in range(3):
        model, rows = build(13, seed, **change), pad(sources(13, 9, 6, seed))
        at_once = beam_search(model, rows, beam, alpha, 11, n_best)
        monkeypatch.setattr(search, "READ_AT_ONCE", ())
        later = beam_search(model, rows, beam, alpha, 11, n_best)
        monkeypatch.undo()
        assert [[x.pieces for x in found] for found in later] == [[x.pieces for x in found] for found in at_once]
        for mine, its in zip(itertools.chain(*later), itertools.chain(*at_once), strict=True):
            assert (mine.score, mine.logprob) == pytest.approx((its.score, its.logprob), rel=1e-12)


def test_a_step_reads_nothing_from_the_device():
    """The meta device holds no numbers, so that every read raises."""
    model = build(29).to("meta")
    source = torch.tensor([[7, 8, EOS], [9, EOS, 0]]).to("meta")
    decoder, beams = CachedDecoder(model, source), Beams.begin(model, [9, 8], 4, 0.6, torch.device("meta"))
    pieces = torch.full((2,), 2, device="meta")
    for position in range(1, 10):
        step = decoder.step(pieces, position - 1).view(2, beams.logprob_Bw.shape[1], -1)
        width = step.shape[1]
        parent, piece = beams.advance(step, position, 0.6, 2, position - 1)
        decoder.select((torch.arange(2, device="meta")[:, None] * width + parent).flatten(), None)
        pieces = piece.flatten()
    with pytest.raises(NotImplementedError, match="meta"):
        beams.done_B.tolist()


def reads_of(monkeypatch, search) -> int:
    count = 0
    for name in ("tolist", "item", "__bool__", "__int__", "__float__", "cpu", "numpy", "nonzero", "unique"):
        real = getattr(torch.Tensor, name)

        def counted(self, *args, real=real, **named):
            nonlocal count
            count += 1
            return real(self, *args, **named)

        monkeypatch.setattr(torch.Tensor, name, counted)
    search()
    return count


def test_reads_are_one_in_eight_steps_and_those_of_the_results(monkeypatch):
    """Of 40 steps 5, with 1 for the lengths and 4 for what was found."""
    model = build(11)
    prefer(model, [5, 6], [EOS])
    source = pad([[7, 8, EOS]] * 4)
    monkeypatch.setattr(search, "READ_AT_ONCE", ())
    with monkeypatch.context() as patch:
        assert reads_of(patch, lambda: beam_search(model, source, 4, 0.6, 37)) == 1 + 40 // search.READ_EVERY + 4


def test_memory_of_a_batch_is_bounded_by_what_its_hypotheses_need():
    """Base with beam 4 and 37,000 pieces: 4,096 hypotheses at 30 pieces of source take 13 GB, and twice the length cuts
    the batch."""
    base, V = Model(), 37000
    each = bytes_each(base, V, 30, 80, 4)
    assert each == 8 * 128 * 4 * (8 * 80 + 6 * 30 / 4) + 4 * V * 4
    assert 4096 * each == pytest.approx(13.9e9, rel=0.01) and each * 4096 < by_memory.BYTES
    model = SimpleNamespace(config=base, embedding_WD=torch.empty(V, 1))
    assert sentences_at_once(model, 30, 80, 4) == 1024 and sentences_at_once(model, 30, 80, 8) == 512
    long = sentences_at_once(model, 300, 350, 4)
    assert 4 * long * bytes_each(base, V, 300, 350, 4) <= by_memory.BYTES and 200 < long < 400
    assert sentences_at_once(model, 30, 80, 4, free=2 * 400 * each) == 100
    assert sentences_at_once(model, 10**6, 10**6, 4) == 1


def test_the_cache_takes_what_the_estimate_says():
    c = Model(N=2, d_model=12, d_ff=9, h=3, d_k=4, d_v=5, kv_heads=1)
    model = Transformer(c, 31).eval()
    decoder = CachedDecoder(model, torch.full((5, 7), 6))
    for position in range(9):
        decoder.step(torch.full((10,), 4), position) if position else decoder.step(torch.full((5,), 2), 0)
        if not position:
            decoder.select(torch.arange(5).repeat_interleave(2), None)
    held = [x for cache in decoder.caches for x in (cache.k_BHTK, cache.v_BHTV)] + [
        x for kv in decoder.memory for x in kv
    ]
    held = sum(x.numel() * 4 for x in held)
    expected = 10 * (bytes_each(c, 31, 7, 9, 2) - 4 * 31 * 4) - 10 * 2 * 9 * 9 * 4
    assert held == pytest.approx(expected), "without the copies of one layer and the logits"


@pytest.mark.parametrize("hypotheses", [4, 12, 4096])
def test_a_text_is_translated_as_by_its_own_batches(monkeypatch, hypotheses):
    monkeypatch.setattr(by_memory, "HYPOTHESES", hypotheses)
    sizes = Model(N=1, d_model=16, d_ff=24, h=2, d_k=6, d_v=6)
    e = Experiment(model=sizes, evaluation=replace(Evaluation(), extra_len=9))
    module = TransformerModule(e, 31).eval()
    rows = [torch.tensor(row[:-1], dtype=torch.int64).numpy() for row in sources(31, 20, 8) if len(row) > 1]
    batches = [make_batch(rows[i::3], rows[i::3], np.arange(i, len(rows), 3)) for i in range(3)]
    theirs = evaluate.evaluate_lines(module, batches, len(rows), e.evaluation)
    monkeypatch.setattr(module, "backend", by_kernels(False, torch.device("cpu")))
    ours = evaluate.evaluate_lines(module, batches, len(rows), e.evaluation)
    assert [(x.pieces, x.nll, x.tokens) for x in ours] == [(x.pieces, x.nll, x.tokens) for x in theirs]
    assert [x.score for x in ours] == pytest.approx([x.score for x in theirs], rel=1e-5)


def test_one_stack_is_translated_batch_by_batch_by_the_kernels_backend(monkeypatch):
    monkeypatch.setattr(by_memory, "translate", None)
    model, rows = build(31, stack="prefix"), [np.array(row[:-1]) for row in sources(31, 6, 8) if len(row) > 1]
    batches = [make_batch(rows, rows, np.arange(len(rows)))]
    how = replace(Evaluation(), extra_len=9)
    found, same = (b.translate(model, batches, how) for b in (by_kernels(False, torch.device("cpu")), Backend()))
    assert found == same and list(found) == list(range(len(rows)))
