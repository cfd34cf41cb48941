"""Dropout masks within sub-layers (config: P_attention, P_ff), keyed like those of dropout_masks.py.

Each has its own fourth counter word, so no other mask changes with them. A sentence's numbers are read in the
order (layer, position, channel) for feed-forwards and (layer, head, query, key) for attention.
"""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_tfm.config import Model
from lightning_tfm.data.batch import Batch
from lightning_tfm.keys import key
from lightning_tfm.model.transformer import Keep, Noise, SublayerMasks
from lightning_tfm.parts import FEED_FORWARDS

FF_SOURCE, FF_TARGET, ENCODER, DECODER, MEMORY, ONE_STACK = range(2, 8)
"""counter words; 0 and 1 are dropout_masks.SOURCE and TARGET"""
Where = tuple[int, int]
"""optimizer step and counter word"""


class InnerMasks:
    """Draws them for one experiment."""

    def __init__(self, model: Model, seed: int):
        width = FEED_FORWARDS.traits(model.feed_forward).width
        self.model, self.F = model, model.d_ff if width is None else width(model)
        self.philox = np.random.Philox(key=key("dropout", seed))
        self.state = self.philox.state

    def beside(self, noise: Noise | None, step: int, batch: Batch, like: Tensor) -> Noise:
        """`noise` with these masks of one micro-batch of optimizer step `step`, like `like` in device and dtype."""
        m, S, T = self.model, batch.source_lengths_B, batch.target_lengths_B
        none: list[Keep] = [None] * m.N
        encoder = decoder = memory = of_source = of_target = none
        if m.P_attention and m.one_stack and m.layer == "attention":
            decoder = self._attention((step, ONE_STACK), batch.index_B, S + T, S + T, like)
            beyond = int(S.max() + T.max() - (S + T).max())  # as wide as the padded source beside the padded target
            decoder = [F.pad(keep, (0, beyond, 0, beyond)) for keep in decoder if keep is not None]
        elif m.P_attention:
            memory = self._attention((step, MEMORY), batch.index_B, T, S, like)
        if m.P_attention and m.layer == "attention" and not m.one_stack:
            encoder = self._attention((step, ENCODER), batch.index_B, S, S, like)
            decoder = self._attention((step, DECODER), batch.index_B, T, T, like)
        if m.P_ff:
            of_source = self._feed_forward((step, FF_SOURCE), batch.index_B, S, like)
            of_target = self._feed_forward((step, FF_TARGET), batch.index_B, T, like)
        if noise is None:  # P_drop is 0: what is not dropped is multiplied by 1
            B, D = len(batch.index_B), m.d_model
            sublayers = 2 if m.one_stack else 3
            ones = ((1 + 2 * m.N, B, int(S.max()), D), (1 + sublayers * m.N, B, int(T.max()), D))
            noise = Noise(like.new_ones(ones[0]), like.new_ones(ones[1]))
        noise.encoder = [SublayerMasks(*masks) for masks in zip(encoder, none, of_source, strict=True)]
        noise.decoder = [SublayerMasks(*masks) for masks in zip(decoder, memory, of_target, strict=True)]
        return noise

    def _feed_forward(self, where: Where, index_B: np.ndarray, lengths_B: np.ndarray, like: Tensor) -> list[Keep]:
        """[B, T, F] for each layer."""
        N = self.model.N
        words = np.zeros((N, len(index_B), lengths_B.max(), self.F), dtype=np.uint16)
        for row, (sentence, n) in enumerate(zip(index_B.tolist(), lengths_B.tolist(), strict=True)):
            words[:, row, :n] = self._words(where, sentence, (N, n, self.F))
        return _masks(words, self.model.P_ff, like)

    def _attention(
        self, where: Where, index_B: np.ndarray, queries_B: np.ndarray, keys_B: np.ndarray, like: Tensor
    ) -> list[Keep]:
        """[B, H, T, S] for each layer."""
        N, h = self.model.N, self.model.h
        words = np.zeros((N, len(index_B), h, queries_B.max(), keys_B.max()), dtype=np.uint16)
        for row, (sentence, q, k) in enumerate(zip(index_B.tolist(), queries_B.tolist(), keys_B.tolist(), strict=True)):
            words[:, row, :, :q, :k] = self._words(where, sentence, (N, h, q, k))
        return _masks(words, self.model.P_attention, like)

    def _words(self, where: Where, sentence: int, shape: tuple[int, ...]) -> np.ndarray:
        """uint16 of that shape from the sentence's own stream."""
        step, side = where
        self.state["state"]["counter"][:] = (0, sentence, step, side)
        self.state["buffer_pos"] = 4
        self.philox.state = self.state
        count = math.prod(shape)
        return self.philox.random_raw(-(-count // 4)).view(np.uint16)[:count].reshape(shape)


def _masks(words: np.ndarray, P: float, like: Tensor) -> list[Keep]:
    """0 where dropped, 1 / (1 - P) elsewhere, layer by layer, with P the share that 16 bits can express."""
    dropped = round(65536 * P)
    signed = torch.from_numpy(words.view(np.int16))
    keep = torch.ge(signed, dropped - 32768).to(like.dtype).mul_(65536 / (65536 - dropped))
    return list(keep.to(like.device).unbind(0))
