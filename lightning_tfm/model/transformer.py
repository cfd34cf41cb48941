"""The Transformer of "Attention Is All You Need", in the paper's symbols.

    source: embedding + positions, dropout              target, shifted right: embedding + positions, dropout
      │                                                   │
      │  N × EncoderLayer                                 │  N × DecoderLayer
      ├─ self-attention, add & norm                       ├─ masked self-attention, add & norm
      ├─ feed-forward, add & norm                         ├─ attention over the memory, add & norm ─┐
      ▼                                                   ├─ feed-forward, add & norm               │ keys,
    memory ───────────────────────────────────────────────│─────────────────────────────────────────┘ values
                                                          ▼
                                                        output matrix: logits

One stack over source and target as one text (config: stack): model/one_stack.py.

Shape suffixes, here and in attention, positions, search and loss:
B batch, S source length, T target length, D d_model, F d_ff, H heads, K d_k, V d_v, W vocabulary.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_tfm.errors import UserError
from lightning_tfm.model.attention import CrossAttention, KeyValueCache
from lightning_tfm.model.config import Model
from lightning_tfm.model.dropout import Dropout
from lightning_tfm.model.feed_forward import make_feed_forward, product_weights
from lightning_tfm.model.init import initialise
from lightning_tfm.model.layer_types import make_layer
from lightning_tfm.model.norms import make_norm
from lightning_tfm.model.positions import EmbeddingScheme, NoPositions, PositionScheme, PositionSizes, find_scheme
from lightning_tfm.model.user_init import construct
from lightning_tfm.registry import SCHEMES
from lightning_tfm.special_tokens import PAD


class Ids(Protocol):
    """A batch, as data/batch.py makes it."""

    source_BS: Tensor
    target_in_BT: Tensor


class Residual(nn.Module):
    """Norm(x + Dropout(Sublayer(x))) (5.4), or x + Dropout(Sublayer(Norm(x))) where `norm` is pre.

    `sandwich` is x + Dropout(Norm(Sublayer(Norm(x)))) (Ding et al. 2021), with two norms.
    """

    def __init__(self, c: Model):
        super().__init__()
        self.norm = make_norm(c)
        self.outer_norm = make_norm(c) if c.norm == "sandwich" else None
        self.pre, self.dropout = c.norm != "post", Dropout(c.P_drop)

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        y_BTD = sublayer(self.norm(x_BTD) if self.pre else x_BTD)
        if self.outer_norm is not None:
            y_BTD = self.outer_norm(y_BTD)
        x_BTD = self.dropout.add(x_BTD, y_BTD)
        return x_BTD if self.pre else self.norm(x_BTD)


class EncoderLayer(nn.Module):
    """Self-attention, or what `model.layer` replaces it with, and feed-forward."""

    def __init__(self, c: Model, scheme: PositionScheme | None, number: int, causal: bool = False):
        super().__init__()
        self.causal = causal
        self.self_attention = make_layer(c, scheme, causal, number)
        self.feed_forward = make_feed_forward(c)
        self.residual_1, self.residual_2 = Residual(c), Residual(c)

    def forward(
        self, x_BSD: Tensor, allowed: Tensor | None, cache: KeyValueCache | None = None, start: int = 0
    ) -> Tensor:
        """`allowed` says which keys are seen; with a cache x holds only the newest pieces, from position `start`."""
        x_BSD = self.residual_1(x_BSD, lambda x: self.self_attention(x, allowed, self.causal, cache, start))
        return self.residual_2(x_BSD, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the memory, feed-forward."""

    def __init__(self, c: Model, scheme: PositionScheme | None, number: int):
        super().__init__()
        self.self_attention = make_layer(c, scheme, True, number)
        self.cross_attention = CrossAttention(c, number)
        self.feed_forward = make_feed_forward(c)
        self.residual_1, self.residual_2, self.residual_3 = Residual(c), Residual(c), Residual(c)

    def forward(
        self,
        x_BTD: Tensor,
        memory: tuple[Tensor, Tensor],
        allowed: Tensor | None,
        cache: KeyValueCache | None = None,
        start: int = 0,
    ) -> Tensor:
        """`memory`: this layer's keys and values of it, [B, H, S, K] and [B, H, S, V], which `allowed` masks."""
        x_BTD = self.residual_1(x_BTD, lambda x: self.self_attention(x, None, True, cache, start))
        x_BTD = self.residual_2(x_BTD, lambda x: self.cross_attention(x, *memory, allowed))
        return self.residual_3(x_BTD, self.feed_forward)


