"""From text to a shared store: complete, checked, identified by content, safe with several processes."""

import gzip
import json
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lightning_tfm.config import Data
from lightning_tfm.data import prepare as module
from lightning_tfm.data.builtin import Builtin
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.prepare import prepare
from lightning_tfm.data.text import build_store as building
from lightning_tfm.data.text.tokenizer import Tokenizer
from lightning_tfm.errors import UserError
from tests.helpers.waiting import wait_for

REAL_TEXT = os.environ.get("LIGHTNING_TFM_DATA")
real_text = pytest.mark.skipif(not REAL_TEXT, reason="LIGHTNING_TFM_DATA is unset: the folder of real parallel text")


def test_everything_comes_back(files, tmp_path):
    data = files()
    prepared = prepare(data, tmp_path)
    assert prepared.folder.parent == tmp_path / "data"
    tokenizer = prepared.tokenizer
    assert isinstance(tokenizer, Tokenizer) and tokenizer is prepared.tokenizer and tokenizer.V == 60
    for name, count in (("train", 40), ("val", 8), ("test", 6)):
        split = prepared.split(name)
        raw = [(Path(data.folder) / f"{name}.{language}").read_text().splitlines() for language in ("en", "de")]
        assert len(split) == count
        for i in range(count):
            assert tokenizer.decode(split.source(i)) == raw[0][i]
            assert tokenizer.decode(split.target(i)) == raw[1][i]
            assert (len(split.source(i)), len(split.target(i))) == (split.source_lengths[i], split.target_lengths[i])
        if name != "train":
            assert (split.source_text(), split.target_text()) == tuple(raw)


def test_batches_do_not_show(files, tmp_path, monkeypatch):
    whole = prepare(files(), tmp_path / "whole")
    monkeypatch.setattr(building, "BATCH", 7)
    parts = prepare(files(), tmp_path / "parts")
    for path in whole.folder.iterdir():
        assert path.read_bytes() == (parts.folder / path.name).read_bytes(), path.name


def test_the_second_time_builds_nothing_and_reads_no_text(tmp_path, monkeypatch):
    data = Data(vocab_size=400, pairs=300)
    first = prepare(data, tmp_path)
    monkeypatch.setattr(module, "build", None)
    monkeypatch.setattr(Builtin, "lines", None)
    start = time.perf_counter()
    again = prepare(data, tmp_path)
    print(f"opened in {1000 * (time.perf_counter() - start):.1f} ms")
    assert again.folder == first.folder and again.card == first.card
    assert os.listdir(tmp_path / "data") == [first.folder.name]


@pytest.mark.parametrize(
    ("change", "same_store"),
    [
        ({"max_len": 9}, True),
        ({"vocab_size": 61}, False),
        ({"normalization": "nmt_nfkc"}, False),
        ({"byte_fallback": True, "vocab_size": 330}, False),
        ({"bad_lines": "drop"}, False),
        ({"source": "de", "target": "en"}, False),
        ({"test": ""}, False),
        ({"train": "train+val"}, False),
    ],
)
def test_what_names_a_store(files, tmp_path, change, same_store):
    first, second = prepare(files(), tmp_path), prepare(files(**change), tmp_path)
    assert (first.folder == second.folder) is same_store


def test_fingerprints_follow_content(files, tmp_path):
    first = prepare(files(), tmp_path)
    prints = [first.train_fingerprint, first.fingerprint("val"), first.fingerprint("test")]
    assert len(set(prints)) == 3
    assert prepare(files(bad_lines="drop"), tmp_path).train_fingerprint == first.train_fingerprint
    assert prepare(files(vocab_size=61), tmp_path).train_fingerprint != first.train_fingerprint
    other_refs = prepare(files({"val.de": b"neu\n" * 8}), tmp_path)
    assert other_refs.train_fingerprint == first.train_fingerprint
    assert other_refs.fingerprint("val") != first.fingerprint("val")
    assert other_refs.fingerprint("test") == first.fingerprint("test")


def test_compressed_text_is_the_same_text(files, tmp_path):
    data = files()
    first = prepare(data, tmp_path)
    for path in list(Path(data.folder).iterdir()):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes(), mtime=1))
        path.unlink()
    second = prepare(data, tmp_path)
    assert second.folder != first.folder
    assert second.train_fingerprint == first.train_fingerprint and second.fingerprint("val") == first.fingerprint("val")


def test_several_training_splits(files, tmp_path):
    data = files({"more.en": b"one more\n", "more.de": b"eins mehr\n"}, train="train+more")
    prepared = prepare(data, tmp_path)
    split = prepared.split("train+more")
    assert len(split) == 41 and prepared.tokenizer.decode(split.source(40)) == "one more"


