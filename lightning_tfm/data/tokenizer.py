"""One SentencePiece byte-pair encoding for both languages (5.1), trained deterministically from word counts."""

import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

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
        return f"data.vocab_size={data.vocab_size}: the characters of the training text need {least[1]} pieces"
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
