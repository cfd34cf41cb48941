"""Batches on their way to a GPU: all of a batch's tensors in one buffer, one copy, nothing waited for."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lightning_tfm.pieces import PAD

if TYPE_CHECKING:
    from lightning_tfm.data.batch import Batch


def flattened(batch: "Batch", pinned: bool) -> "Batch":
    """With its buffer, which a GPU can fetch by itself where it is `pinned`."""
    parts = _parts(batch)
    flat = torch.empty(sum(part.numel() for part in parts), dtype=torch.int64, pin_memory=pinned)
    return replace(batch, flat=torch.cat([part.flatten() for part in parts], out=flat))


def carried(batch: "Batch", device: torch.device) -> "Batch":
    """Its tensors on `device`, cut from its buffer there; the mask of the source is made there."""
    flat = flattened(batch, False).flat if batch.flat is None else batch.flat
    assert flat is not None
    parts = _parts(batch)
    pieces = flat.to(device, non_blocking=True).split([part.numel() for part in parts])
    source, ins, outs, keys, rows = (piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True))
    return replace(
        batch,
        source_BS=source,
        target_in_BT=ins,
        target_out_BT=outs,
        allowed=None if batch.allowed is None else (source != PAD)[:, None, None, :],
        rows_N=None if batch.rows_N is None else rows,
        keys_3B=keys,
        flat=None,
    )


def _parts(batch: "Batch") -> list[Tensor]:
    rows = torch.empty(0, dtype=torch.int64) if batch.rows_N is None else batch.rows_N
    return [batch.source_BS, batch.target_in_BT, batch.target_out_BT, batch.keys_3B, rows]