def test_no_test_split(files, tmp_path):
    prepared = prepare(files(test=""), tmp_path)
    with pytest.raises(UserError, match="no prepared split 'test'; prepared: val, train"):
        prepared.split("test")


def test_too_long_is_counted_not_dropped(files, tmp_path):
    data = files({"train.en": b"ein Haus\n" * 39 + b"ein Haus am See steht still und der Wind weht\n"}, vocab_size=61)
    prepared = prepare(data, tmp_path)
    split = prepared.split("train")
    longest = int(max(split.source_lengths.max(), split.target_lengths.max())) + 1
    assert len(split) == 40
    assert prepared.too_long(longest) == 0
    over = np.flatnonzero(np.maximum(split.source_lengths, split.target_lengths) + 1 > longest - 1)
    assert prepared.too_long(longest - 1) == len(over) > 0
    assert prepared.too_long(1) == 40
    said: list[str] = []
    for limit in (longest, longest - 1):
        prepare(replace(data, max_len=limit), tmp_path, said.append)
    told = [line for line in said if "leaves out" in line]
    assert told == [f"data.max_len={longest - 1} leaves out {len(over)} of 40 training pairs"]


def test_what_is_trained_on_is_cleaned_and_sampled_where_a_held_out_split_has_its_name(files, tmp_path):
    data = files(share=0.5)
    apart, same = prepare(data, tmp_path), prepare(replace(data, test="train", drop_duplicates=False), tmp_path)
    kept = same.card["splits"]["train"]["pairs"]["kept"]
    assert len(apart.train) == len(same.train) == same.too_long(1) == kept < 40 == len(same.split("train"))
    assert same.train_fingerprint == apart.train_fingerprint, "one name, one text"


def test_card(files, tmp_path):
    data = files({"val.en": b"ein Haus am See nah 9\n" * 7 + "\u4e2d\n".encode()})
    prepared = prepare(data, tmp_path)
    card = json.loads((prepared.folder / "card.json").read_text())
    assert card == prepared.card
    train, dev = card["splits"]["train"], card["splits"]["dev"]
    assert train["pairs"] == {"read": 40, "kept": 40, "dropped": {}}
    assert train["source_also_in"] == {"dev": 1, "test": 0}
    assert train["pieces"]["source"]["total"] == int(prepared.split("train").source_lengths.sum())
    assert train["pieces"]["target"]["longest"] == int(prepared.split("train").target_lengths.max())
    assert dev["pieces"]["source"]["unknown"] == 1 and train["pieces"]["source"]["unknown"] == 0
    assert card["tokenizer"]["sha256"] == prepared.tokenizer.fingerprint


GOOD = b"ein Haus am See\n"
BROKEN = {
    "empty": (b"\n", "empty"),
    "blank": (b" \t \n", "empty"),
    "not utf-8": (b"caf\xe9 au lait\n", "not UTF-8"),
    "encoded surrogate": (b"x \xed\xa0\x80\n", "not UTF-8"),
    "nul": (b"a\0b\n", "NUL byte"),
}


