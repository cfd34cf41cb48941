"""Scores from sufficient statistics, and what other test sentences would have made of them.

A corpus score is a function of sums over sentences: (nll, tokens) for perplexity; the ten counts of sacreBLEU for BLEU.
So a resampled test set costs one product of a matrix of counts with a matrix of statistics (Koehn 2004; Graham et al.
2014). All runs of a study share the same resamples: what is hard for all of them cancels in a difference.

Suffixes: B resamples, S sentences, X statistics of one run, R runs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import numpy as np

from lightning_tfm.scoring import bleu_tokenizer

RESAMPLES = 2000
"""the variance of a difference is then known within 3 % (one standard deviation)"""
BLOCK = 32
"""runs resampled in one product: bounds the memory"""


@lru_cache(maxsize=4)
def resamples(S: int, B: int = RESAMPLES, seed: int = 2017) -> np.ndarray:
    """How often each sentence is drawn, float64 [B, S]; rows sum to S. The same on every machine."""
    draws = np.random.Generator(np.random.Philox(seed)).integers(0, S, size=(B, S))
    flat = draws + S * np.arange(B)[:, None]
    return np.bincount(flat.ravel(), minlength=B * S).reshape(B, S).astype(np.float64)


def log_ppl(sums_X: np.ndarray) -> np.ndarray:
    """[..., (nll, tokens)] -> nll per piece, the logarithm of perplexity."""
    return sums_X[..., 0] / sums_X[..., 1]


def bleu(sums_X: np.ndarray) -> np.ndarray:
    """[..., 10] -> BLEU as sacreBLEU computes it: 4-grams, exponential smoothing of zero counts, 0 to 100."""
    length, reference = sums_X[..., 0], sums_X[..., 1]
    correct, total = sums_X[..., 2:6], sums_X[..., 6:10]
    with np.errstate(divide="ignore", invalid="ignore"):
        smooth = 2.0 ** np.cumsum((correct == 0) & (total > 0), axis=-1)
        precision = np.where(correct == 0, 1 / (smooth * total), correct / total)
        brevity = np.where(length < reference, np.exp(1 - reference / np.where(length > 0, length, 1)), 1.0)
        score = 100 * brevity * np.exp(np.log(precision).mean(-1))
    possible = (correct.sum(-1) > 0) & (total > 0).all(-1) & (length > 0)
    return np.where(possible, score, 0.0)


class BleuCounts:
    """sacreBLEU's sufficient statistics of many translations of one text, [S, 10] each: length, length of the
    reference, 4 matched and 4 proposed n-gram counts. A translation that several runs share is counted once.

    sacreBLEU's own code makes a table of all n-grams of every translation; only those of the reference matter, which
    is several times as fast (a test holds both equal).
    """

    def __init__(self, references: Sequence[str], tokenize: str):
        self._tokenize = bleu_tokenizer(tokenize)
        self._references = [self._tokenize(reference).split() for reference in references]
        self._grams = [[Counter(grams(words, n)) for n in ORDERS] for words in self._references]
        self._seen: list[dict[str, list[int]]] = [{} for _ in references]

    def __call__(self, hypotheses: Sequence[str]) -> np.ndarray:
        if len(hypotheses) != len(self._references):
            raise ValueError(f"{len(hypotheses)} translations of {len(self._references)} lines")
        table = []
        for i, text in enumerate(hypotheses):
            counts = self._seen[i].get(text)
            if counts is None:
                counts = self._seen[i][text] = self._count(i, self._tokenize(text).split())
            table.append(counts)
        return np.array(table, dtype=np.float64)

    def _count(self, i: int, words: list[str]) -> list[int]:
        correct = [0, 0, 0, 0]
        for k, n in enumerate(ORDERS):
            allowed = self._grams[i][k]
            found: dict[tuple[str, ...], int] = {}
            for gram in grams(words, n):
                if gram in allowed and found.get(gram, 0) < allowed[gram]:
                    found[gram] = found.get(gram, 0) + 1
            if not found:
                break  # then no longer one matches either
            correct[k] = sum(found.values())
        return [len(words), len(self._references[i]), *correct, *(max(len(words) - k, 0) for k in range(4))]


ORDERS = (1, 2, 3, 4)


def grams(words: list[str], n: int) -> Iterable[tuple[str, ...]]:
    return zip(*(words[k:] for k in range(n)), strict=False)


def resampled(statistics: Sequence[np.ndarray], score: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Score of every run on every resampled test set, [R, B]; `statistics` holds [S, X] for each run."""
    counts_BS = resamples(len(statistics[0]))
    parts = []
    for start in range(0, len(statistics), BLOCK):
        block_RSX = np.stack(statistics[start : start + BLOCK])
        R, S, X = block_RSX.shape
        flat_SY = np.ascontiguousarray(block_RSX.transpose(1, 0, 2)).reshape(S, R * X)
        parts.append(score((counts_BS @ flat_SY).reshape(-1, R, X)).T)
    return np.concatenate(parts)


def paired_p(statistics_a: np.ndarray, statistics_b: np.ndarray, score: Callable[[np.ndarray], np.ndarray]) -> float:
    """p of the plain paired bootstrap between two outputs, by the formula of sacreBLEU's PairedTest (Koehn 2004).

    It knows nothing of seeds: no table decides by it; it is here to be checked against sacreBLEU's.
    """
    a, b = (score(one.sum(0)) for one in (statistics_a, statistics_b))
    distance = np.abs(np.diff(resampled([statistics_a, statistics_b], score), axis=0)[0])
    beyond = distance - distance.mean() > abs(b - a)
    return float((beyond.sum() + 1) / (len(beyond) + 1))
