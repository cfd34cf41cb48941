"""Metrics of translations whose corpus score is a function of counts that add up over sentences (metrics.py).

BLEU and chrF are sacreBLEU's, whose arithmetic and signature `corpus` gives; `score` gives the same of any sums, many
at once. For others, including user-defined ones, `score` is all the arithmetic.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import ClassVar

import numpy as np
import sacrebleu

from lightning_tfm.bleu import Score, bleu, bleu_tokenizer
from lightning_tfm.config import Evaluation
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import METRICS, Metric
from lightning_tfm.user_code.modules import source_digest, with_line


class Counted(ABC):
    """Of many translations of one text."""

    WIDTH: int
    """counts of a sentence"""

    def __init__(self, references: Sequence[str], tokenize: str):
        """`tokenize`: sacreBLEU's, for a metric of words."""
        self.references, self.tokenize = list(references), tokenize

    @abstractmethod
    def corpus(self, hypotheses: Sequence[str]) -> Score: ...

    def __call__(self, hypotheses: Sequence[str]) -> np.ndarray:
        """[S, WIDTH]"""
        if len(hypotheses) != len(self.references):
            raise ValueError(f"{len(hypotheses)} translations of {len(self.references)} lines")
        return np.array(self.counts(hypotheses), dtype=np.float64)

    @abstractmethod
    def counts(self, hypotheses: Sequence[str]) -> list[list[int]]: ...

    @staticmethod
    @abstractmethod
    def score(sums_X: np.ndarray) -> np.ndarray:
        """[..., WIDTH] -> the score."""


def counter_class(metric: Metric) -> type[Counted]:
    """The class of a metric that reads translations."""
    module, _, name = metric.counted.rpartition(":")
    cls: type[Counted] = getattr(import_module(module or __name__), name)
    return cls


def counter_of(metric: Metric, references: Sequence[str], how: Evaluation) -> Counted:
    """What counts it in translations of these lines."""
    return counter_class(metric)(references, how.bleu_tokenize)


