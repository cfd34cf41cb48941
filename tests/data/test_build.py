"""A store: written, built and read."""

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lightning_tfm.config import Data
from lightning_tfm.data.prepare import BUILDING, prepare
from lightning_tfm.data.text import build_store as module
from lightning_tfm.data.text import word_encoder
from lightning_tfm.data.text.cleaning import Rules, Seen
from lightning_tfm.data.text.tokenizer import Tokenizer
from lightning_tfm.data.text.vocabulary import RESERVED, count_words, train_tokenizer
from lightning_tfm.data.text.word_encoder import WordEncoder
from lightning_tfm.data.token_store import Split, SplitWriter, id_type
from lightning_tfm.errors import UserError

REAL_TEXT = os.environ.get("LIGHTNING_TFM_DATA")

BREAKS = {
    "length": ({"max_words": 10}, "a " * 10 + "a", "b"),
    "ratio": ({"max_ratio": 2.0}, "a a a a a a", "b"),
    "encoding": ({"check_encoding": True}, "schön", "schÃ¶n"),
}


@pytest.mark.parametrize("rule", BREAKS)
def test_each_rule(rule):
    settings, source, target = BREAKS[rule]
    rules = Rules(Data(**settings))
    assert rules.broken_rule((source, target)) == rule == rules.broken_rule((target, source))
    assert rules.broken_rule(("a good line", "eine schöne Zeile – „ja“ für 5 €")) == ""
    assert Rules(Data()).broken_rule((source, target)) == ""


def test_where_the_rules_begin():
    assert Rules(Data(max_words=3)).broken_rule(("a a a", "b")) == ""
    ratio = Rules(Data(max_ratio=2.0))
    assert ratio.broken_rule(("a a a a a", "b")) == "" and ratio.broken_rule(("a " * 10 + "a", "b b b b")) == ""


@pytest.mark.parametrize(
    "text", ["»Ça va?« – naïve", "Ärger, Öl, Übel, Straße", "“quoted” … ½ – ’s", "Ã la carte", "ÃO"]
)
def test_good_encodings_stay(text):
    assert Rules(Data(check_encoding=True)).broken_rule((text, text)) == ""


def test_duplicates_as_a_set_tells_them():
    draw, seen, known = random.Random(3), Seen(), set()
    for size in [1, 5, 400, 3, 1000, 1, 700]:
        pairs = [(f"s{draw.randrange(900)}", "t") for _ in range(size)]
        expected = []
        for pair in pairs:
            expected.append(pair not in known)
            known.add(pair)
        assert seen.new(pairs).tolist() == expected
    assert sum(map(len, seen._runs)) == len(known) and len(seen._runs) < 8


def test_the_card_counts_and_locates(files, tmp_path):
    good = [f"ein Haus am See {i}" for i in range(40)]
    source = [*good, "", "x " * 30, good[3], good[4], *good]
    target = [*good, "nichts", "y", good[3], good[4], *good]
    text = {
        f"train.{side}": "".join(f"{x}\n" for x in lines).encode() for side, lines in (("en", source), ("de", target))
    }
    cleaned = {"bad_lines": "drop", "max_words": 20, "drop_duplicates": True}
    card = prepare(files(text, **cleaned), tmp_path).card["splits"]["train"]
    assert card["pairs"] == {"read": 84, "kept": 40, "dropped": {"empty": 1, "length": 1, "duplicate": 42}}
    assert card["dropped_first"]["duplicate"] == [f"train:{i}" for i in (43, 44, 45, 46, 47)]
    assert card["dropped_first"]["length"] == ["train:42"] and card["dropped_first"]["empty"] == ["train:41"]
    kept = prepare(files(text, bad_lines="drop"), tmp_path).card["splits"]["train"]["pairs"]
    assert kept == {"read": 84, "kept": 83, "dropped": {"empty": 1}}


def test_a_share_is_the_same_for_everybody_and_lies_within_larger_ones(files, tmp_path):
    lines = [f"ein Haus am See {i}" for i in range(400)]
    text = {f"train.{side}": "".join(f"{x}\n" for x in lines).encode() for side in ("en", "de")}
    kept = []
    for share in (0.25, 0.5, 1.0):
        prepared = prepare(files(text, share=share), tmp_path)
        pairs = prepared.card["splits"]["train"]["pairs"]
        left_out = {} if share == 1 else {"sample": 400 - pairs["kept"]}
        assert pairs["dropped"] == left_out and abs(pairs["kept"] - 400 * share) < 45
        assert prepared.card["splits"]["dev"]["pairs"]["dropped"] == {}
        train = prepared.split("train")
        kept.append({prepared.tokenizer.decode(train.source(i).tolist()) for i in range(len(train))})
    assert kept[0] < kept[1] < kept[2] and len(kept[2]) == 400


