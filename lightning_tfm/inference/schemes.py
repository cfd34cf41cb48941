"""What a positional scheme does, as numbers: of the trained weights, and of any user-defined class."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_tfm.data.batch import Batch
from lightning_tfm.data.token_store import Split
from lightning_tfm.inference.attention_hooks import Look, Place, attention_places, some_lines, watch_attention
from lightning_tfm.inference.load import Trained
from lightning_tfm.model.positions import EmbeddingScheme, NoPositions, RotationScheme
from lightning_tfm.model.transformer import SequenceModel

POSITIONS, CHANNELS = 48, 64
"""recorded at most; of more channels every second, third, …"""
LINES = 100
"""sentence pairs of the dev text, over whose queries biases are averaged"""


def schemes(trained: Trained, split: Split) -> dict[str, Any]:
    """`stacks`: encoder, decoder -> `kind`, `values`, of every `step`-th channel; empty if positions are not encoded.

    embedding: [position][channel], what is added to embeddings; rotation: [channel][distance], the product of a unit
    vector turned by that distance with itself; bias: [layer and head][distance], the mean of what is added to scores,
    over the queries of the dev text, from `first` on; None where no query had such a key.
    """
    transformer = trained.module.transformer
    with torch.no_grad():
        stacks = _embeddings(transformer) or _rotations(transformer) or _biases(transformer, some_lines(split, LINES))
    return {"schema": 1, "positions": transformer.config.positions, "stacks": stacks}


def _embeddings(transformer: SequenceModel) -> dict[str, Any]:
    named = {"encoder": transformer.encoder_positions, "decoder": transformer.decoder_positions}
    length = min(POSITIONS, transformer.max_length)
    width = transformer.config.d_model
    step = -(-width // CHANNELS)
    blank = torch.zeros(1, length, width)
    return {
        stack: {"kind": "embedding", "step": step, "values": _round(scheme.embed(blank, 1.0, 0)[0, :, ::step])}
        for stack, scheme in named.items()
        if isinstance(scheme, EmbeddingScheme) and not isinstance(scheme, NoPositions)
    }


def _rotations(transformer: SequenceModel) -> dict[str, Any]:
    curves = {}
    for kind, layer, module in attention_places(transformer):
        scheme = getattr(module, "scheme", None)
        if layer == 0 and isinstance(scheme, RotationScheme):
            unit_KHTK = torch.eye(transformer.config.d_k)[:, None, None].expand(-1, 1, POSITIONS, -1)
            turned_KTK = scheme.rotate(unit_KHTK, 0)[:, 0]
            curves[kind] = {"kind": "rotation", "values": _round((turned_KTK * turned_KTK[:, :1]).sum(-1))}
    return curves


def _biases(transformer: SequenceModel, batches: Iterable[Batch]) -> dict[str, Any]:
    """Mean over queries, of each layer and head, by distance."""
    size = 2 * POSITIONS + 1
    sums: dict[tuple[str, int], np.ndarray] = {}
    counts = {kind: np.zeros(size) for kind in ("encoder", "decoder")}

    def add(place: Place, look: Look) -> None:
        if look.bias is None:
            return
        T, S = look.weights.shape[2:]
        apart_TS = np.arange(S) - np.arange(T)[:, None]
        near = abs(apart_TS) <= POSITIONS
        near &= True if look.mask is None else look.mask.expand(1, 1, T, S)[0, 0].numpy()
        where = apart_TS[near] + POSITIONS
        total = sums.setdefault((place.kind, place.layer), np.zeros((place.module.h, size)))
        for h, one_TS in enumerate(look.bias.expand(1, place.module.h, T, S)[0].double().numpy()):
            total[h] += np.bincount(where, one_TS[near], size)
        if place.layer == 0:
            counts[place.kind] += np.bincount(where, minlength=size)

    inside = [place for place in attention_places(transformer) if place.kind != "cross"]
    with watch_attention(inside, add):
        for batch in batches:
            transformer(batch.source_BS, batch.target_in_BT)
    curves = {}
    for kind, count in counts.items():
        if count.any():
            reached = np.flatnonzero(count)
            span = slice(reached[0], reached[-1] + 1)
            heads = np.concatenate([total for (stack, _), total in sorted(sums.items()) if stack == kind])[:, span]
            with np.errstate(invalid="ignore"):
                values = heads / count[span]
            first = int(reached[0]) - POSITIONS
            curves[kind] = {"kind": "bias", "first": first, "values": _round(torch.from_numpy(values))}
    return curves


def _round(values: Tensor) -> list[list[float | None]]:
    """Four digits, None for what is not a number."""
    return [[None if x != x else float(f"{x:.4g}") for x in row] for row in values.tolist()]