def corpus_scores(how: Evaluation, hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """Each of the metrics that `how` names -> its score. Raises UserError for an unknown one."""
    return {m.name: counter_of(m, references, how).corpus(hypotheses) for m in METRICS.named(how.metrics)}


class Summed(Counted):
    """A metric that is its counts: whole numbers of each sentence, and `score` of their sums.

    A user-defined class derives from this one and defines WIDTH, `counts` and `score`; its label, digits and the
    like are attributes named as in metrics.py:Metric. Its module's source, and the user's modules it imports, are part
    of the signature, so that runs scored by two versions of it are not compared.
    """

    SIGNATURE: ClassVar[str] = ""
    """of a metric that ships: its rules and their version"""

    def corpus(self, hypotheses: Sequence[str]) -> Score:
        """Raises UserError where a user-defined class fails, or gives what cannot be summed, packed or resampled."""
        try:
            counts_SX = self(hypotheses)
            if counts_SX.shape != (len(hypotheses), self.WIDTH) or (counts_SX % 1 != 0).any():
                wanted = f"[{len(hypotheses)} lines, WIDTH={self.WIDTH}] whole numbers are wanted"
                raise ValueError(f"counts() gives {counts_SX.tolist()[:1]} …, {list(counts_SX.shape)}: {wanted}")
            sums_X = counts_SX.sum(0)
            with np.errstate(divide="ignore", invalid="ignore"):
                value, (row, other) = float(self.score(sums_X)), self.score(np.stack([sums_X, sums_X + 1]))
            if not (np.isfinite([value, other]).all() and value == row):
                raise ValueError(f"score() gives {value} for sums {sums_X}, {row} for the same as a row among others")
        except Exception as error:  # whatever it may raise
            named = self.signature().partition("|")[0]
            raise UserError(f"metric '{named}': {with_line(error, type(self).__module__)}") from error
        return Score(value, self.signature())

    @classmethod
    def signature(cls) -> str:
        if cls.SIGNATURE:
            return cls.SIGNATURE
        return f"{cls.__module__}:{cls.__qualname__}|source:{source_digest(cls)[:16]}"


def signature_now(metric: Metric) -> str:
    """The signature of what it would count now; empty for sacreBLEU's, which gives its own."""
    counter = counter_class(metric)
    return counter.signature() if issubclass(counter, Summed) else ""


class Exact(Summed):
    """Lines that equal their reference, in percent, apart from white space at the ends and its amount."""

    WIDTH = 2
    SIGNATURE = "lines|spaces:one|version:1"

    def counts(self, hypotheses: Sequence[str]) -> list[list[int]]:
        return [[int(h.split() == r.split()), 1] for h, r in zip(hypotheses, self.references, strict=True)]

    @staticmethod
    def score(sums_X: np.ndarray) -> np.ndarray:
        return percent(sums_X[..., 0], sums_X[..., 1])


def percent(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """100 part / whole, 0 of nothing."""
    return 100 * np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


class Bleu(Counted):
    """Length, length of the reference, 4 matched and 4 proposed n-gram counts.

    sacreBLEU's own code makes a table of all n-grams of every translation; only those of the reference matter, which
    is several times as fast (a test holds both equal). A translation that several runs share is counted once.
    """

    WIDTH = 10

    def __init__(self, references: Sequence[str], tokenize: str):
        super().__init__(references, tokenize)
        self._tokenize = bleu_tokenizer(tokenize)
        self._words = [self._tokenize(reference).split() for reference in references]
        self._grams = [[Counter(grams(words, n)) for n in ORDERS] for words in self._words]
        self._seen: list[dict[str, list[int]]] = [{} for _ in references]

    def corpus(self, hypotheses: Sequence[str]) -> Score:
        return bleu(hypotheses, self.references, self.tokenize)

    def counts(self, hypotheses: Sequence[str]) -> list[list[int]]:
        table = []
        for i, text in enumerate(hypotheses):
            counts = self._seen[i].get(text)
            if counts is None:
                counts = self._seen[i][text] = self._count(i, self._tokenize(text).split())
            table.append(counts)
        return table

    def _count(self, i: int, words: list[str]) -> list[int]:
        correct = [0, 0, 0, 0]
        for k, n in enumerate(ORDERS):
            allowed = self._grams[i][k]
            matches: dict[tuple[str, ...], int] = {}
            for gram in grams(words, n):
                if gram in allowed and matches.get(gram, 0) < allowed[gram]:
                    matches[gram] = matches.get(gram, 0) + 1
            if not matches:
                break  # then no longer one matches either
            correct[k] = sum(matches.values())
        return [len(words), len(self._words[i]), *correct, *(max(len(words) - k, 0) for k in range(4))]

    @staticmethod
    def score(sums_X: np.ndarray) -> np.ndarray:
        """As sacreBLEU computes it: 4-grams, exponential smoothing of zero counts, 0 to 100."""
        length, reference = sums_X[..., 0], sums_X[..., 1]
        correct, total = sums_X[..., 2:6], sums_X[..., 6:10]
        with np.errstate(divide="ignore", invalid="ignore"):
            smooth = 2.0 ** np.cumsum((correct == 0) & (total > 0), axis=-1)
            precision = np.where(correct == 0, 1 / (smooth * total), correct / total)
            brevity = np.where(length < reference, np.exp(1 - reference / np.where(length > 0, length, 1)), 1.0)
            score = 100 * brevity * np.exp(np.log(precision).mean(-1))
        possible = (correct.sum(-1) > 0) & (total > 0).all(-1) & (length > 0)
        return np.where(possible, score, 0.0)


class Chrf(Counted):
    """chrF2 (Popović 2015) by sacreBLEU's defaults: of each of 6 orders, the translation's character n-grams, the
    reference's, and those of both."""

    WIDTH = 18

    def __init__(self, references: Sequence[str], tokenize: str = ""):
        super().__init__(references, tokenize)
        self._own = sacrebleu.CHRF(references=[self.references])

    def corpus(self, hypotheses: Sequence[str]) -> Score:
        value = self._own.corpus_score(list(hypotheses), None).score
        return Score(value, str(self._own.get_signature()))

    def counts(self, hypotheses: Sequence[str]) -> list[list[int]]:
        counts: list[list[int]] = self._own._extract_corpus_statistics(list(hypotheses), None)
        return counts

    @staticmethod
    def score(sums_X: np.ndarray) -> np.ndarray:
        """F with beta 2 of the mean precision and recall over the orders that both sides have, 0 to 100."""
        made, there, both = np.moveaxis(sums_X.reshape(*sums_X.shape[:-1], 6, 3), -1, 0)
        possible = (made > 0) & (there > 0)
        orders = np.maximum(possible.sum(-1), 1)
        precision, recall = (
            np.divide(both, of, out=np.zeros_like(both), where=possible).sum(-1) / orders for of in (made, there)
        )
        weighed = 4 * precision + recall
        return 100 * np.divide(5 * precision * recall, weighed, out=np.zeros_like(weighed), where=weighed > 0)


ORDERS = (1, 2, 3, 4)


def grams(words: list[str], n: int) -> Iterable[tuple[str, ...]]:
    return zip(*(words[k:] for k in range(n)), strict=False)
