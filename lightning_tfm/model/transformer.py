"""The Transformer of "Attention Is All You Need", in the paper's symbols: the model, its layers, their residual.

    source: embedding + positions, dropout              target, shifted right: embedding + positions, dropout
      │                                                   │
      │  N × EncoderLayer                                 │  N × DecoderLayer
      ├─ self-attention, add & norm                       ├─ masked self-attention, add & norm
      ├─ feed-forward, add & norm                         ├─ attention over the memory, add & norm ─┐
      ▼                                                   ├─ feed-forward, add & norm               │ keys,
    memory ───────────────────────────────────────────────│─────────────────────────────────────────┘ values
                                                          ▼
                                                        output matrix: logits

Or one stack of N layers of self-attention and feed-forward, over source and target as one text (config: stack).

Shape suffixes, here and in attention, positions, search and loss:
B batch, S source length, T target length, D d_model, F d_ff, H heads, K d_k, V d_v, W vocabulary.

Dropout takes its mask from outside where one is given (`keep`: 0 or 1/(1-P_drop), shaped like the activation), so that
training can key masks by sentence; without one it asks torch's generator.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_tfm.model.attention import CrossAttention, KeyValueCache
from lightning_tfm.model.config import Model
from lightning_tfm.model.feed_forward import make_feed_forward, product_weights
from lightning_tfm.model.init import initialise
from lightning_tfm.model.joined import Joined
from lightning_tfm.model.layer_types import make_layer
from lightning_tfm.model.norms import make_norm
from lightning_tfm.model.own import construct
from lightning_tfm.model.positions import (
    BiasScheme,
    EmbeddingScheme,
    NoPositions,
    PositionScheme,
    PositionSizes,
    RotationScheme,
    find_scheme,
)
from lightning_tfm.parts import SCHEMES
from lightning_tfm.pieces import PAD

Keep = Tensor | None


class SublayerMasks(NamedTuple):
    """Dropout masks within one layer's sub-layers (config: P_attention, P_ff); None where the model draws its own."""

    attention: Keep = None
    memory: Keep = None
    feed_forward: Keep = None

    @staticmethod
    def masked(sublayer: nn.Module, keep: Keep) -> Callable[..., Tensor]:
        """The sub-layer with its mask, where there is one: of user-defined types not all take any."""
        return sublayer if keep is None else partial(sublayer, keep=keep)


NO_MASKS = SublayerMasks()


@dataclass
class Noise:
    """Dropout masks of one micro-batch: 0 or 1/(1-P_drop).

    source: [1 + 2N, B, S, D], target: [1 + 3N, B, T, D]; the embedding's comes first, then sub-layer by sub-layer.
    Of one stack the target's are [1 + 2N, B, T, D], and its inner ones are the decoder's, but for the feed-forward's
    over the source, which are the encoder's.
    """

    source: Tensor
    target: Tensor
    encoder: Sequence[SublayerMasks] = field(default=(), init=False)
    decoder: Sequence[SublayerMasks] = field(default=(), init=False)
    """masks within sub-layers, layer by layer; none where P_attention and P_ff are 0"""


