"""Labelled brackets of linearised trees against a treebank's, by the rules of EVALB (Sekine and Collins 1997).

A tree is a line as data/treebank.py writes it: `S NP XX XX /NP VP XX /VP . /S`. XX is a word, other marks of
LEAVES are punctuation, anything else opens a bracket, and with a slash closes it. By EVALB's COLLINS.prm:

    left out    punctuation, brackets labelled TOP, brackets without words
    labels      up to their first `-` or `=`; ADVP is PRT
    a match     the same label over the same words; of repeated brackets as many as both trees have

A line is ill-formed where its brackets do not close each other, or its words and punctuation are not where the
reference has them. EVALB leaves such lines out of its sums, which rewards them; here all brackets of the reference are
missed there, and none is proposed. Nothing is repaired. Where no line is ill-formed the score is EVALB's.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lightning_tfm.corpus_metrics import Summed, percent
from lightning_tfm.data.treebank import LEAVES, WORD, plain_label
from lightning_tfm.errors import UserError

DELETED, ALIKE = ("TOP",), {"PRT": "ADVP"}
"""labels that do not count, and those that count as another"""


@dataclass(frozen=True)
class Parsed:
    """A line that is a tree, or several."""

    words: tuple[bool, ...]
    """of each leaf, whether it is a word"""
    brackets: Counter[tuple[str, int, int]]
    """(label, first word, word after the last), punctuation not counted, how often"""


@lru_cache(maxsize=1 << 16)
def parse_tree(line: str) -> Parsed | None:
    """The tree of a line; None where its brackets do not close each other."""
    leaves: list[bool] = []
    brackets: Counter[tuple[str, int, int]] = Counter()
    open_, words = list[tuple[str, int]](), 0
    for token in line.split():
        if token in LEAVES:
            leaves.append(token == WORD)
            words += token == WORD
        elif not token.startswith("/"):
            open_.append((token, words))
        elif not open_ or open_[-1][0] != token[1:]:
            return None
        else:
            _, start = open_.pop()
            label = plain_label(token[1:])
            if words > start and label not in DELETED:
                brackets[ALIKE.get(label, label), start, words] += 1
    return None if open_ else Parsed(tuple(leaves), brackets)


class Brackets(Summed):
    """Of each line: brackets matched, of the reference, proposed; whether it is ill-formed; 1."""

    WIDTH = 5
    SIGNATURE = "evalb|COLLINS.prm|ill-formed:all missed|version:1"

    def __init__(self, references: Sequence[str], tokenize: str):
        super().__init__(references, tokenize)
        self._gold = [_tree(reference, line) for line, reference in enumerate(self.references, 1)]

    def counts(self, hypotheses: Sequence[str]) -> list[list[int]]:
        return [self._count(parse_tree(line), gold) for line, gold in zip(hypotheses, self._gold, strict=True)]

    def _count(self, made: Parsed | None, gold: Parsed) -> list[int]:
        if made is None or made.words != gold.words:
            return [0, gold.brackets.total(), 0, 1, 1]
        both = gold.brackets & made.brackets
        return [both.total(), gold.brackets.total(), made.brackets.total(), 0, 1]


def _tree(reference: str, line: int) -> Parsed:
    """Raises UserError where it is not a tree; one without brackets that count, of punctuation alone say, is one."""
    tree = parse_tree(reference)
    if tree is None or not tree.words:
        raise UserError(f"brackets are counted in trees; line {line} of the references is not one: {reference[:60]}")
    return tree


class Precision(Brackets):
    """Share of the proposed brackets that are the reference's, in percent."""

    @staticmethod
    def score(sums_X: np.ndarray) -> np.ndarray:
        return percent(sums_X[..., 0], sums_X[..., 2])


class Recall(Brackets):
    """Share of the reference's brackets that are found, in percent."""

    @staticmethod
    def score(sums_X: np.ndarray) -> np.ndarray:
        return percent(sums_X[..., 0], sums_X[..., 1])


class F1(Brackets):
    """Harmonic mean of both, in percent."""

    @staticmethod
    def score(sums_X: np.ndarray) -> np.ndarray:
        return percent(2 * sums_X[..., 0], sums_X[..., 1] + sums_X[..., 2])


class IllFormed(Brackets):
    """Share of the lines that are not a tree over the reference's words, in percent."""

    @staticmethod
    def score(sums_X: np.ndarray) -> np.ndarray:
        return percent(sums_X[..., 3], sums_X[..., 4])
