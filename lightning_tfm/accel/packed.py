"""Training on the tokens of a batch one after another, [1, N, D], without padding: attention over segments.

The same sentences, dropout masks and sums, in another order of rounding. Embeddings and masks are made as for padded
sentences, so that no key and no counter word changes, and their true rows are taken.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from lightning_tfm.accel.packable import check_model
from lightning_tfm.config import Evaluation
from lightning_tfm.data.batch import Batch
from lightning_tfm.model.attention import SelfAttention, attend, merge_heads, shared
from lightning_tfm.model.search import Hypothesis
from lightning_tfm.model.transformer import Keep, Noise, Transformer
from lightning_tfm.training.backend import Backend, MaskSource
from lightning_tfm.training.dropout_masks import SentenceMasks


@dataclass(frozen=True)
class Side:
    """Source or target of a micro-batch."""

    rows_N: Tensor
    """which of B * L padded positions are not padding"""
    sentence_N: Tensor
    ends: Tensor
    """int32 [B + 1]: where sentences begin and end among the rows"""
    longest: int

    @classmethod
    def of(cls, lengths_B: np.ndarray, device: torch.device) -> "Side":
        longest = int(lengths_B.max())
        rows = np.flatnonzero(np.arange(longest) < lengths_B[:, None])
        ends = np.concatenate(([0], np.cumsum(lengths_B)))
        sentence = np.repeat(np.arange(len(lengths_B)), lengths_B)
        parts = (rows, sentence, ends.astype(np.int32))
        rows_N, sentence_N, ends_B = (torch.from_numpy(x).to(device, non_blocking=True) for x in parts)
        return cls(rows_N, sentence_N, ends_B, longest)

    def take(self, x_XBTD: Tensor) -> Tensor:
        """[..., B, T, D] -> [..., 1, N, D]."""
        return x_XBTD.flatten(-3, -2).index_select(-2, self.rows_N).unsqueeze(-3)


def attend_segments(q: Tensor, k: Tensor, v: Tensor, queries: Side, keys: Side, causal: bool) -> Tensor:
    """[1, h, N, K] over [1, h, M, K], each sentence with itself -> [1, h, N, K]."""
    if q.device.type == "cuda":
        return by_kernel(q, k, v, queries, keys, causal)
    return attend(q, k, v, queries.sentence_N[:, None] == keys.sentence_N, causal, None)


def by_kernel(q: Tensor, k: Tensor, v: Tensor, queries: Side, keys: Side, causal: bool) -> Tensor:
    """`attend_segments` by FlashAttention, in bfloat16."""
    from torch.nn.attention.varlen import varlen_attn

    window = (-1, 0) if causal else (-1, -1)
    q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
    found = varlen_attn(q, k, v, queries.ends, keys.ends, queries.longest, keys.longest, window_size=window)
    return cast(Tensor, found).transpose(0, 1)[None]


def hidden_rows(model: Transformer, batch: Batch, noise: Noise | None) -> Tensor:
    """[N, D]: the decoder's output at the true positions of the target."""
    check_model(model.config)
    device, N = batch.source_BS.device, model.config.N
    source, target = Side.of(batch.source_lengths_B, device), Side.of(batch.target_lengths_B, device)
    first: tuple[Keep, Keep] = (None, None) if noise is None else (noise.source[0], noise.target[0])
    of_source: Iterator[Keep] = iter([None] * 2 * N if noise is None else source.take(noise.source[1:]))
    of_target: Iterator[Keep] = iter([None] * 3 * N if noise is None else target.take(noise.target[1:]))

    def own(layer: SelfAttention, x: Tensor, side: Side, causal: bool) -> Tensor:
        q, k, v = layer.heads(x, 0)
        return layer.W_O(merge_heads(attend_segments(q, shared(k, layer.h), shared(v, layer.h), side, side, causal)))

    x = model._looked_up(batch.source_BS, True)
    x = source.take(model._placed(x, model.encoder_positions, first[0], 0, model.target_space_D))
    for encoding in model.encoder:
        one, two = encoding.residual_1, encoding.residual_2
        x = one.after(x, own(encoding.self_attention, one.before(x), source, False), next(of_source))
        x = two.after(x, encoding.feed_forward(two.before(x)), next(of_source))
    memory = model.encoder_norm(x)
    x = target.take(model._placed(model._looked_up(batch.target_in_BT, False), model.decoder_positions, first[1]))
    for layer in model.decoder:
        one, two, three, cross = layer.residual_1, layer.residual_2, layer.residual_3, layer.cross_attention
        x = one.after(x, own(layer.self_attention, one.before(x), target, True), next(of_target))
        k, v = (shared(found, cross.h) for found in cross.keys_values(memory))
        y = attend_segments(cross.queries(two.before(x)), k, v, target, source, False)
        x = two.after(x, cross.W_O(merge_heads(y)), next(of_target))
        x = three.after(x, layer.feed_forward(three.before(x)), next(of_target))
    return model.decoder_norm(x)[0]


class PackedBackend(Backend):
    """`inner`, but for the rows of a step."""

    def __init__(self, inner: Backend):
        super().__init__(inner.quicker)
        self.inner = inner

    def masks(self, formula: SentenceMasks, device: torch.device) -> MaskSource:
        return self.inner.masks(formula, device)

    def multiplying(self) -> AbstractContextManager[object]:
        return self.inner.multiplying()

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        return self.inner.product(a, b)

    def target_rows(self, model: Transformer, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        y_N = batch.target_out_BT.flatten()
        return hidden_rows(model, batch, noise), y_N if batch.rows_N is None else y_N.index_select(0, batch.rows_N)

    def smoothed_nll(
        self, x_ND: Tensor, E_WD: Tensor, y_N: Tensor, eps_ls: float, smoothing: str
    ) -> tuple[Tensor, Tensor]:
        return self.inner.smoothed_nll(x_ND, E_WD, y_N, eps_ls, smoothing)

    def translate(self, model: Transformer, batches: list[Batch], how: Evaluation) -> dict[int, Hypothesis]:
        return self.inner.translate(model, batches, how)

    def describe(self) -> list[str]:
        return [*self.inner.describe(), "sentences packed, summed in another order"]