class Transformer(nn.Module):
    """Encoder, decoder, and one matrix for both embeddings and the output (3.4), or more (config: tie).

    One stack (config: stack) is held as `decoder`, of layers that are an encoder's; `encoder` has none.
    `V` is the vocabulary's size; weights are drawn by (seed, parameter name, shape), see model/init.py.
    """

    def __init__(self, config: Model, V: int, seed: int = 0):
        super().__init__()
        self.config, self.V = config, V
        c = config
        scheme, traits = find_scheme(c.positions), SCHEMES.traits(c.positions)
        traits.check(c)
        self.max_length: int = getattr(c, traits.ends_at) if traits.ends_at else 1 << 20
        sizes = PositionSizes(c.d_model, c.h, c.d_k, c.max_positions, c.sinusoid_layout, c.clip, c.d_v)

        def at_embedding() -> EmbeddingScheme:
            return construct(scheme, sizes) if issubclass(scheme, EmbeddingScheme) else NoPositions(sizes)

        def at_attention(causal: bool) -> list[PositionScheme | None]:
            if not issubclass(scheme, (RotationScheme, BiasScheme)):
                return [None] * c.N
            made = [construct(scheme, replace(sizes, causal=causal)) for _ in range(1 if traits.shared else c.N)]
            return [made[i % len(made)] for i in range(c.N)]

        self.embedding_WD = nn.Parameter(torch.empty(V, c.d_model))
        self.target_WD = nn.Parameter(torch.empty(V, c.d_model)) if c.tie != "all" else None
        self.output_WD = nn.Parameter(torch.empty(V, c.d_model)) if c.tie == "none" else None
        self.target_space_D = nn.Parameter(torch.empty(c.target_spaces, c.d_model)) if c.target_spaces else None
        self.encoder_positions = NoPositions(sizes) if c.one_stack else at_embedding()
        self.decoder_positions = at_embedding()
        self.dropout = Dropout(c.P_drop)
        inside = at_attention(c.stack != "prefix")
        if c.one_stack:
            encoder, decoder = nn.ModuleList(), nn.ModuleList(EncoderLayer(c, s, i, True) for i, s in enumerate(inside))
        else:
            encoder = nn.ModuleList(EncoderLayer(c, s, i) for i, s in enumerate(at_attention(False)))
            decoder = nn.ModuleList(DecoderLayer(c, s, i) for i, s in enumerate(inside))
        self.encoder, self.decoder = cast(Sequence[EncoderLayer], encoder), cast(Sequence[DecoderLayer], decoder)
        self.encoder_norm = nn.Identity() if c.norm == "post" or c.one_stack else make_norm(c)
        self.decoder_norm = nn.Identity() if c.norm == "post" else make_norm(c)
        self.origins = initialise(self, c.init, seed)
        """how each parameter of a user-defined class started (model/own.py)"""

    def forward(self, source_BS: Tensor, target_BT: Tensor, noise: Noise | None = None) -> Tensor:
        """Ids (0 pads, at the end only) -> logits_BTW: row t predicts the piece after target_BT[:, t]."""
        allowed = (source_BS != PAD)[:, None, None, :]
        return self.logits(self.hidden(source_BS, target_BT, allowed, noise))

    def hidden(self, source_BS: Tensor, target_BT: Tensor, allowed: Tensor | None, noise: Noise | None) -> Tensor:
        """The decoder's output [B, T, D]. `allowed` masks the source, [B, 1, 1, S]; None where it has no padding."""
        if self.config.one_stack:
            return self._one_stack(source_BS, target_BT, noise)
        memory_BSD = self.encode(source_BS, allowed, noise)
        return self.decode(target_BT, memory_BSD, allowed, noise)

    def logits(self, hidden_BTD: Tensor) -> Tensor:
        return F.linear(hidden_BTD, self.generator_WD)

    @property
    def generator_WD(self) -> Tensor:
        """The matrix of the output, by `tie` that of the embeddings too."""
        tied_WD = self.embedding_WD if self.target_WD is None else self.target_WD
        return tied_WD if self.output_WD is None else self.output_WD

    def encode(self, source_BS: Tensor, allowed: Tensor | None, noise: Noise | None = None) -> Tensor:
        """-> memory_BSD. Not of one stack, which has none."""
        assert not self.config.one_stack, "no encoder"
        keeps = _keeps(noise.source if noise else None, EncoderLayer.sublayers * self.config.N)
        x_BSD = self._placed(self._looked_up(source_BS, True), self.encoder_positions, keeps[0], 0, self.target_space_D)
        for i, layer in enumerate(self.encoder):
            masks = noise.encoder[i] if noise and noise.encoder else NO_MASKS
            x_BSD = layer(x_BSD, allowed, keeps[1 + 2 * i : 3 + 2 * i], masks)
        return self.encoder_norm(x_BSD)

    def decode(
        self, target_BT: Tensor, memory_BSD: Tensor, allowed: Tensor | None, noise: Noise | None = None
    ) -> Tensor:
        """-> hidden_BTD, every position from those before it."""
        keeps = _keeps(noise.target if noise else None, DecoderLayer.sublayers * self.config.N)
        x_BTD = self._placed(self._looked_up(target_BT, False), self.decoder_positions, keeps[0])
        for i, layer in enumerate(self.decoder):
            k_BHSK, v_BHSV = layer.cross_attention.keys_values(memory_BSD)
            masks = noise.decoder[i] if noise and noise.decoder else NO_MASKS
            x_BTD = layer(x_BTD, k_BHSK, v_BHSV, allowed, keeps[1 + 3 * i : 4 + 3 * i], masks=masks)
        return self.decoder_norm(x_BTD)

    def weights(self) -> tuple[int, ...]:
        """Numbers in matrices: of a feed-forward, of what relates source and target positions, of what mixes both."""
        last = self.decoder[0]
        target = product_weights(last.self_attention)
        source = target if self.config.one_stack else product_weights(self.encoder[0].self_attention)
        maps = [(name, part.weight.numel()) for name, part in last.named_modules() if isinstance(part, nn.Linear)]
        mixes = (sum(n for name, n in maps if name.startswith(f"{kind}_attention.mix.")) for kind in ("self", "cross"))
        return product_weights(last.feed_forward), source, target, *mixes

    def embed_target(self, target_BT: Tensor, start: int, of_source: bool = False) -> Tensor:
        """Embeddings of pieces at positions start …, for decoding piece by piece; in one stack of the source's, too."""
        return self._placed(self._looked_up(target_BT, of_source), self.decoder_positions, None, start)

    def _one_stack(self, source_BS: Tensor, target_BT: Tensor, noise: Noise | None) -> Tensor:
        """-> hidden_BTD of the target's positions."""
        text, N = Joined(source_BS, target_BT, self.max_length), self.config.N
        keeps = _keeps(text.join(noise.source, noise.target) if noise else None, EncoderLayer.sublayers * N)
        pieces_BLD = text.join(self._looked_up(source_BS, True), self._looked_up(target_BT, False))
        x_BLD = self._placed(pieces_BLD, self.decoder_positions, keeps[0])
        causal = self.config.stack == "causal"
        allowed = None if causal else text.prefix()
        for i, layer in enumerate(cast(Sequence[EncoderLayer], self.decoder)):
            masks = NO_MASKS
            if noise and noise.decoder:
                of_source, of_target = noise.encoder[i].feed_forward, noise.decoder[i].feed_forward
                inner = None if of_source is None or of_target is None else text.join(of_source, of_target)
                masks = SublayerMasks(text.among(noise.decoder[i].attention), None, inner)
            x_BLD = layer(x_BLD, allowed, keeps[1 + 2 * i : 3 + 2 * i], masks, causal)
        return self.decoder_norm(text.of_target(x_BLD))

    def _looked_up(self, ids_BT: Tensor, of_source: bool) -> Tensor:
        shared = of_source or self.target_WD is None
        return F.embedding(ids_BT, self.embedding_WD if shared else cast(Tensor, self.target_WD))

    def _placed(
        self, x_BTD: Tensor, positions: EmbeddingScheme, keep: Keep, start: int = 0, extra: Tensor | None = None
    ) -> Tensor:
        """Scaled, at positions start …, with dropout."""
        x_BTD = positions.embed(x_BTD, math.sqrt(self.config.d_model), start)
        if extra is not None:  # one language pair, so always the first target space
            x_BTD = x_BTD + extra[0]
        return self.dropout(x_BTD, keep)


