"""A text in ready pieces: split at spaces, numbered by its vocabulary, scored as words; errors with file and line."""

from pathlib import Path

import numpy as np
import pytest

from lightning_tfm.config import Data, Evaluation, Experiment
from lightning_tfm.config_validation import check
from lightning_tfm.data.prepare import prepare
from lightning_tfm.data.text.adhoc_split import TextSet
from lightning_tfm.data.text.tokenizer import joined
from lightning_tfm.data.text.vocabulary import read_vocabulary
from lightning_tfm.errors import UserError
from lightning_tfm.inference.rescore import PAPER, with_measures
from lightning_tfm.special_tokens import EOS, UNK
from tests.helpers.studies import DEV

LINES = {
    "train.en": "the inter@@ rup@@ tion\nthe end .\n",
    "train.de": "die unter@@ bro@@ chen@@ e\ndas Ende .\n",
    "val.en": "the  inter@@ ruption\n",
    "val.de": "die Ende unter@@\n",
}
VOCABULARY = "<unk>\n<s>\n</s>\nthe 9\ndie\ninter@@\nrup@@\ntion\nunter@@\nbro@@\nchen@@\ne\nend\n.\ndas\nEnde\n"


@pytest.fixture
def data(tmp_path: Path) -> Data:
    for name, text in (LINES | {"vocab.txt": VOCABULARY}).items():
        (tmp_path / name).write_text(text)
    return Data("files", str(tmp_path), test="", tokenizer="pieces", vocabulary="vocab.txt")


def test_ids_are_the_vocabulary_s_and_texts_are_words(data, tmp_path):
    prepared = prepare(data, tmp_path)
    tokenizer = prepared.tokenizer
    assert tokenizer.V == 4 + 13 and [tokenizer.piece(i) for i in (3, 4, 5)] == ["</s>", "the", "die"]
    train, dev = prepared.split("train"), prepared.split("val")
    assert train.target(0).tolist() == [5, 9, 10, 11, 12]
    assert tokenizer.decode([*train.target(0), EOS, 0]) == "die unterbrochene"
    assert dev.source(0).tolist() == [4, 6, UNK] and dev.source_text() == ["the  interruption"]
    assert dev.target_text() == ["die Ende unter"]
    assert prepared.card["splits"]["dev"]["pieces"]["source"]["unknown"] == 1
    assert tokenizer.decode([4, UNK, 6, 7]) == "the <unk> interrup"
    again = TextSet("val", data, tokenizer)
    assert np.array_equal(again.split("val").source(0), dev.source(0))
    assert again.split("val").target_text() == dev.target_text()
    assert again.fingerprint("val") == prepared.fingerprint("val")


def test_another_vocabulary_is_another_store(data, tmp_path):
    first = prepare(data, tmp_path).folder
    (tmp_path / "vocab.txt").write_text(VOCABULARY + "new\n")
    assert prepare(data, tmp_path).folder != first


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a\nb\na\n", "vocab.txt:3: 'a' is already in line 1"),
        ("a\n\nb\n", "vocab.txt:2: an empty line"),
        ("<unk>\n", "vocab.txt: holds no tokens"),
        (b"a\n\xff\n", "vocab.txt: not UTF-8"),
    ],
)
def test_a_vocabulary_that_will_not_do(tmp_path, content, said):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=said):
        read_vocabulary(path)


def test_what_is_missing_or_contradictory(data, tmp_path):
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(UserError, match=r"vocab\.txt is missing"):
        prepare(data, tmp_path)
    with pytest.raises(UserError, match=r"needs data\.vocabulary"):
        prepare(Data("files", str(tmp_path), test="", tokenizer="pieces"), tmp_path)
    with pytest.raises(UserError, match=r"is for data\.tokenizer=pieces"):
        check(Experiment(data=Data("files", str(tmp_path), vocabulary="vocab.txt")))


def test_joined_pieces():
    assert joined("unter@@ bro@@ chen x@@") == "unterbrochen x" and joined("a@@b @@ c") == "a@@b c"


def test_moses_tokens_are_not_tokenised_again():
    """&apos;s and a full stop after a blank are Moses's; a second pass would escape the ampersand once more."""
    text = ["the house &apos;s red-brown roof , a b c ."]
    found = with_measures(DEV, text, text, [PAPER], Evaluation(), "").measures[PAPER]
    assert found.value == pytest.approx(100)
    assert found.signature == "moses:ready|hyphens:split|multi-bleu|case:mixed"
