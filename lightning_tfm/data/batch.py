"""Ids of sentences, padded into tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lightning_tfm.data.carry import carried
from lightning_tfm.pieces import BOS, EOS, PAD


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
    rows_N: Tensor | None
    """which of the B * T target positions are no padding; None where all are"""
    keys_3B: Tensor
    """index, source lengths and target lengths, as below, for the device"""
    index_B: np.ndarray
    """position in the step's global batch, or line number in a scored text"""
    source_lengths_B: np.ndarray
    target_lengths_B: np.ndarray
    """pieces with the end token"""
    flat: Tensor | None = None
    """all of its tensors in one buffer, where that was prepared"""

    @property
    def target_tokens(self) -> int:
        return int(self.target_lengths_B.sum())

    def to(self, device: torch.device) -> "Batch":
        """On `device`, by one copy that nothing waits for; on a CPU it is there already."""
        return self if device.type == "cpu" else carried(self, device)


@dataclass
class Step:
    """What one rank does in one optimizer step."""

    step: int
    source_tokens: int
    target_tokens: int
    """of the whole step, over all ranks and micro-batches"""
    micro: list[Batch]

    def to(self, device: torch.device) -> "Step":
        return self if device.type == "cpu" else replace(self, micro=[batch.to(device) for batch in self.micro])


def pad(rows: Sequence[np.ndarray], first: int | None = None, last: int | None = None) -> Tensor:
    """int64 [B, longest] of `rows`, each with the ids `first` and `last` put around it where given."""
    before = int(first is not None)
    ends_B = before + np.fromiter(map(len, rows), np.int64, len(rows))
    place_T = np.arange(max(ends_B, default=before) + (last is not None))
    padded_BT = np.full((len(rows), len(place_T)), PAD, dtype=np.int64)
    if len(rows):  # one assignment for all, for a loop over sentences holds the interpreter's lock for milliseconds
        padded_BT[(place_T >= before) & (place_T < ends_B[:, None])] = np.concatenate(rows)
    if first is not None:
        padded_BT[:, 0] = first
    if last is not None:
        padded_BT[np.arange(len(rows)), ends_B] = last
    return torch.from_numpy(padded_BT)


def make_batch(source: Sequence[np.ndarray], target: Sequence[np.ndarray], index: np.ndarray) -> Batch:
    """A batch of sentences given by their pieces without begin and end."""
    source_BS, target_out_BT = pad(source, last=EOS), pad(target, last=EOS)
    sides = ([len(row) + 1 for row in source], [len(row) + 1 for row in target])
    lengths = np.array(sides, dtype=np.int64).reshape(2, -1)
    full = bool((lengths[0] == source_BS.shape[1]).all())
    present_BT = np.arange(target_out_BT.shape[1]) < lengths[1][:, None]
    return Batch(
        source_BS=source_BS,
        target_in_BT=pad(target, first=BOS),
        target_out_BT=target_out_BT,
        allowed=None if full else (source_BS != PAD)[:, None, None, :],
        rows_N=None if present_BT.all() else torch.from_numpy(np.flatnonzero(present_BT)),
        keys_3B=torch.from_numpy(np.concatenate((index[None].astype(np.int64), lengths))),
        index_B=index,
        source_lengths_B=lengths[0],
        target_lengths_B=lengths[1],
    )