def _keeps(masks: Tensor | None, sublayers: int) -> list[Keep]:
    return [None] * (1 + sublayers) if masks is None else list(masks.unbind(0))


class Dropout(nn.Module):
    """Dropout of embeddings, y * keep."""

    def __init__(self, P_drop: float):
        super().__init__()
        self.P_drop = P_drop

    def forward(self, y_BTD: Tensor, keep: Keep) -> Tensor:
        return F.dropout(y_BTD, self.P_drop, self.training) if keep is None else y_BTD * keep


class _Joined(torch.autograd.Function):
    """x + y * keep for a y of fewer bits than x, as autocast passes it on: addcmul's numbers, without its copies of y
    and of y's gradient in x's bits (a tenth of the bytes of a GPU's step)."""

    @staticmethod
    def forward(ctx: Any, x_BTD: Tensor, y_BTD: Tensor, keep: Tensor) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.y_dtype = y_BTD.dtype
        return torch.addcmul(x_BTD, y_BTD, keep, out=torch.empty_like(x_BTD))  # autocast leaves what has an `out`

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_BTD: Tensor) -> tuple[Tensor, Tensor, None]:
        (keep,) = ctx.saved_tensors
        return grad_BTD, torch.mul(grad_BTD, keep, out=torch.empty_like(grad_BTD, dtype=ctx.y_dtype)), None