@pytest.mark.parametrize(("line", "rule"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("side", ["en", "de"])
def test_broken_lines_are_named(files, tmp_path, line, rule, side):
    bad = GOOD * 2 + line * 7 + GOOD * 31
    with pytest.raises(UserError) as error:
        prepare(files({f"train.{side}": bad}), tmp_path)
    message = str(error.value)
    assert f"train.{side}: 7 broken lines ({rule}): 3, 4, 5, 6, 7, …" in message
    assert "data.bad_lines=drop" in message
    assert os.listdir(tmp_path / "data") == []


@pytest.mark.parametrize(("line", "rule"), BROKEN.values(), ids=BROKEN)
def test_broken_training_lines_are_dropped_and_counted(files, tmp_path, line, rule):
    data = files({"train.en": GOOD + line * 2 + GOOD * 37}, bad_lines="drop")
    prepared = prepare(data, tmp_path)
    assert prepared.card["splits"]["train"]["pairs"] == {"read": 40, "kept": 38, "dropped": {rule: 2}}
    second = (Path(data.folder) / "train.de").read_text().splitlines()[3]
    assert prepared.tokenizer.decode(prepared.split("train").target(1)) == second


@pytest.mark.parametrize("bad_lines", ["error", "drop"])
@pytest.mark.parametrize("split", ["val", "test"])
def test_broken_held_out_lines_are_never_dropped(files, tmp_path, bad_lines, split):
    count = 8 if split == "val" else 6
    data = files({f"{split}.de": GOOD * (count - 1) + b"\n"}, bad_lines=bad_lines)
    with pytest.raises(UserError, match=rf"{split}\.de: 1 broken lines \(empty\): {count}\n.*never dropped"):
        prepare(data, tmp_path)


def test_processes_at_once_end_with_one_store(files, tmp_path, forks):
    data, root = files(), tmp_path / "root"

    def prepare_and_report(number: int) -> None:
        (tmp_path / f"ready{number}").touch()
        wait_for(lambda: len(list(tmp_path.glob("ready?"))) == 4)
        found = prepare(data, root)
        result = (found.folder.name, found.train_fingerprint, found.split("train").source(3).tolist())
        (tmp_path / f"result{number}").write_text(json.dumps(result))

    workers = [forks.start(partial(prepare_and_report, number)) for number in range(4)]
    assert [forks.join(worker, 60) for worker in workers] == [0, 0, 0, 0]
    (result,) = {path.read_text() for path in tmp_path.glob("result?")}
    assert os.listdir(root / "data") == [json.loads(result)[0]]


def test_an_open_store_needs_only_its_folder(files, tmp_path):
    prepared = prepare(files(), tmp_path)
    moved = prepared.folder.rename(tmp_path / "elsewhere")
    assert np.array_equal(Prepared(moved).split("val").source(0), Prepared(moved).split("val").source(0))
    assert len(Prepared(moved).split("val")) == 8


LONG = pytest.mark.long


@real_text
@pytest.mark.parametrize(
    ("folder", "settings", "kept"),
    [
        ("multi30k", {"test": "test_2016_flickr"}, {"train": 29000, "dev": 1014, "test": 1000}),
        pytest.param(
            "multi30k", {"test": "test_2016_flickr", "source": "fr", "target": "en"}, {"train": 29000}, marks=LONG
        ),
        pytest.param("wmt-news", {"test": ""}, {"train": 13573, "dev": 3000}, marks=LONG),
    ],
)
def test_real_text(tmp_path, folder, settings, kept):
    data = replace(Data(corpus="files", folder=f"{REAL_TEXT}/{folder}", vocab_size=4000), **settings)
    prepared = prepare(data, tmp_path)
    for role, count in kept.items():
        assert prepared.card["splits"][role]["pairs"] == {"read": count, "kept": count, "dropped": {}}
    split, tokenizer = prepared.split("val"), prepared.tokenizer
    text = split.target_text()
    assert len(text) == len(split)
    same = [tokenizer.decode(split.target(i)) == line.strip(" ") for i, line in enumerate(text)]
    assert np.mean(same) > 0.98
    assert prepared.card["splits"]["train"]["pieces"]["source"]["unknown"] == 0


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("back", [False, True])
def test_a_store_never_holds_another_text_than_its_name_says(files, tmp_path, monkeypatch, suffix, back):
    """Edited once the text is named and inspected, or put back before the build ends."""
    data = files()
    path = Path(data.folder) / "train.de"
    if suffix:
        path.with_name("train.de.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=1))
        path.unlink()
        path = path.with_name("train.de.gz")
    before, pack = path.read_bytes(), gzip.compress if suffix else bytes
    other = pack(b"".join(reversed((gzip.decompress(before) if suffix else before).splitlines(keepends=True))))
    train, inspect = building.train_tokenizer, building._inspect

    def inspect_another(*args):
        path.write_bytes(other)
        inspect(*args)
        path.write_bytes(before)

    def then_edit(*args):
        path.write_bytes(other)
        return train(*args)

    monkeypatch.setattr(building, *(("_inspect", inspect_another) if back else ("train_tokenizer", then_edit)))
    with pytest.raises(UserError, match=rf"{path} changed while it was read \(sha256 "):
        prepare(data, tmp_path)
    assert os.listdir(tmp_path / "data") == []


def test_held_out_sources_that_are_trained_on_are_told(files, tmp_path):
    said: list[str] = []
    trained = (Path(files().folder) / "train.en").read_bytes().splitlines(keepends=True)
    prepare(files(), tmp_path, said.append)
    assert not any("too" in line for line in said)
    prepare(files({"val.en": b"".join(trained[:8])}), tmp_path, said.append)
    assert "8 of 40 training pairs have a source that dev has too" in said


def test_references_that_the_vocabulary_lacks_are_told(files, tmp_path):
    said: list[str] = []
    prepare(files(), tmp_path, said.append)
    assert not any("unknown" in line for line in said)
    prepared = prepare(files({"val.de": b"neu\n" * 7 + "\u4e2d\n".encode()}), tmp_path, said.append)
    total = prepared.card["splits"]["dev"]["pieces"]["target"]["total"]
    assert f"1 of {total} tokens of dev's references are unknown, which lowers perplexity" in said
