"""Order and batches: which pairs a step trains on."""

import hashlib
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightning_tfm.config import Data, Experiment, Model, override
from lightning_tfm.data import chains
from lightning_tfm.data.batch import make_batch
from lightning_tfm.data.batch_plan import Plan, padded_tokens, split_evenly
from lightning_tfm.data.builtin import SPLITS, Builtin
from lightning_tfm.data.chains import BuiltinChains
from lightning_tfm.data.prepare import prepare
from lightning_tfm.data.sources import length_buckets
from lightning_tfm.data.sources.files import CHAINS, make_corpus
from lightning_tfm.data.sources.length_buckets import (
    CLASSES,
    LINES,
    PER_LIMIT,
    LongText,
    check_reach,
    class_of,
    sample_by_length,
)
from lightning_tfm.errors import UserError
from lightning_tfm.special_tokens import BOS, EOS, PAD
from tests.helpers.tiny import experiment, write_corpus

WORLDS = st.integers(1, 64)


@st.composite
def corpora(draw):
    """Source and target lengths, mostly alike as those of translations are, and a budget that the longest fits into."""
    n = draw(st.integers(1, 120))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    longest = draw(st.integers(1, 60))
    source = random.integers(1, longest + 1, n)
    target = np.clip(source + random.integers(-3, 4, n), 1, None) if draw(st.booleans()) else random.permutation(source)
    budget = int(max(source.max(), target.max())) * draw(st.integers(1, 12)) + draw(st.integers(0, 30))
    return source, target, budget


