"""Scores from sufficient statistics, and what other test sentences would have made of them.

A corpus score is a function of sums over sentences: (nll, tokens) for perplexity, n-grams' counts (corpus_metrics.py).
So a resampled test set costs one product of a matrix of counts with a matrix of statistics (Koehn 2004; Graham et al.
2014). All runs of a study share the same resamples: what is hard for all of them cancels in a difference.

Suffixes: B resamples, S sentences, X statistics of one run, R runs.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

RESAMPLES, SEED = 2000, 2017
"""the variance of a difference is then known within 3 % (one standard deviation)"""
BLOCK = 32
"""runs resampled in one product: bounds the memory"""


@lru_cache(maxsize=4)
def resamples(S: int) -> np.ndarray:
    """How often each sentence is drawn, float64 [RESAMPLES, S]; rows sum to S. The same on every machine."""
    draws = np.random.Generator(np.random.Philox(SEED)).integers(0, S, size=(RESAMPLES, S))
    flat = draws + S * np.arange(RESAMPLES)[:, None]
    return np.bincount(flat.ravel(), minlength=RESAMPLES * S).reshape(RESAMPLES, S).astype(np.float64)


def ratio(sums_X: np.ndarray) -> np.ndarray:
    """[..., 2] -> the nll per piece, the logarithm of perplexity; or per word."""
    return sums_X[..., 0] / sums_X[..., 1]


def resampled(statistics: Sequence[np.ndarray], score: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Score of every run on every resampled test set, [R, B]; `statistics` holds [S, X] for each run."""
    counts_BS = resamples(len(statistics[0]))
    parts = []
    for start in range(0, len(statistics), BLOCK):
        block_RSX = np.stack(statistics[start : start + BLOCK])
        R, S, X = block_RSX.shape
        flat_SY = np.ascontiguousarray(block_RSX.transpose(1, 0, 2)).reshape(S, R * X)
        with np.errstate(divide="ignore", invalid="ignore"):  # sums of a user-defined class that are 0 in a resample
            parts.append(score((counts_BS @ flat_SY).reshape(-1, R, X)).T)
    return np.concatenate(parts)