class Residual(nn.Module):
    """Norm(x + Dropout(Sublayer(x))) (5.4), or x + Dropout(Sublayer(Norm(x))) where `norm` is pre.

    `sandwich` is x + Dropout(Norm(Sublayer(Norm(x)))) (Ding et al. 2021), with two norms.
    The sub-layer runs between the two calls: y = sublayer(residual.before(x)); x = residual.after(x, y, keep).
    """

    def __init__(self, c: Model):
        super().__init__()
        self.norm = make_norm(c)
        self.outer_norm = make_norm(c) if c.norm == "sandwich" else None
        self.P_drop, self.pre = c.P_drop, c.norm != "post"

    def before(self, x_BTD: Tensor) -> Tensor:
        return self.norm(x_BTD) if self.pre else x_BTD

    def after(self, x_BTD: Tensor, y_BTD: Tensor, keep: Keep) -> Tensor:
        if self.outer_norm is not None:
            y_BTD = self.outer_norm(y_BTD)
        if keep is None:
            x_BTD = x_BTD + F.dropout(y_BTD, self.P_drop, self.training)
        elif y_BTD.dtype is x_BTD.dtype or torch.compiler.is_compiling():  # the compiler joins them itself
            x_BTD = torch.addcmul(x_BTD, y_BTD, keep)
        else:
            x_BTD = _Joined.apply(x_BTD, y_BTD, keep)
        return x_BTD if self.pre else self.norm(x_BTD)


class EncoderLayer(nn.Module):
    """Self-attention, or what `model.layer` replaces it with, and feed-forward; of one stack, too, where it is called
    with `causal`, and with a cache as a DecoderLayer is."""

    sublayers = 2

    def __init__(self, c: Model, scheme: PositionScheme | None, number: int, causal: bool = False):
        super().__init__()
        self.self_attention = make_layer(c, scheme, causal, number)
        self.feed_forward = make_feed_forward(c.feed_forward, c.d_model, c.d_ff, c.bias, c.P_ff)
        self.residual_1, self.residual_2 = Residual(c), Residual(c)

    def forward(
        self,
        x_BSD: Tensor,
        allowed: Tensor | None,
        keeps: list[Keep],
        masks: SublayerMasks = NO_MASKS,
        causal: bool = False,
        cache: KeyValueCache | None = None,
        start: int = 0,
    ) -> Tensor:
        attention = masks.masked(self.self_attention, masks.attention)
        y_BSD = attention(self.residual_1.before(x_BSD), allowed, causal, cache, start)
        x_BSD = self.residual_1.after(x_BSD, y_BSD, keeps[0])
        y_BSD = masks.masked(self.feed_forward, masks.feed_forward)(self.residual_2.before(x_BSD))
        return self.residual_2.after(x_BSD, y_BSD, keeps[1])


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the memory, feed-forward."""

    sublayers = 3

    def __init__(self, c: Model, scheme: PositionScheme | None, number: int):
        super().__init__()
        self.self_attention = make_layer(c, scheme, True, number)
        self.cross_attention = CrossAttention(c, number)
        self.feed_forward = make_feed_forward(c.feed_forward, c.d_model, c.d_ff, c.bias, c.P_ff)
        self.residual_1, self.residual_2, self.residual_3 = Residual(c), Residual(c), Residual(c)

    def forward(
        self,
        x_BTD: Tensor,
        k_BHSK: Tensor,
        v_BHSV: Tensor,
        allowed: Tensor | None,
        keeps: list[Keep],
        cache: KeyValueCache | None = None,
        start: int = 0,
        masks: SublayerMasks = NO_MASKS,
    ) -> Tensor:
        """`k` and `v` are this layer's keys and values of the memory; `allowed` masks the memory."""
        attention = masks.masked(self.self_attention, masks.attention)
        y_BTD = attention(self.residual_1.before(x_BTD), None, True, cache, start)
        x_BTD = self.residual_1.after(x_BTD, y_BTD, keeps[0])
        y_BTD = self.cross_attention(self.residual_2.before(x_BTD), k_BHSK, v_BHSV, allowed, masks.memory)
        x_BTD = self.residual_2.after(x_BTD, y_BTD, keeps[1])
        y_BTD = masks.masked(self.feed_forward, masks.feed_forward)(self.residual_3.before(x_BTD))
        return self.residual_3.after(x_BTD, y_BTD, keeps[2])
