"""The batch plan: which sentences every optimizer step takes, and how they are cut into micro-batches.

A pure function of (lengths, token budget, seed, step, rank, world, micro-batch limit). The global batch of a step
depends only on the first four: ranks and micro-batches only cut it. The place in the data is one integer, the step.

Within an epoch every sentence comes exactly once. Sentences are put into a random order and then stably sorted by
(target length, source length); the sorted row is cut where source or target tokens would pass the budget (5.1: "batched
together by approximate sequence length"), and the batches are shuffled. The sorted lengths are the same in every epoch,
so the cuts are too: only who fills them, and in which order they come, changes.
"""

from functools import lru_cache
from itertools import pairwise

import numpy as np

from lightning_tfm.errors import UserError
from lightning_tfm.rng import generator


class Plan:
    """Lengths are in pieces with the end token, one entry per sentence; `ids` names the sentences (default 0 … n-1).

    Raises UserError when nothing is left to train on, or a single sentence exceeds the budget.
    """

    def __init__(
        self,
        source_lengths: np.ndarray,
        target_lengths: np.ndarray,
        tokens: int,
        seed: int,
        ids: np.ndarray | None = None,
    ):
        self.ids = np.arange(len(source_lengths)) if ids is None else ids
        self.source_lengths, self.target_lengths = source_lengths, target_lengths
        self.tokens, self.seed = tokens, seed
        if len(self.ids) == 0:
            raise UserError(
                "no training pairs are left: data.max_len is below the shortest sentence, or the split is empty"
            )
        longest = int(max(source_lengths[self.ids].max(), target_lengths[self.ids].max()))
        if longest > tokens:
            raise UserError(
                f"a sentence of {longest} tokens exceeds training.tokens={tokens}, the budget of one step: "
                "raise training.tokens or lower data.max_len"
            )
        order = np.lexsort((source_lengths[self.ids], target_lengths[self.ids]))
        self.edges = cut_by_budget(source_lengths[self.ids][order], target_lengths[self.ids][order], tokens)
        self.steps_per_epoch = len(self.edges) - 1
        self._epoch = lru_cache(maxsize=2)(self._shuffle)

    def _shuffle(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        random = generator("plan", self.seed, epoch)
        mixed = self.ids[random.permutation(len(self.ids))]
        row = mixed[np.lexsort((self.source_lengths[mixed], self.target_lengths[mixed]))]
        return row, random.permutation(self.steps_per_epoch)

    def global_batch(self, step: int) -> np.ndarray:
        """Ids of the sentences of optimizer step `step` (from 0), over all devices, sorted by length."""
        epoch, position = divmod(step, self.steps_per_epoch)
        row, order = self._epoch(epoch)
        batch = order[position]
        return row[self.edges[batch] : self.edges[batch + 1]]

    def step_tokens(self, step: int) -> tuple[int, int]:
        """(source, target) tokens of the whole step."""
        ids = self.global_batch(step)
        return int(self.source_lengths[ids].sum()), int(self.target_lengths[ids].sum())

    def micro_batches(self, step: int, rank: int, world: int, micro_tokens: int) -> list[np.ndarray]:
        """Positions in the step's global batch that `rank` takes, one array per micro-batch, some perhaps empty.

        All ranks get the same number of micro-batches; no micro-batch holds more than `micro_tokens` padded tokens on
        a side (0: no limit). Raises UserError when a single sentence does.
        """
        ids = self.global_batch(step)
        return split_evenly(self.source_lengths[ids], self.target_lengths[ids], world, micro_tokens)[rank::world]


def cut_by_budget(source_lengths: np.ndarray, target_lengths: np.ndarray, tokens: int) -> np.ndarray:
    """Edges of consecutive batches that hold at most `tokens` true tokens on each side, as full as they go."""
    ends = [np.concatenate(([0], np.cumsum(lengths))) for lengths in (source_lengths, target_lengths)]
    edges, n = [0], len(source_lengths)
    while edges[-1] < n:
        start = edges[-1]
        edges.append(int(min(np.searchsorted(end, end[start] + tokens, "right") for end in ends)) - 1)
    return np.array(edges)


def padded_tokens(source_lengths: np.ndarray, target_lengths: np.ndarray) -> int:
    """Cells of the larger of the two padded rectangles."""
    return len(source_lengths) * int(max(source_lengths.max(), target_lengths.max())) if len(source_lengths) else 0


def split_evenly(
    source_lengths: np.ndarray, target_lengths: np.ndarray, world: int, micro_tokens: int
) -> list[np.ndarray]:
    """Cut a global batch into world * k consecutive pieces of nearly equal cost, with the smallest k that fits."""
    n = len(source_lengths)
    longest = int(max(source_lengths.max(), target_lengths.max()))
    if micro_tokens and longest > micro_tokens:
        raise UserError(
            f"a sentence of {longest} tokens exceeds trainer.micro_tokens={micro_tokens}: "
            "raise it or lower data.max_len"
        )
    cost = np.cumsum(source_lengths + target_lengths)
    k = 1
    while True:
        pieces = world * k
        inner = np.searchsorted(cost, cost[-1] * np.arange(1, pieces) / pieces)
        edges = np.concatenate(([0], inner, [n]))
        parts = [np.arange(a, b) for a, b in pairwise(edges)]
        widest = max(padded_tokens(source_lengths[p], target_lengths[p]) for p in parts)
        if not micro_tokens or widest <= micro_tokens:
            return parts
        k = max(k + 1, k * widest // micro_tokens // 2)
