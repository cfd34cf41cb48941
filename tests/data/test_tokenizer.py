"""The tokenizer and its pieces."""

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightning_tfm.config import Data, Evaluation, Experiment
from lightning_tfm.config_validation import check
from lightning_tfm.data.prepare import prepare
from lightning_tfm.data.text.adhoc_split import TextSet
from lightning_tfm.data.text.tokenizer import Tokenizer, join_pieces, tabs_as_spaces
from lightning_tfm.data.text.vocabulary import LONGEST_WORD, RESERVED, count_words, read_vocabulary, train_tokenizer
from lightning_tfm.errors import UserError
from lightning_tfm.inference.rescore import PAPER, with_measures
from lightning_tfm.special_tokens import EOS, UNK
from tests.helpers.studies import DEV

LINES = ["der Hund sieht den Mann", "den Hund sieht der Mann.", "a dog sees the man", "The man, the dogs: 12 dogs!"] * 3
ODD = [
    "a\tb a\tb der\tHund",
    "\u2581der \u2581 Hund\u2581der",
    f"x{RESERVED}y der Hund {RESERVED}",
    "Stra\u00dfe\u0085Stra\u00dfe \u00a0 \u2009km\u00b2 \u200b\u00ad \u2026 \uff21\uff22 \u00bd",
    "  doppelt   und  am Rand ",
    "<unk> <s> </s> <pad> \u2047 \u0001 \x7f 😀😀 e\u0301 \u00e9",
    "z\rz \x0b\x0c \u2028 \u3000",
]


def train_on_sentences(lines: list[str], data: Data) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=data.vocab_size,
        character_coverage=1.0,
        normalization_rule_name=data.normalization,
        byte_fallback=data.byte_fallback,
        max_sentence_length=1 << 20,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
    )
    return model.getvalue()


def train_on_counts(lines: list[str], data: Data) -> bytes:
    counts: Counter[str] = Counter()
    count_words(lines, counts)
    return train_tokenizer(counts.items(), data)


def vocabulary(model: bytes) -> list[tuple[str, float]]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]


def load(model: bytes, folder: Path) -> Tokenizer:
    (folder / "model").write_bytes(model)
    return Tokenizer(folder / "model")


@pytest.mark.parametrize("normalization", ["identity", "nmt_nfkc"])
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_counts_train_the_same_vocabulary_as_sentences(normalization, byte_fallback):
    lines = LINES + ODD
    size = 100 + 256 * byte_fallback
    data = Data(vocab_size=size, normalization=normalization, byte_fallback=byte_fallback)
    sentences = train_on_sentences([tabs_as_spaces(line) for line in lines], data)
    assert vocabulary(train_on_counts(lines, data)) == vocabulary(sentences)


TEXT = st.text(alphabet="abcde  ABÄß.,12\u2581\u2585\t\u00a0\u0085\u200b\u0301é😀\u4e2d", max_size=30)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXT, max_size=12), st.sampled_from(["identity", "nmt_nfkc"]))
def test_any_text_trains_the_same_vocabulary(extra, normalization):
    lines = LINES + extra
    data = Data(vocab_size=70, normalization=normalization)
    assert vocabulary(train_on_counts(lines, data)) == vocabulary(
        train_on_sentences([tabs_as_spaces(line) for line in lines], data)
    )


def test_order_of_the_text_does_not_matter_and_training_is_deterministic():
    data = Data(vocab_size=60)
    assert train_on_counts(LINES, data) == train_on_counts(LINES, data) == train_on_counts(LINES[::-1], data)


def test_special_ids_size_and_round_trip(tmp_path):
    tokenizer = load(train_on_counts(LINES, Data(vocab_size=60)), tmp_path)
    assert tokenizer.V == 60
    assert [tokenizer.piece(i) for i in range(4)] == ["<pad>", "<unk>", "<s>", "</s>"]
    for line, ids in zip(LINES, tokenizer.encode(LINES), strict=True):
        assert ids.dtype == np.int32 and ids.min() > 3
        assert tokenizer.decode(ids) == line
        assert tokenizer.decode([2, *ids, 3, 0, 0]) == line
    assert tokenizer.piece(tokenizer.encode(["der"])[0][0]).startswith("\u2581")


