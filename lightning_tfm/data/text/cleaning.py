"""Which training pairs are left out, and by which rule: each rule is a field of the Data section, off by default.

Held-out pairs are never left out. The rules are asked in the order below; a pair counts for the first that it breaks.
"""

import re
from hashlib import blake2b

import numpy as np

from lightning_tfm.config import Data

RATIO_SLACK = 3
"""words by which the longer side may exceed the ratio: short pairs vary more"""
DAMAGED = re.compile("\ufffd|[\u00c2\u00c3][\u0080-\u00bf]|\u00e2\u0080[\u0080-\u00bf]|\u00e2\u20ac")
"""the replacement character, and UTF-8 read as Latin-1 or Windows-1252 and encoded again"""


def flaw(pair: tuple[str, str], source: bool = True) -> tuple[str, int] | None:
    """What is broken in a pair and on which side, if anything: what no training and no scoring can use. `source`:
    whether it has one."""
    for side, line in enumerate(pair):
        if side == 0 and not source:
            continue
        if not line or line.isspace():
            return "empty", side
        if "\0" in line:
            return "NUL byte", side
        if "\n" in line:
            return "line break", side
        if not line.isascii() and any("\ud800" <= c <= "\udfff" for c in line):
            return "not UTF-8", side
    return None


class Rules:
    """The rules of a Data section, but for duplicates (`Seen`)."""

    def __init__(self, data: Data):
        self._max_words, self._max_ratio, self._encoding = data.max_words, data.max_ratio, data.check_encoding
        self._sampled = int(data.share * 2**64)
        self.any = bool(data.share < 1 or data.max_words or data.max_ratio or data.check_encoding)

    def broken_rule(self, pair: tuple[str, str]) -> str:
        """The rule that a pair breaks, or ""."""
        if self._sampled < 2**64 and _hash(pair) >= self._sampled:
            return "sample"
        words = [line.count(" ") + 1 for line in pair]
        if self._encoding and any(not line.isascii() and DAMAGED.search(line) for line in pair):
            return "encoding"
        if self._max_words and max(words) > self._max_words:
            return "length"
        if self._max_ratio and max(words) > self._max_ratio * min(words) + RATIO_SLACK:
            return "ratio"
        return ""


class Seen:
    """8-byte hashes of all pairs so far, in sorted runs of doubling size; nothing else of the text is kept."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def new(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        """bool [pairs]: true for those that never came before, in earlier calls or in this one."""
        texts = (f"{source}\n{target}".encode(errors="surrogateescape") for source, target in pairs)
        hashes = np.frombuffer(b"".join(blake2b(text, digest_size=8).digest() for text in texts), dtype="<u8")
        unique, first = np.unique(hashes, return_index=True)
        fresh = np.ones(len(unique), dtype=bool)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, unique), len(run) - 1)
            fresh &= run[at] != unique
        self._add(unique[fresh])
        new = np.zeros(len(pairs), dtype=bool)
        new[first[fresh]] = True
        return new

    def _add(self, hashes: np.ndarray) -> None:
        while self._runs and len(self._runs[-1]) <= 2 * len(hashes):
            hashes = np.sort(np.concatenate((self._runs.pop(), hashes)), kind="stable")
        if len(hashes):
            self._runs.append(hashes)


def _hash(pair: tuple[str, str]) -> int:
    """Uniform in [0, 2^64)."""
    text = "sample\n" + "\n".join(pair)
    return int.from_bytes(blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest(), "little")
