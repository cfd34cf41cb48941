"""Ids of sentences, padded into tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lightning_tfm.special_tokens import BOS, EOS, PAD


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
    """bool [B, 1, 1, S], true where the source is not padding; None if there is no padding"""
    rows_N: Tensor | None
    """which of the B * T target positions are not padding; None if all are"""
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
        """On `device`, by one copy that nothing waits for; on a CPU it is there already.

        Tensors are cut from the buffer there; the mask of the source is made there.
        """
        if device.type == "cpu":
            return self
        flat = self.with_buffer(False).flat if self.flat is None else self.flat
        assert flat is not None
        parts = self._parts()
        pieces = flat.to(device, non_blocking=True).split([part.numel() for part in parts])
        source, ins, outs, keys, rows = (piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True))
        return replace(
            self,
            source_BS=source,
            target_in_BT=ins,
            target_out_BT=outs,
            allowed=None if self.allowed is None else (source != PAD)[:, None, None, :],
            rows_N=None if self.rows_N is None else rows,
            keys_3B=keys,
            flat=None,
        )

    def with_buffer(self, pinned: bool) -> "Batch":
        """With its buffer, which a GPU can fetch by itself where it is `pinned`."""
        parts = self._parts()
        flat = torch.empty(sum(part.numel() for part in parts), dtype=torch.int64, pin_memory=pinned)
        return replace(self, flat=torch.cat([part.flatten() for part in parts], out=flat))

    def _parts(self) -> list[Tensor]:
        rows = torch.empty(0, dtype=torch.int64) if self.rows_N is None else self.rows_N
        return [self.source_BS, self.target_in_BT, self.target_out_BT, self.keys_3B, rows]


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


def pad(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(int64 [B, longest + 1], bool) of `rows`, each with the end token behind it, and where they are not padding.

    One assignment for all, as a loop over sentences holds the interpreter's lock for milliseconds.
    """
    lengths_B = np.fromiter(map(len, rows), np.int64, len(rows))
    place_T = np.arange(lengths_B.max(initial=0) + 1)
    padded_BT = np.full((len(rows), len(place_T)), PAD, dtype=np.int64)
    if len(rows):
        padded_BT[place_T < lengths_B[:, None]] = np.concatenate(rows)
    padded_BT[np.arange(len(rows)), lengths_B] = EOS
    return padded_BT, place_T <= lengths_B[:, None]


def make_batch(source: Sequence[np.ndarray], target: Sequence[np.ndarray], index: np.ndarray) -> Batch:
    """A batch of sentences given by their pieces without begin and end."""
    (source_BS, of_source_BS), (out_BT, present_BT) = pad(source), pad(target)
    in_BT = np.full_like(out_BT, BOS)
    in_BT[:, 1:] = np.where(present_BT[:, 1:], out_BT[:, :-1], PAD)
    lengths = np.stack((of_source_BS.sum(1), present_BT.sum(1)))
    return Batch(
        source_BS=torch.from_numpy(source_BS),
        target_in_BT=torch.from_numpy(in_BT),
        target_out_BT=torch.from_numpy(out_BT),
        allowed=None if of_source_BS.all() else torch.from_numpy(source_BS != PAD)[:, None, None, :],
        rows_N=None if present_BT.all() else torch.from_numpy(np.flatnonzero(present_BT)),
        keys_3B=torch.from_numpy(np.concatenate((index[None].astype(np.int64), lengths))),
        index_B=index,
        source_lengths_B=lengths[0],
        target_lengths_B=lengths[1],
    )