class SequenceModel(nn.Module):
    """What one stack and two have in common: embeddings, positions, the output matrix, initial weights.

    `V` is the vocabulary's size; weights are drawn by (seed, parameter name, shape), see model/init.py.
    """

    encoder: Sequence["EncoderLayer"]
    decoder: Sequence[Any]
    encoder_positions: EmbeddingScheme
    decoder_positions: EmbeddingScheme
    target_space_D: nn.Parameter | None
    decoder_dropout: Dropout

    def __init__(self, config: Model, V: int, seed: int = 0):
        super().__init__()
        self.config, self.V, c = config, V, config
        traits = SCHEMES.traits(c.positions)
        traits.check(c)
        self.max_length: int = getattr(c, traits.ends_at) if traits.ends_at else 1 << 20
        self.sizes = PositionSizes(c.d_model, c.h, c.d_k, c.max_positions, c.sinusoid_layout, c.clip, c.d_v)
        self.embedding_WD = nn.Parameter(torch.empty(V, c.d_model))
        self.target_WD = nn.Parameter(torch.empty(V, c.d_model)) if c.tie != "all" else None
        self.output_WD = nn.Parameter(torch.empty(V, c.d_model)) if c.tie == "none" else None
        self.build(c)
        self.decoder_norm = nn.Identity() if c.norm == "post" else make_norm(c)
        self.origins = initialise(self, c.init, seed)
        """how each parameter of a user-defined class started (model/user_init.py)"""

    def build(self, c: Model) -> None:
        raise NotImplementedError

    def hidden(self, source_BS: Tensor, target_BT: Tensor, allowed: Tensor | None) -> Tensor:
        """The decoder's output [B, T, D]. `allowed` masks the source, [B, 1, 1, S]; None where it has no padding."""
        raise NotImplementedError

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Ids (0 pads, at the end only) -> logits_BTW: row t predicts the piece after target_BT[:, t]."""
        return self.logits(self.hidden(source_BS, target_BT, (source_BS != PAD)[:, None, None, :]))

    def logits(self, hidden_BTD: Tensor) -> Tensor:
        return F.linear(hidden_BTD, self.generator_WD)

    def log_probabilities(self, x_RD: Tensor) -> Tensor:
        """log P of every next piece [R, W]; `x` is what the last layer made."""
        logits_RW = self.logits(self.decoder_norm(x_RD))
        return F.log_softmax(logits_RW.float() if logits_RW.dtype is torch.bfloat16 else logits_RW, -1)

    @property
    def generator_WD(self) -> Tensor:
        """The matrix of the output, by `tie` that of the embeddings too (3.4)."""
        tied_WD = self.embedding_WD if self.target_WD is None else self.target_WD
        return tied_WD if self.output_WD is None else self.output_WD

    def look_up(self, ids_BT: Tensor, of_source: bool) -> Tensor:
        own = None if of_source else self.target_WD
        return F.embedding(ids_BT, self.embedding_WD if own is None else own)

    def embed_target(self, target_BT: Tensor, start: int = 0, of_source: bool = False) -> Tensor:
        """Pieces at positions start …, as the decoder's first layer takes them; in one stack of the source's, too."""
        return self.decoder_dropout(
            self.with_positions(self.look_up(target_BT, of_source), self.decoder_positions, start)
        )

    def with_positions(self, x_BTD: Tensor, positions: EmbeddingScheme, start: int = 0) -> Tensor:
        return positions.embed(x_BTD, math.sqrt(self.config.d_model), start)

    def at_embedding(self) -> EmbeddingScheme:
        scheme = find_scheme(self.config.positions)
        return construct(scheme, self.sizes) if issubclass(scheme, EmbeddingScheme) else NoPositions(self.sizes)

    def at_attention(self, causal: bool) -> list[PositionScheme | None]:
        """Of each layer of a stack."""
        c, scheme = self.config, find_scheme(self.config.positions)
        if issubclass(scheme, EmbeddingScheme):
            return [None] * c.N
        shared = SCHEMES.traits(c.positions).shared
        schemes = [construct(scheme, replace(self.sizes, causal=causal)) for _ in range(1 if shared else c.N)]
        return [schemes[i % len(schemes)] for i in range(c.N)]

    def dropouts(self) -> list[Dropout]:
        """Between sub-layers, of the source and then of the target: the embedding's first, sub-layer by sub-layer."""
        raise NotImplementedError

    def by_layer(self, batch: Ids, source: Iterable[Tensor], target: Iterable[Tensor]) -> list[Tensor]:
        """Masks of the source [B, S, X] and of the target [B, T, X], as they are given to layers one after another."""
        return [*source, *target]

    def batch_mask(self, keep_BHTT: Tensor, batch: Ids) -> Tensor:
        """A mask of weights, as large as the batch."""
        return keep_BHTT

    def weights(self) -> tuple[int, ...]:
        """Numbers in matrices: of a feed-forward, of what relates source and target positions, of what mixes both."""
        last = self.decoder[0]
        target = product_weights(last.self_attention)
        source = product_weights(self.encoder[0].self_attention) if len(self.encoder) else target
        maps = [(name, part.weight.numel()) for name, part in last.named_modules() if isinstance(part, nn.Linear)]
        mixes = (sum(n for name, n in maps if name.startswith(f"{kind}_attention.mix.")) for kind in ("self", "cross"))
        return product_weights(last.feed_forward), source, target, *mixes