def test_held_out_pairs_are_never_cleaned(files, tmp_path):
    data = files({"val.en": b"a\n" * 8, "val.de": b"b\n" * 8}, drop_duplicates=True, max_words=2, vocab_size=40)
    with pytest.raises(UserError, match="none of 40 pairs are left"):
        prepare(data, tmp_path)
    data = files({"val.en": b"a\n" * 8, "val.de": b"b\n" * 8}, drop_duplicates=True, max_ratio=9.0)
    assert prepare(data, tmp_path).card["splits"]["dev"]["pairs"] == {"read": 8, "kept": 8, "dropped": {}}


@pytest.mark.parametrize(
    "change",
    [{"max_words": 50}, {"max_ratio": 9.0}, {"check_encoding": True}, {"drop_duplicates": True}, {"share": 1 - 1e-9}],
)
def test_cleaning_names_the_store(files, tmp_path, change):
    first, second = prepare(files(), tmp_path), prepare(files(**change), tmp_path)
    assert first.folder != second.folder and first.train_fingerprint == second.train_fingerprint


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    counts = Counter()
    count_words(["der Wind weht leise durch das alte Tor und steht still", "lo li la lu"] * 3, counts)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    path.write_bytes(train_tokenizer(counts.items(), Data(vocab_size=50)))
    return Tokenizer(path)


ODD = [
    "",
    " ",
    "  der  Wind ",
    "der\tWind\t",
    "\u2581der\u2581 Wind",
    "der\u00a0Wind \u00a0",
    "\u3000Wind",
    "a\u0308 \u0308a",
]
ODD += [RESERVED, f"{RESERVED} der", "<s> </s> <unk> <pad>", "日本 語", "der\r", "\x85der", "e" * 5000, "Wind " * 300]


@pytest.mark.parametrize("cached", [10**6, 7, 0])
def test_word_by_word_gives_the_same_ids(tokenizer, cached, monkeypatch):
    monkeypatch.setattr(word_encoder, "CACHED", cached)
    draw, words = random.Random(1), WordEncoder(tokenizer, 1, "identity")
    alphabet = ["der", "Wind", "weht", " ", "  ", "alt", "x", "\t", "ü", "\u00a0"]
    for _ in range(60):
        lines = ["".join(draw.choices(alphabet, k=draw.randrange(12))) for _ in range(draw.randrange(1, 9))]
        lines += draw.sample(ODD, 3)
        ids, lengths = words.encode(lines)
        expected = tokenizer.encode(lines)
        assert lengths.tolist() == [len(row) for row in expected]
        assert ids.tolist() == np.concatenate(expected).tolist() and ids.dtype == np.int32


@pytest.mark.skipif(not REAL_TEXT, reason="LIGHTNING_TFM_DATA is unset: the folder of real parallel text")
@pytest.mark.parametrize("normalization", ["identity", pytest.param("nmt_nfkc", marks=pytest.mark.long)])
def test_word_by_word_on_real_text(tmp_path, normalization):
    for folder in ("wmt-news", "tatoeba-en-fr", "gnome-docs-en-de", "manpages-en-fr"):
        other = folder[-2:] if folder != "wmt-news" else "fr"
        data = Data("files", f"{REAL_TEXT}/{folder}", target=other, vocab_size=2000, normalization=normalization)
        corpus = module_corpus(data)
        counts, lines = Counter(), []
        for pair, _ in zip(corpus.lines("train"), range(6000), strict=False):
            lines += pair
        count_words(lines, counts)
        (tmp_path / "tokenizer.model").write_bytes(train_tokenizer(counts.items(), data))
        tokenizer = Tokenizer(tmp_path / "tokenizer.model")
        ids, lengths = WordEncoder(tokenizer, 1, normalization).encode(lines)
        expected = tokenizer.encode(lines)
        assert lengths.tolist() == [len(row) for row in expected] and np.array_equal(ids, np.concatenate(expected))


