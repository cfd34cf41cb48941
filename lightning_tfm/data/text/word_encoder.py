"""A large text encoded word by word, each cut up once: several times faster, as a text repeats its words.

Byte-pair encoding never crosses a space, so that these are the ids of `Tokenizer.encode`.
"""

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from lightning_tfm.data.text.tokenizer import Encoder, tabs_as_spaces

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
        rows = [[word for word in tabs_as_spaces(line).split(" ") if word] for line in lines]
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

        What no longer fits into the cache is kept only for this call.
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
