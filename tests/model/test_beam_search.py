"""Beam search against exhaustive search, a plain search without cache or early stop, and teacher-forced scores."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from lightning_tfm.accel import translation_batches as by_memory
from lightning_tfm.accel.on_gpu import by_kernels
from lightning_tfm.accel.onednn import PackedTransformer, can_pack
from lightning_tfm.accel.translation_batches import bytes_each, sentences_at_once
from lightning_tfm.config import Evaluation, Experiment, Model
from lightning_tfm.data.batch import make_batch
from lightning_tfm.model import beam_search as search
from lightning_tfm.model.beam_search import Beams, CachedDecoder, Hypothesis, beam_search, top
from lightning_tfm.model.one_stack import make_model
from lightning_tfm.model.transformer import SequenceModel, Transformer
from lightning_tfm.registry import SCHEMES
from lightning_tfm.special_tokens import BOS, EOS, PAD
from lightning_tfm.training import evaluate
from lightning_tfm.training.backend import Backend
from lightning_tfm.training.module import TransformerModule

SIZES = {"N": 2, "d_model": 14, "d_ff": 11, "h": 3, "d_k": 4, "d_v": 5, "P_drop": 0.1, "max_positions": 64}


def build(V: int, seed: int = 0, sharpness: float = 3.0, **change) -> SequenceModel:
    """A random model in float64; larger `sharpness` makes its distributions more pointed."""
    model = make_model(Model(**(SIZES | change)), V, seed).double().eval()
    with torch.no_grad():
        model.embedding_WD *= sharpness
    return model


@torch.no_grad()
def prefer(model: SequenceModel, likely: list[int], unlikely: list[int]) -> None:
    """Make some pieces nearly certain and others nearly impossible after any history (post-norm models)."""
    direction = torch.randn(14, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    model.decoder[-1].residual_3.norm.bias.copy_(direction)
    model.embedding_WD[likely] = direction
    model.embedding_WD[unlikely] = -direction


def pad(rows: list[list[int]]) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def sources(V: int, count: int, longest: int, seed: int = 0) -> list[list[int]]:
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, longest + 1, (count,), generator=g).tolist()
    return [[*torch.randint(4, V, (n,), generator=g).tolist(), EOS] for n in lengths]


@torch.no_grad()
def forced(model: SequenceModel, source: list[int], *targets: list[int]) -> list[float]:
    """log P(pieces, end | source) of targets of one length, teacher-forced."""
    begun, ended = (torch.tensor(x) for x in zip(*(([BOS, *x], [*x, EOS]) for x in targets), strict=True))
    logits = model(torch.tensor([source]).expand(len(targets), -1), begun).log_softmax(-1)
    return logits.gather(2, ended[..., None]).sum((1, 2)).tolist()


def penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


@torch.no_grad()
def plain_search(
    model, source: list[int], beam: int, alpha: float, extra: int, n_best: int, begin: Sequence[int] = ()
) -> list[Hypothesis]:
    """One sentence that goes on from `begin`, no cache, no early stop: every beam runs to the length limit.

    An end is taken where it is among what the beam keeps, or where nothing else may follow.
    """
    limit = len(source) + extra
    beams: list[tuple[float, list[int]]] = [(0.0, [])]
    done: list[Hypothesis] = []
    for length in range(1, limit + 1):
        rows = model(
            torch.tensor([source]).expand(len(beams), -1), torch.tensor([[BOS, *begin, *pieces] for _, pieces in beams])
        )
        rows = rows[:, -1].log_softmax(-1)
        ends = [(total + float(row[EOS]), pieces) for (total, pieces), row in zip(beams, rows, strict=True)]
        more = [
            (total + float(row[piece]), [*pieces, piece])
            for (total, pieces), row in zip(beams, rows, strict=True)
            for piece in range(model.V)
            if piece not in (PAD, BOS, EOS)
        ]
        more = sorted(more, key=lambda x: -x[0])
        everything = len(more) < beam
        for total, pieces in ends:
            if length == limit or everything or total >= more[:beam][-1][0]:
                done.append(Hypothesis(pieces, total / penalty(len(begin) + length, alpha), total))
        beams = more[:beam]
    return sorted(done, key=lambda x: -x.score)[:n_best]


def same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [x.pieces for x in found] == [x.pieces for x in expected]
    assert [x.score for x in found] == pytest.approx([x.score for x in expected], abs=1e-10)
    assert [x.logprob for x in found] == pytest.approx([x.logprob for x in expected], abs=1e-10)


@pytest.mark.parametrize(("alpha", "seed"), [(0.0, 0), (0.6, 1), (1.3, 2)])
def test_as_wide_as_the_space_is_exhaustive(alpha, seed):
    V, extra = 7, 2
    letters = [1, 4, 5, 6]
    model = build(V, seed)
    for source in ([EOS], [5, EOS], [4, 6, EOS]):
        limit = len(source) + extra
        expected = []
        for n in range(limit):
            targets = [list(x) for x in itertools.product(letters, repeat=n)]
            for pieces, logprob in zip(targets, forced(model, source, *targets), strict=True):
                expected.append(Hypothesis(pieces, logprob / penalty(n + 1, alpha), logprob))
        expected.sort(key=lambda x: -x.score)
        found = beam_search(model, torch.tensor([source]), len(expected), alpha, extra, n_best=len(expected))[0]
        same(found, expected)
        same(beam_search(model, torch.tensor([source]), len(expected), alpha, extra)[0], expected[:1])


@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (2, 1), (4, 1), (4, 4), (5, 3)])
@pytest.mark.parametrize("sharpness", [pytest.param(1.0, marks=pytest.mark.long), 4.0])
def test_the_early_stop_loses_nothing(beam, n_best, sharpness):
    for seed, alpha in enumerate((0.0, 0.6, 1.5)):
        model, rows = build(11, seed, sharpness), sources(11, 4, 4, seed)
        found = beam_search(model, pad(rows), beam, alpha, 5, n_best)
        for source, hypotheses in zip(rows, found, strict=True):
            same(hypotheses, plain_search(model, source, beam, alpha, 5, n_best))


def test_it_does_stop_early(monkeypatch):
    steps = []
    step = CachedDecoder.step
    monkeypatch.setattr(CachedDecoder, "step", lambda self, *a: steps.append(len(self.allowed)) or step(self, *a))
    model = build(11, 1, 4.0)
    prefer(model, [EOS], [])
    beam_search(model, pad(sources(11, 6, 5)), 4, 0.6, 50)
    assert len(steps) < 20


def test_sentences_leave_the_batch_one_by_one(monkeypatch):
    widths = []
    step = CachedDecoder.step
    monkeypatch.setattr(CachedDecoder, "step", lambda self, *a: widths.append(len(self.allowed)) or step(self, *a))
    beam_search(build(13, 1), pad([[5, 6, 7, 8, EOS], [9, EOS], [10, 11, EOS]]), 2, 0.6, 3)
    assert widths[0] == 3 and widths[-1] < 3 and widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("positions", sorted(SCHEMES))
@pytest.mark.parametrize("norm", ["post", pytest.param("pre", marks=pytest.mark.long)])
def test_batch_is_one_by_one_and_scores_are_forced_scores(positions, norm):
    model = build(13, 2, positions=positions, norm=norm, target_spaces=2)
    rows = sources(13, 5, 6)
    together = beam_search(model, pad(rows), 4, 0.6, 8, n_best=3)
    for source, found in zip(rows, together, strict=True):
        same(found, beam_search(model, torch.tensor([source]), 4, 0.6, 8, n_best=3)[0])
        assert [x.score for x in found] == sorted((x.score for x in found), reverse=True)
        assert len({tuple(x.pieces) for x in found}) == len(found) == 3
        for x in found:
            assert [x.logprob] == pytest.approx(forced(model, source, x.pieces), abs=1e-10)
            assert x.score == pytest.approx(x.logprob / penalty(len(x.pieces) + 1, 0.6), abs=1e-12)


def test_blocks_find_what_one_search_finds_and_ties_are_topks(monkeypatch):
    monkeypatch.setattr("lightning_tfm.model.beam_search.LARGE", (4096, 0))
    g = torch.Generator().manual_seed(4)
    for W, T, k in ((4096, 10, 4), (8001, 5, 8), (8001, 5, 1), (37_000, 2, 4), (4100, 10, 16), (50, 3, 4)):
        apart, tied = torch.randn(2, T, W, generator=g), torch.randint(0, 40, (2, T, W), generator=g).float()
        apart[:, :, :3] = tied[:, :, 5:] = -math.inf
        edge = apart.clone()
        edge[:, :, -1] = edge[:, :, W // 2] = 9.0  # in the last, shorter block; the best twice
        last = apart.clone()
        last[:, :, -1] = 9.0
        for x in (apart, tied, edge, last):
            assert all(map(torch.equal, top(x, k), x.topk(k, -1)))


def test_packed_weights_translate_alike_and_leave_the_model_as_it_was():
    for change in ({}, {"feed_forward": "swiglu", "norm": "pre", "attention_bias": True, "tie": "none"}):
        model = build(40, 3, **change).float()
        rows = pad(sources(40, 4, 5, 3))
        before = [found[0] for found in beam_search(model, rows, 4, 0.6, 5)]
        packed = PackedTransformer(model)
        assert not any(isinstance(module, nn.Linear) for module in packed.modules())
        inside = [found[0] for found in beam_search(packed, rows, 4, 0.6, 5)]
        assert [x.pieces for x in inside] == [x.pieces for x in before]
        assert [x.logprob for x in inside] == pytest.approx([x.logprob for x in before], rel=1e-4)
        assert [found[0] for found in beam_search(model, rows, 4, 0.6, 5)] == before
        assert can_pack(model) and not can_pack(model.double())


def test_length_limit_and_forbidden_pieces():
    model = build(11, 0)
    prefer(model, [PAD, BOS], [EOS])
    rows = sources(11, 5, 5)
    for source, found in zip(rows, beam_search(model, pad(rows), 3, 0.6, 4, 3), strict=True):
        assert len(found) == 3
        for x in found:
            assert len(x.pieces) + 1 == len(source) + 4
            assert not {PAD, BOS, EOS} & set(x.pieces)


def test_learned_positions_bound_the_length():
    model = build(11, positions="learned", max_positions=9)
    prefer(model, [], [EOS])
    found = beam_search(model, torch.tensor([[5, 6, EOS]]), 2, 0.6, 50, 2)[0]
    assert [len(x.pieces) + 1 for x in found] == [9, 9]


TWO = pytest.param(4, 0.0, 2, marks=pytest.mark.long)
CHANGES = [
    {},
    {"positions": "rotary"},
    {"positions": "learned", "max_positions": 12},
    {"kv_heads": 1},
    {"layer": "lstm"},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize(("beam", "alpha", "n_best"), [(1, 0.0, 1), (4, 0.6, 1), (5, 1.0, 5), TWO])
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