def module_corpus(data):
    from lightning_tfm.data.sources.files import make_corpus

    return make_corpus(data)


def _kill(name: str, call: int, data: Data, root: Path) -> None:
    """Prepare, but die at the `call`-th use of a function of the build."""
    module.BATCH = 5
    real, calls = getattr(module, name), [0]

    def deadly(*args, **kwargs):
        calls[0] += 1
        if calls[0] == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)

    setattr(module, name, deadly)
    prepare(data, root)


@pytest.mark.parametrize(
    ("name", "call"),
    [("count_words", 30), ("train_tokenizer", 1), ("open_tokenizer", 1), ("_encode", 3)]
    + [("write_atomic", call) for call in (1, 2, 3)],
)
def test_killed_anywhere_it_goes_on_to_the_same_store(files, tmp_path, forks, name, call, monkeypatch):
    data = files({"train.en": b"ein Haus\n" * 3 + b"\n" + b"der Wind am Tor\n" * 36}, bad_lines="drop")
    assert forks.join(forks.start(lambda: _kill(name, call, data, tmp_path / "a")), 60) == -signal.SIGKILL
    (left,) = (tmp_path / "a" / "data").iterdir()
    assert left.name.startswith(BUILDING)
    monkeypatch.setattr(module, "BATCH", 5)
    spared = (left / "tokenizer.model").is_file()
    if spared:
        monkeypatch.setattr(module, "train_tokenizer", None)
    went_on = prepare(data, tmp_path / "a")
    monkeypatch.undo()
    whole = prepare(data, tmp_path / "b")
    assert sorted(p.name for p in went_on.folder.iterdir()) == sorted(p.name for p in whole.folder.iterdir())
    for path in whole.folder.iterdir():
        assert path.read_bytes() == (went_on.folder / path.name).read_bytes(), path.name
    assert os.listdir(tmp_path / "a" / "data") == [whole.folder.name]
    assert not set(module.WORK) & set(os.listdir(whole.folder)) and json.loads((whole.folder / "card.json").read_text())


ROWS = [[5, 6, 7], [], [4], [8, 9]]


def write(folder, V, keep_text=True, high=0):
    writer = SplitWriter(folder, "dev", V, keep_text)
    for rows in (ROWS[:1], ROWS[1:]):
        lines = [f"line {len(row)}\x85\r" for row in rows]
        ids = [np.array(row, dtype=np.int32) + high for row in rows]
        for side, mine in (("source", ids), ("target", ids[::-1])):
            writer.write(side, lines, np.concatenate(mine), np.array([len(row) for row in mine]))
    writer.close()


@pytest.mark.parametrize(("V", "high"), [(60, 0), (65535, 65000), (65536, 65526), (300000, 200000)])
def test_round_trip(tmp_path, V, high):
    write(tmp_path, V, high=high)
    split = Split(tmp_path, "dev", V)
    assert len(split) == 4
    assert split.source_lengths.tolist() == [3, 0, 1, 2]
    assert split.target_lengths.tolist() == [3, 2, 1, 0]
    assert split.source_lengths.dtype == np.int64
    assert [split.source(i).tolist() for i in range(4)] == [[id + high for id in row] for row in ROWS]
    assert split.target(1).tolist() == [8 + high, 9 + high]
    assert split.source(0).dtype == id_type(V)
    assert split.source_text() == ["line 3\x85\r", "line 0\x85\r", "line 1\x85\r", "line 2\x85\r"]


def test_ids_take_two_bytes_while_they_can():
    assert id_type(65535) is np.uint16 and id_type(65536) is np.int32


def test_nothing_can_be_written_through_a_split(tmp_path):
    write(tmp_path, 60)
    with pytest.raises(ValueError, match="read-only"):
        Split(tmp_path, "dev", 60).source(0)[0] = 1


@pytest.mark.parametrize("kind", ["ids", "offsets"])
@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("harm", ["cut", "emptied", "gone", "cut inside a number"])
def test_a_damaged_store_is_noticed(tmp_path, kind, side, harm):
    write(tmp_path, 60)
    path = tmp_path / f"dev.{side}.{kind}"
    content = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": content[:-8], "emptied": b"", "cut inside a number": content[:-1]}[harm])
    with pytest.raises(UserError, match=r"remove .*; it will be made again"):
        Split(tmp_path, "dev", 60)
