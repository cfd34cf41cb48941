"""The pieces of a text: one SentencePiece byte-pair encoding for both languages (5.1), trained deterministically from
word counts, or those of a vocabulary file.
"""

import io
import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import sentencepiece

from lightning_tfm.config import Data
from lightning_tfm.data.corpus import Corpus
from lightning_tfm.data.text.tokenizer import SPECIAL, tabs_as_spaces
from lightning_tfm.data.text.word_encoder import SPACE
from lightning_tfm.errors import UserError
from lightning_tfm.special_tokens import BOS, EOS, PAD, UNK
from lightning_tfm.sums import sha256

RESERVED = "\u2585"
"""SentencePiece leaves out a training sentence that holds this character"""
LONGEST_WORD = 4096
"""bytes of the longest word that takes part in training; SentencePiece aborts the process above 65535 characters"""


def count_words(lines: Iterable[str], counts: Counter) -> None:
    """Add the words of `lines` to `counts`: all that byte-pair encoding needs, as it never crosses a space."""
    for line in lines:
        if RESERVED not in line:
            counts.update(tabs_as_spaces(line).split(" "))


def train_tokenizer(counts: Iterable[tuple[str, int]], data: Data) -> bytes:
    """A SentencePiece model of `data.vocab_size` pieces from (word, count), each word once.

    The same as training on the sentences, in less memory.

    Raises UserError where the text allows no such vocabulary, naming the size that works.
    """
    lines = (f"{word}\t{count}" for word, count in counts if word and len(word.encode()) <= LONGEST_WORD)
    first = next(lines, None)
    if first is None:
        raise UserError("the training data have no words to make a vocabulary of")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=chain([first], lines),
            input_format="tsv",
            model_writer=model,
            model_type="bpe",
            vocab_size=data.vocab_size,
            character_coverage=1.0,
            normalization_rule_name=data.normalization,
            byte_fallback=data.byte_fallback,
            max_sentence_length=2 * LONGEST_WORD,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise UserError(_remedy(str(error), data)) from error
    return model.getvalue()


def _remedy(message: str, data: Data) -> str:
    if most := re.search(r"too high .* value <= (\d+)", message):
        return f"data.vocab_size={data.vocab_size}: the training data allow at most {most[1]} tokens"
    if least := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return f"data.vocab_size={data.vocab_size}: the characters of the training data need {least[1]} tokens"
    return f"SentencePiece cannot train a vocabulary with {data}: {message}"


# --- ready pieces ---


def vocabulary_path(data: Data, corpus: Corpus) -> Path | None:
    """The vocabulary file of data.tokenizer=pieces, None for other tokenizers. Raises UserError where there is none."""
    if data.tokenizer != "pieces":
        return None
    path = getattr(corpus, "vocabulary", None)
    if data.vocabulary:
        named = Path(data.vocabulary).expanduser()
        path = named if named.is_absolute() or not data.folder else Path(data.folder).expanduser() / named
    if path is None:
        raise UserError("data.tokenizer=pieces needs data.vocabulary: a file with one token per line, in data.folder")
    if not path.is_file():
        raise UserError(f"{path} is missing: data.tokenizer=pieces needs it, a file with one token per line")
    return path


def vocabulary_fingerprint(data: Data, corpus: Corpus) -> str:
    """sha256 of the vocabulary file, which need not be here where the corpus has recorded it; "" where none is used."""
    digest = getattr(corpus, "vocabulary_sha256", None)
    if data.tokenizer == "pieces" and not data.vocabulary and digest is not None:
        return str(digest)
    path = vocabulary_path(data, corpus)
    return "" if path is None else sha256(path)


def read_vocabulary(path: Path) -> list[str]:
    """The pieces of a file, in its order; a count after a piece and the special pieces are left out.

    Raises UserError where a line is empty, repeats a piece, or is not UTF-8, or where nothing would join the pieces.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason})") from None
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines[:-1] if lines[-1] == "" else lines, 1):
        piece = line.removesuffix("\r").partition(" ")[0].partition("\t")[0]
        if not piece:
            raise UserError(f"{path}:{number}: an empty line; expected a token")
        if piece in numbers:
            raise UserError(f"{path}:{number}: '{piece}' is already in line {numbers[piece]}")
        numbers[piece] = number
    pieces = [piece for piece in numbers if piece not in SPECIAL.values()]
    if not pieces:
        raise UserError(f"{path}: holds no tokens")
    cut = next((piece for piece in pieces if piece.startswith(SPACE) and piece != SPACE), None)
    if cut and not any(piece.endswith("@@") for piece in pieces):
        raise UserError(
            f"{path}: '{cut}' is a token of SentencePiece; only `@@ ` is joined here, so that BLEU would count tokens "
            "for words: give the text before it was cut, without data.tokenizer=pieces"
        )
    return pieces


def table(pieces: Iterable[str]) -> bytes:
    """The content of tokenizer.PIECES."""
    return "".join(f"{piece}\n" for piece in (*SPECIAL.values(), *pieces)).encode()