def test_threads_change_nothing(tmp_path):
    tokenizer = load(train_on_counts(LINES, Data(vocab_size=60)), tmp_path)
    one, two = tokenizer.encode(LINES * 20), tokenizer.encode(LINES * 20, threads=2)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_identity_keeps_characters_and_bytes_spell_unknown_ones(tmp_path):
    lines = [*LINES, "km\u00b2 \u00bd \u2026 x\u0085y\u00a0z"]
    tokenizer = load(train_on_counts(lines, Data(vocab_size=80)), tmp_path)
    assert tokenizer.decode(tokenizer.encode(lines[-1:])[0]) == lines[-1]
    assert 1 in tokenizer.encode(["\u4e2d"])[0]
    spelling = load(train_on_counts(lines, Data(vocab_size=340, byte_fallback=True)), tmp_path)
    ids = spelling.encode(["der \u4e2d"])[0]
    assert 1 not in ids and spelling.decode(ids) == "der \u4e2d"


def test_a_sentence_is_one_line_whatever_bytes_it_spells(tmp_path):
    """A line feed would shift all translations below it against their references."""
    tokenizer = load(train_on_counts(LINES, Data(vocab_size=320, byte_fallback=True)), tmp_path)
    feed = next(i for i in range(tokenizer.V) if tokenizer.piece(i) == "<0x0A>")
    first, last = tokenizer.encode(["der", "Hund"])
    assert tokenizer.decode([*first, feed, *last]).split() == ["der", "Hund"]
    assert "\n" not in tokenizer.decode([feed, *first, feed])


def test_a_tab_is_a_space(tmp_path):
    tokenizer = load(train_on_counts(LINES, Data(vocab_size=60)), tmp_path)
    assert tokenizer.decode(tokenizer.encode(["der\tMann"])[0]) == "der Mann"


def test_overlong_words_take_no_part_in_training(tmp_path):
    """SentencePiece would end the process at 65,536 characters."""
    data = Data(vocab_size=60)
    long = ["ab" * 40000 + " der", "a" * (LONGEST_WORD + 1)]
    assert vocabulary(train_on_counts(LINES + long, data)) == vocabulary(train_on_counts([*LINES, "der"], data))
    tokenizer = load(train_on_counts([*LINES, "q" * LONGEST_WORD, "z" * (LONGEST_WORD + 1)], data), tmp_path)
    assert tokenizer.decode(tokenizer.encode(["qq z"])[0]) == "qq  \u2047 "
    assert len(tokenizer.encode(long)[0]) > 20000


@pytest.mark.parametrize(("asked", "word"), [(5, "need"), (100000, "at most")])
def test_impossible_vocabulary_names_the_size_that_works(asked, word):
    with pytest.raises(UserError, match=rf"data.vocab_size={asked}: .* {word} \d+ tokens") as error:
        train_on_counts(LINES, Data(vocab_size=asked))
    works = int(str(error.value).split(word)[1].split()[0])
    assert len(vocabulary(train_on_counts(LINES, Data(vocab_size=works)))) == works
    with pytest.raises(UserError):
        train_on_counts(LINES, Data(vocab_size=works + (1 if asked > works else -1)))


def test_text_without_words():
    with pytest.raises(UserError, match="no words"):
        train_on_counts(["", "  ", "\t"], Data(vocab_size=60))


def test_unknown_normalization():
    with pytest.raises(UserError, match="normalization='wrong'"):
        train_on_counts(LINES, Data(vocab_size=60, normalization="wrong"))


PIECE_LINES = {
    "train.en": "the inter@@ rup@@ tion\nthe end .\n",
    "train.de": "die unter@@ bro@@ chen@@ e\ndas Ende .\n",
    "val.en": "the  inter@@ ruption\n",
    "val.de": "die Ende unter@@\n",
}
VOCABULARY = "<unk>\n<s>\n</s>\nthe 9\ndie\ninter@@\nrup@@\ntion\nunter@@\nbro@@\nchen@@\ne\nend\n.\ndas\nEnde\n"


@pytest.fixture
def data(tmp_path: Path) -> Data:
    for name, text in (PIECE_LINES | {"vocab.txt": VOCABULARY}).items():
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
        ("\u2581the\nend\n", "vocab.txt: '\u2581the' is a token of SentencePiece"),
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
    assert join_pieces("unter@@ bro@@ chen x@@") == "unterbrochen x" and join_pieces("a@@b @@ c") == "a@@b c"
    assert join_pieces("a@@\tb c@@  d") == "ab cd", "as they are cut"


def test_moses_tokens_are_not_tokenised_again():
    """&apos;s and a full stop after a blank are Moses's; a second pass would escape the ampersand once more."""
    text = ["the house &apos;s red-brown roof , a b c ."]
    found = with_measures(DEV, text, text, [PAPER], Evaluation(), "").measures[PAPER]
    assert found.value == pytest.approx(100)
    assert found.signature == "moses:ready|hyphens:split|multi-bleu|case:mixed"