class Transformer(SequenceModel):
    """Encoder, decoder, and one matrix for both embeddings and the output (3.4), or more (config: tie)."""

    decoder: Sequence[DecoderLayer]

    def build(self, c: Model) -> None:
        if c.one_stack:
            raise UserError(f"model.stack={c.stack} has no encoder and decoder: one_stack.make_model makes it")
        self.target_space_D = nn.Parameter(torch.empty(c.target_spaces, c.d_model)) if c.target_spaces else None
        self.encoder_positions, self.decoder_positions = self.at_embedding(), self.at_embedding()
        self.encoder_dropout, self.decoder_dropout = Dropout(c.P_drop), Dropout(c.P_drop)
        encoder = nn.ModuleList(EncoderLayer(c, s, i) for i, s in enumerate(self.at_attention(False)))
        decoder = nn.ModuleList(DecoderLayer(c, s, i) for i, s in enumerate(self.at_attention(True)))
        self.encoder, self.decoder = cast(Sequence[EncoderLayer], encoder), cast(Sequence[DecoderLayer], decoder)
        self.encoder_norm = nn.Identity() if c.norm == "post" else make_norm(c)

    def hidden(self, source_BS: Tensor, target_BT: Tensor, allowed: Tensor | None) -> Tensor:
        return self.decode(target_BT, self.encode(source_BS, allowed), allowed)

    def encode(self, source_BS: Tensor, allowed: Tensor | None) -> Tensor:
        """-> memory_BSD."""
        x_BSD = self.with_positions(self.look_up(source_BS, True), self.encoder_positions)
        if self.target_space_D is not None:  # one language pair, so always the first target space
            x_BSD = x_BSD + self.target_space_D[0]
        x_BSD = self.encoder_dropout(x_BSD)
        for layer in self.encoder:
            x_BSD = layer(x_BSD, allowed)
        return self.encoder_norm(x_BSD)

    def decode(self, target_BT: Tensor, memory_BSD: Tensor, allowed: Tensor | None) -> Tensor:
        """-> hidden_BTD, every position from those before it."""
        x_BTD = self.embed_target(target_BT)
        for layer in self.decoder:
            x_BTD = layer(x_BTD, layer.cross_attention.keys_values(memory_BSD), allowed)
        return self.decoder_norm(x_BTD)

    def dropouts(self) -> list[Dropout]:
        encoder = [r.dropout for o in self.encoder for r in (o.residual_1, o.residual_2)]
        decoder = [r.dropout for o in self.decoder for r in (o.residual_1, o.residual_2, o.residual_3)]
        return [self.encoder_dropout, *encoder, self.decoder_dropout, *decoder]
