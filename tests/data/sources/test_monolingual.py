"""Text without a source: how lines become texts, what is broken in files, and the store."""

from itertools import repeat

import pytest

from lightning_tfm.config import Data, Experiment, Model, override
from lightning_tfm.config_validation import check
from lightning_tfm.data.prepare import prepare
from lightning_tfm.data.sources.files import make_corpus
from lightning_tfm.data.sources.length_buckets import LongText
from lightning_tfm.data.sources.monolingual import packed
from lightning_tfm.errors import UserError
from lightning_tfm.testing import CorpusSuite
from tests.helpers.tiny import WORDS

LINES = ["a b c", "d", "e f", "", "g h", "  ", "", "i j k l m n o p", "q"]


def test_lines_of_one_document_become_texts_of_so_many_words():
    assert list(packed(LINES, repeat(4))) == ["a b c d", "e f", "g h", "i j k l", "m n o p", "q"]
    assert list(packed(LINES, repeat(6))) == ["a b c d e f", "g h", "i j k l m n", "o p q"]
    assert list(packed(LINES, iter([1, 5, 2, 9, 3]))) == ["a", "b c d e f", "g h", "i j k l m n o p q"]
    assert list(packed([], repeat(3))) == list(packed(["", " "], repeat(3))) == []


@pytest.mark.parametrize("most", [1, 3, 7, 50])
def test_no_word_is_lost_and_none_has_more_than_asked(most):
    documents = [[" ".join(WORDS[i : i + k]) for i in range(k)] for k in (3, 5, 1)]
    lines = [line for document in documents for line in [*document, ""]]
    texts = list(packed(lines, repeat(most)))
    assert " ".join(texts).split() == " ".join(lines).split()
    assert max(len(text.split()) for text in texts) <= most


def write(folder, **splits: str) -> Data:
    folder.mkdir(exist_ok=True)
    for name, text in splits.items():
        (folder / f"{name}.txt").write_bytes(text.encode())
    return Data(corpus="lines", folder=str(folder), vocab_size=40, max_words=6, test="")


TEXT = "".join(
    " ".join(WORDS[(i * k) % 16] for k in range(1, 3 + i % 5)) + "\n" + "\n" * (i % 7 == 0) for i in range(90)
)


class TestLines(CorpusSuite):
    corpus = "lines"
    overlap = 100

    @pytest.fixture(autouse=True)
    def text(self, tmp_path):
        self.folder = tmp_path / "text"
        self.data = write(self.folder, train=TEXT, val=TEXT[:300])

    def altered(self) -> Data:
        return write(self.folder, train=TEXT[100:], val=TEXT[:200])


def test_another_length_is_another_text(tmp_path):
    data = write(tmp_path, train=TEXT, val=TEXT[:300])
    prints = {
        make_corpus(override(Experiment(data=data), {"data.max_words": n}, "").data).fingerprint("train")
        for n in (0, 5, 6)
    }
    assert len(prints) == 3


def test_the_store_holds_no_source_and_the_card_says_nothing_of_one(tmp_path, capsys):
    from lightning_tfm.data.text.card import card_text

    prepared = prepare(write(tmp_path / "text", train=TEXT, val="ka lo\nmi\n\nnu\n"), tmp_path)
    assert prepared.split("val").target_text() == ["ka lo mi", "nu"] and prepared.split("val").source_text() == ["", ""]
    assert not prepared.train.source_lengths.any() and prepared.train.target_lengths.all()
    said = card_text(prepared, 60)
    assert "lines, txt; 40 tokens" in said and "target: " in said and "source: " not in said and " sources " not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"ka lo\nmi \xff nu\n", "train.txt:2: broken line (not UTF-8)"),
        (b"ka\n\na\0b\n", "train.txt:3: broken line (NUL"),
        (b"\n\n", "train.txt is empty"),
    ],
)
def test_a_broken_line_is_named_by_its_place_in_the_file(tmp_path, text, said):
    data = write(tmp_path / "text", train="", val="ka\n")
    (tmp_path / "text" / "train.txt").write_bytes(text)
    with pytest.raises(UserError) as error:
        prepare(data, tmp_path)
    assert said in str(error.value)


def test_a_file_that_is_not_there_is_named_without_languages(tmp_path):
    data = write(tmp_path / "text", train=TEXT)
    with pytest.raises(
        UserError,
        match=r"neither val.txt nor val.txt.gz; it holds: train.txt. Set data.train, data.dev, data.test to match",
    ):
        prepare(data, tmp_path)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    corpus = make_corpus(write(tmp_path, train=TEXT))
    corpus.fingerprint("train")
    (tmp_path / "train.txt").write_text(TEXT[50:])
    with pytest.raises(UserError, match="changed while it was read"):
        list(corpus.lines("train"))


def test_lines_to_score_by_length_are_packed_to_all_of_them(tmp_path):
    data = write(tmp_path / "text", train=TEXT, val=TEXT, far=" ".join(TEXT.split() * 3))
    data = override(Experiment(data=data), {"data.long": "far", "data.max_len": 12}, "").data
    text = LongText(prepare(data, tmp_path), data)
    lengths = text.split("far").target_lengths + 1
    assert (lengths <= 12).any() and (lengths > 36).any() and lengths.max() <= 60


def test_the_built_in_text_is_the_target_side():
    data = Data(corpus="builtin-lines", pairs=20)
    plain = [target for _, target in make_corpus(Data(corpus="builtin", pairs=20)).lines("train")]
    assert list(make_corpus(data).lines("train")) == [("", target) for target in plain]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model.stack": "encoder_decoder"}, "so there is nothing to encode: set model.stack=causal"),
        ({"model.stack": "prefix"}, "set model.stack=causal"),
        ({"model.tie": "none"}, "leave it at all"),
        ({"data.max_ratio": 2.0}, "data.max_ratio compares the two sides"),
        ({"evaluation.metrics": "chrf"}, "evaluation.metrics=chrf scores translations"),
        ({"data.corpus": "lines"}, "needs data.folder"),
    ],
)
def test_what_only_a_pair_has_a_place_for_is_refused(change, said):
    e = Experiment(model=Model(stack="causal"), data=Data(corpus="builtin-lines"))
    check(e)
    with pytest.raises(UserError, match=said):
        check(override(e, change, "test"))
