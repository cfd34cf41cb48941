"""Chained sentences of the built-in language: `chained` to train on, `long` to score beyond the training length.

A chain is a sentence of builtin.py's grammar with any number of clauses instead of at most two. Each further clause
begins with `e` (and) or `par` (because), is plain or not by the same chance, and its `il` and `lo` stand for the
subject of the clause before and for the last object. So a clause is as hard at the end of a chain as it is after its
first one, and what changes with the length is the length.

    chained   `data.pairs` pairs of 1 to 16 clauses, n clauses with a chance in proportion to 1/n: as many of one length
              scale as of another. `data.max_len` leaves out those above the training length.
    long      LINES pairs, their lengths spread evenly from one word to FARTHEST times the training length
              (`config.Data.training_length`) in words; a word is at least one piece, so they reach as far in pieces.

No source sentence of `long` is in train, val or test, and none of `chained` in val, test or `long`.
"""

import hashlib
import inspect
import sys
from collections.abc import Iterator
from itertools import accumulate

from lightning_tfm.config import Data
from lightning_tfm.data.builtin import P_BECAUSE, P_PLAIN, P_QUESTION, SPLITS, Builtin, Grammar
from lightning_tfm.data.lexicon import Draw, Lexicon

CHAINED, LONG = "chained", "long"
MOST = 16
"""clauses of the longest chain to train on"""
LINES = 1600
"""of `long`"""
FARTHEST = 5
"""times the training length: where `long` ends"""

Pair = tuple[str, str]


class Chains(Grammar):
    """Draws sentences of several clauses."""

    def chain(self, clauses: int, words: int = 0) -> Pair:
        """One pair of at least so many clauses, and of as many more as give it so many source words."""
        self._plain = self._chance(P_PLAIN)
        question = self._hard(P_QUESTION)
        source, target, subject, object_ = self._clause("question" if question else "main")
        made = 1
        while made < clauses or len(source) < words:
            self._plain = self._chance(P_PLAIN)
            because = self._chance(P_BECAUSE)
            more = self._clause("subordinate" if because else "main", subject, object_)
            source = [*source, "par" if because else "e", *more[0]]
            target = [*target, "wal" if because else "ond", *more[1]]
            subject, object_ = more[2], more[3] or object_
            made += 1
        first, second = (" ".join(side) for side in (source, target))
        end = ".?"[question]
        return first[0].upper() + first[1:] + end, second[0].upper() + second[1:] + end


class BuiltinChains:
    """The splits `chained` and `long` for one Data section."""

    def __init__(self, data: Data):
        self._data = data

    def lines(self, split: str) -> Iterator[Pair]:
        """Pairs of one of the two splits."""
        long = self._long()
        return iter(long) if split == LONG else self._chained({source for source, _ in long})

    def fingerprint(self, split: str) -> str:
        """Text that changes whenever the lines would, added to the built-in corpus's own."""
        here = hashlib.sha256(inspect.getsource(sys.modules[__name__]).encode()).hexdigest()
        return f"{split} {here} limit={self._data.training_length}"

    def _grammar(self, split: str) -> Chains:
        seed = self._data.corpus_seed
        return Chains(Lexicon(seed), Draw(split, seed))

    def _known(self, *splits: str) -> set[str]:
        text = Builtin(self._data.pairs, self._data.corpus_seed)
        return {source for split in splits for source, _ in text.lines(split)}

    def _long(self) -> list[Pair]:
        grammar, taken, found = self._grammar(LONG), self._known(*SPLITS), list[Pair]()
        while len(found) < LINES:
            source, target = grammar.chain(1, 1 + len(found) * FARTHEST * self._data.training_length // LINES)
            if source not in taken:
                taken.add(source)
                found.append((source, target))
        return found

    def _chained(self, long: set[str]) -> Iterator[Pair]:
        grammar, taken = self._grammar(CHAINED), self._known("val", "test") | long
        draw, weights = Draw("clauses", self._data.corpus_seed), list(accumulate(1 / n for n in range(1, MOST + 1)))
        missing = self._data.pairs
        while missing:
            source, target = grammar.chain(1 + draw.zipf(weights))
            if source not in taken:
                taken.add(source)
                missing -= 1
                yield source, target