def check(corpus, world: int, slack: int, seed: int) -> None:
    source, target, budget = corpus
    plan = Plan(source, target, budget, seed)
    longest = int(max(source.max(), target.max()))
    micro_tokens = longest * slack  # 0 is no limit
    epoch, per = seed % 3, plan.steps_per_epoch
    steps = range(epoch * per, (epoch + 1) * per)
    closer = {steps[seed % per], steps[seed // 3 % per], steps[-1]}
    for step in steps:
        ids = plan.global_batch(step)
        assert plan.step_tokens(step) == (source[ids].sum(), target[ids].sum())
        assert max(plan.step_tokens(step)) <= budget
        if step in closer:
            ranks = [plan.micro_batches(step, rank, world, micro_tokens) for rank in range(world)]
            assert len({len(micro) for micro in ranks}) == 1
            dealt = [part for number in zip(*ranks, strict=True) for part in number]
            assert np.array_equal(np.concatenate(dealt), np.arange(len(ids)))
            assert not slack or max(padded_tokens(source[ids[p]], target[ids[p]]) for p in dealt) <= micro_tokens
    seen = np.concatenate([plan.global_batch(step) for step in steps])
    assert np.array_equal(np.sort(seen), np.arange(len(source)))


SEEDS = st.integers(0, 2**31)
QUIET = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=150, **QUIET)
@given(corpora(), WORLDS, st.integers(0, 3), SEEDS)
def test_what_every_plan_keeps(corpus, world, slack, seed):
    check(corpus, world, slack, seed)


@pytest.mark.long
@settings(max_examples=1000, **QUIET)
@given(corpora(), WORLDS, st.integers(0, 3), SEEDS)
def test_what_every_plan_keeps_on_a_thousand_corpora(corpus, world, slack, seed):
    check(corpus, world, slack, seed)


@pytest.fixture
def plan() -> Plan:
    random = np.random.default_rng(0)
    source = random.integers(1, 40, 3000)
    return Plan(source, np.clip(source + random.integers(-4, 5, 3000), 1, None), 400, 7)


def test_steps_are_full_and_sentences_of_like_length(plan):
    fill = [max(plan.step_tokens(step)) for step in range(plan.steps_per_epoch)]
    assert np.mean(fill) > 0.93 * 400
    spread = [np.ptp(plan.target_lengths[plan.global_batch(step)]) for step in range(plan.steps_per_epoch)]
    assert np.mean(spread) < 2


def test_ranks_get_like_shares(plan):
    for step in range(20):
        ids = plan.global_batch(step)
        cost = [
            sum((plan.source_lengths + plan.target_lengths)[ids[p]].sum() for p in plan.micro_batches(step, r, 2, 0))
            for r in range(2)
        ]
        assert abs(cost[0] - cost[1]) <= 2 * 88


def test_every_epoch_and_seed_has_its_own_order(plan):
    per = plan.steps_per_epoch
    first = [plan.global_batch(step).tolist() for step in range(per)]
    second = [plan.global_batch(step).tolist() for step in range(per, 2 * per)]
    other = Plan(plan.source_lengths, plan.target_lengths, plan.tokens, 8)
    assert first != second and not set(map(tuple, first)) & set(map(tuple, second))
    assert other.global_batch(0).tolist() != first[0]
    again = Plan(plan.source_lengths, plan.target_lengths, plan.tokens, 7)
    assert [again.global_batch(step).tolist() for step in reversed(range(per))] == first[::-1]


def test_short_and_long_steps_are_mixed(plan):
    lengths = [plan.target_lengths[plan.global_batch(step)].mean() for step in range(plan.steps_per_epoch)]
    assert abs(np.corrcoef(lengths, np.arange(len(lengths)))[0, 1]) < 0.2


def test_ids_choose_sentences():
    lengths = np.array([3, 100, 4, 5, 100])
    plan = Plan(lengths, lengths, 12, 0, ids=np.array([0, 2, 3]))
    assert sorted(plan.global_batch(0).tolist()) == [0, 2, 3]


def test_too_long_for_the_budget_is_an_error():
    with pytest.raises(UserError, match=r"51 tokens.*training\.tokens=50"):
        Plan(np.array([3, 4]), np.array([5, 51]), 50, 0)


def test_too_long_for_a_micro_batch_is_an_error():
    with pytest.raises(UserError, match=r"12 tokens.*trainer\.micro_tokens=11"):
        split_evenly(np.array([3, 12]), np.array([4, 5]), 2, 11)
    assert len(split_evenly(np.array([3, 12]), np.array([4, 5]), 2, 12)) == 2


def test_nothing_left_is_an_error():
    with pytest.raises(UserError, match=r"data\.max_len"):
        Plan(np.array([3]), np.array([5]), 50, 0, ids=np.array([], dtype=int))


def test_orders_are_the_same_everywhere():
    """Committed: another version of NumPy or another machine must take these sentences."""
    plan = Plan(np.arange(1, 13), np.arange(12, 0, -1), 26, 3)
    assert [plan.global_batch(step).tolist() for step in range(plan.steps_per_epoch)] == [
        [3, 2],
        [9, 8],
        [1, 0],
        [7, 6, 5, 4],
        [11, 10],
    ]


LENGTHS = {
    "none": [],
    "one": [(3, 5)],
    "empty sentences": [(0, 0), (2, 0), (0, 7)],
    "equally long": [(4, 6)] * 3,
    "padded source": [(1, 6), (4, 6)],
    "many": np.random.default_rng(1).integers(0, 40, (480, 2)).tolist(),
}


def padded(rows: list[np.ndarray], first: int | None, last: int | None) -> torch.Tensor:
    """Sentence by sentence."""
    around = [[*([first] if first else []), *row.tolist(), *([last] if last else [])] for row in rows]
    widest = max(map(len, around), default=1)
    return torch.tensor([line + [PAD] * (widest - len(line)) for line in around]).long().reshape(len(rows), widest)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("kind", [np.uint16, np.int32, np.int64])
def test_a_batch_is_what_a_loop_over_sentences_makes(lengths, kind):
    draw = np.random.default_rng(2)
    source, target = ([draw.integers(4, 60_000, pair[side]).astype(kind) for pair in lengths] for side in (0, 1))
    index = np.arange(10, 10 + len(lengths))
    found = make_batch(source, target, index)
    wanted = padded(source, None, EOS), padded(target, BOS, None), padded(target, None, EOS)
    for tensor, expected in zip((found.source_BS, found.target_in_BT, found.target_out_BT), wanted, strict=True):
        assert tensor.dtype is torch.int64 and torch.equal(tensor, expected)
    sizes = np.array(lengths, dtype=np.int64).reshape(-1, 2).T + 1
    assert np.array_equal(found.source_lengths_B, sizes[0]) and np.array_equal(found.target_lengths_B, sizes[1])
    assert np.array_equal(found.keys_3B.numpy(), np.stack((index, *sizes))) and found.keys_3B.dtype is torch.int64
    assert (found.allowed is None) == bool((wanted[0] != PAD).all())
    if found.allowed is not None:
        assert torch.equal(found.allowed, (wanted[0] != PAD)[:, None, None, :])
    rows = torch.cat([torch.arange(n) + b * wanted[2].shape[1] for b, n in enumerate(sizes[1])]) if lengths else None
    assert (found.rows_N is None) == bool((wanted[2] != PAD).all())
    if found.rows_N is not None:
        assert torch.equal(found.rows_N, rows)


def test_each_side_is_joined_once(monkeypatch):
    """A loop over sentences, or a side laid out twice, holds the interpreter's lock for as long as a GPU's step."""
    joins, join = [], np.concatenate
    monkeypatch.setattr(np, "concatenate", lambda rows, *a, **k: joins.append(len(rows)) or join(rows, *a, **k))
    rows = [np.full(5, 4)] * 480
    make_batch(rows, rows, np.arange(480))
    assert joins.count(480) == 2


DATA = Data(pairs=500, max_len=32)
REAL_TEXT = os.environ.get("LIGHTNING_TFM_DATA")


def test_the_text_made_for_it_reaches_as_far_as_is_scored():
    assert length_buckets.FARTHEST == chains.FARTHEST
    assert (chains.CHAINED, chains.LONG) == CHAINS


@pytest.fixture(scope="module")
def text():
    return {split: list(BuiltinChains(DATA).lines(split)) for split in ("chained", "long")}


def test_they_are_the_same_everywhere_and_disjoint(text):
    assert hashlib.sha256(repr(text).encode()).hexdigest()[:16] == "1bdf2fb692f01f78"
    assert len(text["chained"]) == 500 and len(text["long"]) == chains.LINES
    sources = {split: {source for source, _ in pairs} for split, pairs in text.items()}
    assert all(len(sources[split]) == len(pairs) for split, pairs in text.items())
    known = {split: {source for source, _ in Builtin(500, 0).lines(split)} for split in SPLITS}
    assert not sources["long"] & set.union(*known.values())
    assert not sources["chained"] & (sources["long"] | known["val"] | known["test"])
    assert list(BuiltinChains(replace(DATA, pairs=100)).lines("chained")) == text["chained"][:100]


def test_long_lines_reach_five_training_lengths_evenly_and_clauses_stay_alike(text):
    words = np.array([source.count(" ") + 1 for source, _ in text["long"]])
    assert words.max() >= 5 * 32 and np.bincount(np.minimum(words // 16, 9), minlength=10).min() > 100
    ratio = [np.mean([len(t.split()) / len(s.split()) for s, t in part]) for part in np.array_split(text["long"], 4)]
    assert np.ptp(ratio[1:]) < 0.05
    for source, target in text["chained"][:200] + text["long"][::8]:
        ours, theirs = (line[:-1].split() for line in (source, target))
        assert source[-1] == target[-1] and ours.count("e") + ours.count("par") == theirs.count("ond") + theirs.count(
            "wal"
        )
    clauses = [sum(source.split().count(word) for word in ("e", "par")) + 1 for source, _ in text["chained"]]
    assert max(clauses) == chains.MOST and 0.2 < np.mean(np.array(clauses) == 1) < 0.4


def test_what_they_are_named_by():
    corpus = make_corpus(DATA)
    other = make_corpus(replace(DATA, max_len=40))
    assert corpus.fingerprint("long") != other.fingerprint("long")
    assert corpus.fingerprint("val") == other.fingerprint("val") == Builtin(500, 0).fingerprint()
    assert make_corpus(replace(DATA, max_len=40, long_from=32)).fingerprint("long") == corpus.fingerprint("long")


def test_classes_and_lines_of_each():
    assert class_of(np.array([1, 5, 6, 10, 11, 50, 51]), 10).tolist() == [0, 0, 1, 1, 2, 9, 10]
    assert CLASSES == 5 * PER_LIMIT
    target = np.arange(1, 2001) % 60 + 1
    found = sample_by_length(np.ones(2000, dtype=int), target, 10)
    assert np.array_equal(np.bincount(class_of(target[found], 10)), [LINES] * CLASSES) and (np.diff(found) > 0).all()
    assert found[-1] > 1800  # spread over the split
    few = sample_by_length(np.array([3, 30]), np.array([4, 2]), 10)
    assert few.tolist() == [0, 1]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    root = tmp_path_factory.mktemp("long")
    e = experiment(write_corpus(root / "text"), data__long="val", data__long_from=12)
    return e, prepare(e.data, root)


def test_any_split_of_any_corpus_is_scored_by_length(tiny):
    e, prepared = tiny
    text = LongText(prepared, e.data)
    split, whole = text.split("val"), prepared.split("val")
    assert split.target_text() == [whole.target_text()[i] for i in text.lines]
    assert split.source(0).tolist() == whole.source(int(text.lines[0])).tolist()
    prints = {LongText(prepared, replace(e.data, long_from=n)).fingerprint("val") for n in (12, 13)}
    assert len(prints | {prepared.fingerprint("val")}) == 3
    assert set(prepared.card["splits"]) == {"dev", "test", "train"}


@pytest.mark.skipif(not REAL_TEXT, reason="LIGHTNING_TFM_DATA is unset: the folder of real parallel text")
def test_dev_texts_of_real_corpora_have_long_lines(tmp_path):
    folder = f"{REAL_TEXT}/manpages-en-fr"
    data = Data(
        corpus="files", folder=folder, target="fr", test="", share=0.02, vocab_size=1000, max_len=32, long="val"
    )
    prepared = prepare(data, tmp_path)
    text = LongText(prepared, data)
    split = text.split("val")
    classes = class_of(np.maximum(split.source_lengths, split.target_lengths) + 1, 32)
    counts = np.bincount(classes, minlength=CLASSES)
    assert counts[1:7].min() == LINES and 0 < counts[-1] < LINES and len(counts) == CLASSES


@pytest.mark.parametrize(
    ("limit", "words"), [(300, "no line of it is above"), (2, "no line of it is from half to the whole of")]
)
def test_a_split_without_long_or_without_short_lines_is_refused(tiny, limit, words):
    e, prepared = tiny
    with pytest.raises(UserError, match=words):
        _ = LongText(prepared, replace(e.data, long_from=limit)).lines


def test_learned_positions_must_reach_what_is_scored(tmp_path):
    e = experiment(write_corpus(tmp_path / "text"), data__long="more", data__long_from=20)
    for language in ("en", "de"):
        text = (tmp_path / "text" / f"val.{language}").read_text()
        (tmp_path / "text" / f"more.{language}").write_text(text)
    prepared = prepare(e.data, tmp_path)
    text = LongText(prepared, e.data).split("more")
    extra = e.evaluation.extra_len
    longest = int(max(text.source_lengths.max() + 1 + extra, text.target_lengths.max() + 1))
    for kind in ("learned", "learned_scaled"):
        check_reach(positioned(e, kind, longest), prepared, "row")
        with pytest.raises(UserError, match=f"row: the longest line of 'more' takes {longest} .*max_positions to"):
            check_reach(positioned(e, kind, longest - 1), prepared, "row")
    check_reach(positioned(e, "sinusoidal", 1), prepared, "row")
    of_both = text.source_lengths + text.target_lengths + 2
    longest = int(max(2 * (text.source_lengths.max() + 1) + extra, of_both.max()))
    one = override(e, {"model.stack": "prefix"}, "test")
    check_reach(positioned(one, "learned", longest), prepared, "row")
    with pytest.raises(UserError, match=f"row: the longest line of 'more' takes {longest} .*max_positions to"):
        check_reach(positioned(one, "learned", longest - 1), prepared, "row")
    with pytest.raises(UserError, match="the longest line of 'val'"):
        check_reach(positioned(e, "learned", 5), prepared, "row")


def positioned(e: Experiment, kind: str, most: int) -> Experiment:
    assert kind in ("sinusoidal", "learned", "learned_scaled") and Model.positions == "sinusoidal"
    return override(e, {"model.positions": kind, "model.max_positions": most}, "test")
