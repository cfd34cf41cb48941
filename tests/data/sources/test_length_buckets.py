"""Chained sentences of the built-in language, and which lines of a split are scored by length."""

import hashlib
import os
from dataclasses import replace

import numpy as np
import pytest

from lightning_tfm.config import Data, Experiment, Model, override
from lightning_tfm.data import chains
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
from tests.helpers.tiny import experiment, write_corpus

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
