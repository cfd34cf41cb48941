"""Ids of sentences, padded into tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lightning_tfm.config import BOS, EOS, PAD


@dataclass
class Batch:
    """Sentences padded at the end with 0; shapes as in model/transformer.py. B may be 0."""

    source_BS: Tensor
    """source pieces and the end token"""
    target_in_BT: Tensor
    """begin token and target pieces"""
    target_out_BT: Tensor
    """target pieces and the end token"""
    allowed: Tensor | None
    """bool [B, 1, 1, S], true where the source is not padding; None where there is no padding"""
    index_B: np.ndarray
    """position in the step's global batch, or line number in a scored text"""
    source_lengths_B: np.ndarray
    target_lengths_B: np.ndarray
    """pieces with the end token"""

    @property
    def target_tokens(self) -> int:
        return int(self.target_lengths_B.sum())


@dataclass
class Step:
    """What one rank does in one optimizer step."""

    step: int
    source_tokens: int
    target_tokens: int
    """of the whole step, over all ranks and micro-batches"""
    micro: list[Batch]


def pad(rows: Sequence[np.ndarray], first: int | None = None, last: int | None = None) -> Tensor:
    """int64 [B, longest] of `rows`, each with the ids `first` and `last` put around it where given."""
    before = int(first is not None)
    width = max((len(row) for row in rows), default=0) + before + (last is not None)
    padded = np.full((len(rows), width), PAD, dtype=np.int64)
    for line, row in zip(padded, rows, strict=True):
        end = before + len(row)
        if first is not None:
            line[0] = first
        line[before:end] = row
        if last is not None:
            line[end] = last
    return torch.from_numpy(padded)


def make_batch(source: Sequence[np.ndarray], target: Sequence[np.ndarray], index: np.ndarray) -> Batch:
    """A batch of sentences given by their pieces without begin and end."""
    source_BS = pad(source, last=EOS)
    source_lengths = np.array([len(row) + 1 for row in source], dtype=np.int64)
    full = len(source) == 0 or bool((source_lengths == source_BS.shape[1]).all())
    return Batch(
        source_BS=source_BS,
        target_in_BT=pad(target, first=BOS),
        target_out_BT=pad(target, last=EOS),
        allowed=None if full else (source_BS != PAD)[:, None, None, :],
        index_B=index,
        source_lengths_B=source_lengths,
        target_lengths_B=np.array([len(row) + 1 for row in target], dtype=np.int64),
    )
