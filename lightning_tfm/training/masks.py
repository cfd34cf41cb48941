"""Dropout masks keyed by (seed, step, place, sentence): the same on any number of devices, however the step is cut.

Each sentence of a step's global batch has its own Philox stream, at counter (block, sentence, step, place) under a key
made of the seed. Its numbers are read as 16-bit words, layer by layer, so neither padding nor neighbours matter, and
nothing has to be saved. A word below round(65536 P) drops its element: P is honoured to 2^-17. One 64-bit draw serves
four elements, which is about five times cheaper than torch's bernoulli_ on a CPU.

    place                 counter  of a sentence of S source and T target pieces
    between sub-layers    0, 1     (1 + 2N, S, D), (1 + 3N, T, D): the embedding's first; of one stack 1 + 2N twice
    within feed-forwards  2, 3     (N, S, F), (N, T, F)
    within attention      4 to 7   (N, h, S, S), (N, h, T, T), over the memory (N, h, T, S), one stack (N, h, S+T, S+T)
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_tfm.config import Model
from lightning_tfm.data.batch import Batch
from lightning_tfm.model.dropout import Given
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.registry import FEED_FORWARDS
from lightning_tfm.rng import key

SOURCE, TARGET, FF_SOURCE, FF_TARGET, ENCODER, DECODER, MEMORY, ONE_STACK = range(8)


class SentenceMasks:
    """Draws the masks of one experiment."""

    def __init__(self, model: Model, seed: int):
        self.model, self.d_model = model, model.d_model
        self.streams = {SOURCE: 1 + 2 * model.N, TARGET: 1 + (2 if model.one_stack else 3) * model.N}
        self.dropped = round(65536 * model.P_drop)
        self.philox = np.random.Philox(key=key("dropout", seed))
        self.state = self.philox.state

    def words(self, step: int, place: int, index_B: np.ndarray, first: int, *sizes: int | np.ndarray) -> np.ndarray:
        """uint16 [first, B, *sizes], each size one number or, by sentence, an array; 0 beyond a sentence's own."""
        most = [int(np.max(size, initial=0)) for size in sizes]
        filled = np.zeros((first, len(index_B), *most), dtype=np.uint16)
        counter, self.state["buffer_pos"] = self.state["state"]["counter"], 4
        of_row = [np.broadcast_to(size, len(index_B)).tolist() for size in sizes]
        for row, (sentence, *own) in enumerate(zip(index_B.tolist(), *of_row, strict=True)):
            counter[:] = (0, sentence, step, place)
            self.philox.state = self.state
            count = first * math.prod(own)
            words = self.philox.random_raw(-(-count // 4)).view(np.uint16)[:count].reshape(first, *own)
            at: tuple[int | slice, ...] = (slice(None), row, *(slice(n) for n in own))
            filled[at] = words
        return filled

    def masks(self, words: np.ndarray, dtype: torch.dtype, dropped: int | None = None) -> Tensor:
        """0 where dropped, 1 / (1 - P) elsewhere, with P the share that 16 bits can express."""
        dropped = self.dropped if dropped is None else dropped
        # torch compares int16 quickly and uint16 not at all; read as signed, the uniform words stay uniform
        signed = torch.from_numpy(words.view(np.int16))
        keep = torch.empty(signed.shape, dtype=dtype)
        return torch.ge(signed, dropped - 32768, out=keep).mul_(65536 / (65536 - dropped))

    def of_micro_batch(self, step: int, batch: Batch, model: SequenceModel, draw: Any = None) -> Given:
        """Every mask of one micro-batch of optimizer step `step`. `draw` replaces `between`."""
        masks: Given = []
        if self.model.P_drop:
            sides = (draw or self.between)(step, batch, model.embedding_WD)
            masks += zip(model.dropouts(), model.by_layer(batch, *(side.unbind(0) for side in sides)), strict=True)
        return masks + (self.within(step, batch, model) if self.model.drops_inside else [])

    def between(self, step: int, batch: Batch, like: Tensor) -> tuple[Tensor, Tensor]:
        """Those of whole sub-layers, [streams, B, S, D] and [streams, B, T, D], in device and dtype of `like`."""
        S, T = batch.source_lengths_B, batch.target_lengths_B
        sides = (self.words(step, p, batch.index_B, self.streams[p], n, self.d_model) for p, n in ((0, S), (1, T)))
        source, target = (self.masks(words, like.dtype).to(like.device) for words in sides)
        return source, target

    def within(self, step: int, batch: Batch, model: SequenceModel) -> Given:
        """Those within sub-layers (config: P_attention, P_ff)."""
        m, S, T, like = self.model, batch.source_lengths_B, batch.target_lengths_B, model.embedding_WD

        def draw(place: int, P: float, *sizes: int | np.ndarray) -> Iterable[Tensor]:
            words = self.words(step, place, batch.index_B, m.N, *sizes)
            return self.masks(words, like.dtype, round(65536 * P)).to(like.device).unbind(0)

        pairs: Given = []
        if m.P_attention and m.layer == "attention":
            two = ((ENCODER, model.encoder, S), (DECODER, model.decoder, T))
            for place, layers, n in ((ONE_STACK, model.decoder, S + T),) if m.one_stack else two:
                masks = (model.batch_mask(keep, batch) for keep in draw(place, m.P_attention, m.h, n, n))
                pairs += [(layer.self_attention.dropout, keep) for layer, keep in zip(layers, masks, strict=True)]
        if m.P_attention and not m.one_stack:
            of_memory = draw(MEMORY, m.P_attention, m.h, T, S)
            pairs += [(o.cross_attention.dropout, keep) for o, keep in zip(model.decoder, of_memory, strict=True)]
        if m.P_ff:
            width = FEED_FORWARDS.traits(m.feed_forward).width
            inner = m.d_ff if width is None else width(m)
            sides = [draw(FF_SOURCE, m.P_ff, S, inner), draw(FF_TARGET, m.P_ff, T, inner)]
            dropouts = [layer.feed_forward.dropout for layer in (*model.encoder, *model.decoder)]
            pairs += zip(dropouts, model.by_layer(batch, *sides), strict=True)
        return pairs
