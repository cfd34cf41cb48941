"""One SentencePiece byte-pair encoding for both languages (5.1), trained deterministically from word counts.

Byte-pair encoding never crosses a space, so that a large text is encoded word by word, each cut up once: the same ids
as `Tokenizer.encode`, several times faster, for a text repeats its words.
"""

import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Protocol

import numpy as np
import sentencepiece

from lightning_tfm.config import BOS, EOS, PAD, UNK, Data
from lightning_tfm.errors import UserError

RESERVED = "\u2585"
"""SentencePiece leaves out a training sentence that holds this character"""
LONGEST_WORD = 4096
"""bytes of the longest word that takes part in training; SentencePiece aborts the process above 65535 characters"""


def spaced(line: str) -> str:
    """`line` as the tokenizer sees it: SentencePiece keeps the tab to itself, so that a tab becomes a space."""
    return line.replace("\t", " ")


def count_words(lines: Iterable[str], counts: Counter) -> None:
    """Add the words of `lines` to `counts`: all that byte-pair encoding needs, for it never crosses a space."""
    for line in lines:
        if RESERVED not in line:
            counts.update(spaced(line).split(" "))


def train_tokenizer(counts: Iterable[tuple[str, int]], data: Data) -> bytes:
    """A SentencePiece model of `data.vocab_size` pieces from (word, count), each word once.

    The same as training on the sentences, in less memory.

    Raises UserError where the text allows no such vocabulary, naming the size that works.
    """
    lines = (f"{word}\t{count}" for word, count in counts if word and len(word.encode()) <= LONGEST_WORD)
    first = next(lines, None)
    if first is None:
        raise UserError("the training text has no words to make a vocabulary of")
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
        return f"data.vocab_size={data.vocab_size}: the training text allows at most {most[1]} pieces"
    if least := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return f"data.vocab_size={data.vocab_size}: the characters of the training text alone need {least[1]} pieces"
    return f"SentencePiece cannot train a vocabulary with {data}: {message}"


class Tokenizer:
    """A trained model: text to piece ids and back."""

    ready = False

    def __init__(self, path: Path):
        model = Path(path).read_bytes()
        self.fingerprint = hashlib.sha256(model).hexdigest()
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.V = self._processor.get_piece_size()

    def encode(self, lines: Sequence[str], threads: int = 1) -> list[np.ndarray]:
        """Piece ids (int32) of each line, without begin and end."""
        spaces = [spaced(line) for line in lines]
        return self._processor.encode(spaces, num_threads=threads, return_type="numpy")

    def decode(self, ids: Sequence[int]) -> str:
        """Plain text of one sentence; padding, begin and end vanish."""
        return self._processor.decode([int(i) for i in ids])

    def plain(self, line: str) -> str:
        """A line of the corpus as it is scored."""
        return line

    def piece(self, id: int) -> str:
        """The piece as SentencePiece writes it, U+2581 for a space."""
        return self._processor.id_to_piece(int(id))


class Encoder(Protocol):
    """What turns text into pieces: Tokenizer, or pieces.PieceTokenizer."""

    def encode(self, lines: Sequence[str], threads: int = 1) -> list[np.ndarray]: ...


CACHED = 1_000_000
"""words whose pieces are kept; later ones are split again in every batch"""
SPACE = "\u2581"
"""SentencePiece's sign for a space: lines that hold it are encoded whole"""


class WordEncoder:
    """`tokenizer` with a cache of words. `threads` split new words.

    A `normalization` other than identity may look across spaces: then lines are encoded whole.
    """

    def __init__(self, tokenizer: Encoder, threads: int, normalization: str):
        self._tokenizer, self._threads, self._whole = tokenizer, threads, normalization != "identity"
        self._known: dict[str, int] = {}
        self._ids, self._starts = np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int64)

    def encode(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(ids of all lines one after the other, int32; pieces of each line, int64)."""
        if self._whole or any(not line.isascii() and SPACE in line for line in lines):
            encoded = self._tokenizer.encode(lines, self._threads)
            return np.concatenate(encoded), np.array([len(row) for row in encoded], dtype=np.int64)
        rows = [[word for word in spaced(line).split(" ") if word] for line in lines]
        words = [word for row in rows for word in row]
        index = np.fromiter(map(self._known.get, words, repeat(-1)), dtype=np.int64, count=len(words))
        ids, starts = self._add(words, index)
        sizes = starts[index + 1] - starts[index]
        ends = np.concatenate(([0], np.cumsum(sizes)))
        at = np.arange(ends[-1]) + np.repeat(starts[index] - ends[:-1], sizes)
        row_ends = np.cumsum([0, *map(len, rows)])
        return ids[at], np.diff(ends[row_ends])

    def _add(self, words: list[str], index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Number the words that `index` has at -1; returns pieces and starts of all numbers.

        What no longer fits into the cache is kept for this call alone.
        """
        missing = np.flatnonzero(index < 0).tolist()
        if not missing:
            return self._ids, self._starts
        new = list(dict.fromkeys(words[i] for i in missing))
        pieces = self._tokenizer.encode(new, self._threads)
        ids = np.concatenate((self._ids, *pieces))
        starts = np.concatenate((self._starts, self._starts[-1] + np.cumsum([len(row) for row in pieces])))
        numbers = dict(zip(new, range(len(self._known), len(self._known) + len(new)), strict=True))
        index[missing] = [numbers[words[i]] for i in missing]
        if len(self._known) + len(new) <= CACHED:
            self._known |= numbers
            self._ids, self._starts = ids, starts
        return ids, starts
