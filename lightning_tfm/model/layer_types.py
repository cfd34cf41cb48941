"""What may replace self-attention (section 4 of the paper). One is one class here and one line in
`registry.LAYERS`.

A layer type relates the positions of one text: in the encoder all of them, in the decoder (causal) those up to its own.
Attention over the memory stays. Decoding goes piece by piece with a state that `new_cache` makes. Shapes: see
`transformer`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_tfm.errors import UserError
from lightning_tfm.model.attention import KeyValueCache, SelfAttention, merge_heads, repeat_heads
from lightning_tfm.model.config import Model
from lightning_tfm.model.positions import BiasScheme, PositionScheme
from lightning_tfm.model.user_init import construct
from lightning_tfm.registry import LAYERS, inner_width


class State:
    """What a layer keeps: tensors with the rows of the batch in dimension `rows_at`; none before the first piece."""

    def __init__(self, rows_at: int = 0) -> None:
        self.tensors: tuple[Tensor, ...] = ()
        self.rows_at = rows_at

    def select(self, rows: Tensor) -> None:
        """Keep, repeat or reorder rows of the batch."""
        self.tensors = tuple(tensor.index_select(self.rows_at, rows) for tensor in self.tensors)


@dataclass(frozen=True)
class LayerSizes:
    """What a layer type may need to know of the model."""

    d_model: int
    width: int
    """inner channels (config: layer_width), d_model for a user-defined class"""
    kernel: int
    neighbourhood: int
    bias: bool
    causal: bool
    """whether it belongs to the decoder"""
    number: int
    """of the layer in its stack, from 0"""


class LayerType(nn.Module, ABC):
    """Constructed as `Class(sizes)`; its weights are initialised by name with all others (model/init.py).

    Name the matrix whose product is added to the residual stream W_O: `model.init: xavier_residual` looks for it.
    A user-defined one declares the traits of `registry.Layer` as attributes: `sees_order = False`.
    """

    def __init__(self, sizes: LayerSizes):
        super().__init__()

    @abstractmethod
    def forward(
        self, x_BTD: Tensor, allowed: Tensor | None, causal: bool, cache: State | None = None, start: int = 0
    ) -> Tensor:
        """x_BTD -> [B, T, D]; a position sees those of its text, none after it where `causal` (as constructed).

        `allowed` ([B, 1, 1, T], None for all) is false where a text has ended: nothing may depend on what is there.
        With a cache, x holds only the newest piece, at position `start`.
        """

    @abstractmethod
    def new_cache(self) -> State:
        """What decoding keeps, before its first piece."""

    def settle(self) -> None:
        """Called after the weights are drawn, for what should start differently."""


class Convolution(LayerType):
    """(x * W + b) ⊙ σ(x * V + c), then W_O: a gated convolution of width k (Gehring et al. 2017, ConvS2S).

    The encoder's is centred, one position more before than after where k is even; the decoder's sees the last k.
    """

    def __init__(self, sizes: LayerSizes):
        super().__init__(sizes)
        self.dilation = self.spread(sizes)
        reach = (sizes.kernel - 1) * self.dilation
        self.after = 0 if sizes.causal else (sizes.kernel - 1) // 2 * self.dilation
        self.before = reach - self.after
        self.build(sizes)
        self.W_O = nn.Linear(sizes.width, sizes.d_model, bias=False)

    def spread(self, sizes: LayerSizes) -> int:
        """Distance of the positions that a convolution sees."""
        return 1

    def build(self, sizes: LayerSizes) -> None:
        self.W = nn.Conv1d(sizes.d_model, 2 * sizes.width, sizes.kernel, dilation=self.dilation, bias=sizes.bias)

    def convolve(self, x_BTD: Tensor) -> Tensor:
        """[B, before + T + after, D] -> [B, T, 2 width]."""
        return self.W(x_BTD.transpose(1, 2)).transpose(1, 2)

    def forward(
        self, x_BTD: Tensor, allowed: Tensor | None, causal: bool, cache: State | None = None, start: int = 0
    ) -> Tensor:
        if allowed is not None:  # beyond its end a text is followed by zeros, as it is at the batch's edge
            x_BTD = x_BTD.masked_fill(~allowed[:, 0, 0, :, None], 0.0)
        if cache is None:
            x_BTD = F.pad(x_BTD, (0, 0, self.before, self.after))
        else:
            past = cache.tensors or (x_BTD.new_zeros(len(x_BTD), self.before, x_BTD.shape[2]),)
            x_BTD = torch.cat((*past, x_BTD), 1)
            cache.tensors = (x_BTD[:, 1:],)
        return self.W_O(F.glu(self.convolve(x_BTD), -1))

    def new_cache(self) -> State:
        return State()


CYCLE = 8
"""layers after which dilations begin again at 1"""


class Dilated(Convolution):
    """A convolution whose positions are 1, 2, 4, … apart from layer to layer, 1 again in the ninth (Kalchbrenner et al.
    2016, ByteNet): with k = 3, L layers see 2^L - 1 positions to each side."""

    def spread(self, sizes: LayerSizes) -> int:
        return 1 << sizes.number % CYCLE


class Separable(Convolution):
    """The convolution in two steps: each channel over its k positions, then a matrix for each position (Chollet 2017;
    Kaiser et al. 2018, Depthwise Separable Convolutions for Neural Machine Translation)."""

    def build(self, sizes: LayerSizes) -> None:
        d = sizes.d_model
        self.depthwise = nn.Conv1d(d, d, sizes.kernel, groups=d, bias=sizes.bias)
        self.pointwise = nn.Linear(d, 2 * sizes.width, sizes.bias)

    def convolve(self, x_BTD: Tensor) -> Tensor:
        return self.pointwise(self.depthwise(x_BTD.transpose(1, 2)).transpose(1, 2))


class Recurrent(LayerType):
    """torch's LSTM or GRU, then W_O. In the encoder one reads forwards and one backwards, each of half the width.

    The backward one starts at each text's own last piece, so that padding stays invisible.
    """

    cell: type[nn.LSTM] | type[nn.GRU]

    def __init__(self, sizes: LayerSizes):
        super().__init__(sizes)
        width = sizes.width if sizes.causal else sizes.width // 2
        self.onward = self.cell(sizes.d_model, width, bias=sizes.bias, batch_first=True)
        self.back: nn.LSTM | nn.GRU | None = None
        if not sizes.causal:
            self.back = self.cell(sizes.d_model, width, bias=sizes.bias, batch_first=True)
        self.W_O = nn.Linear(width if sizes.causal else 2 * width, sizes.d_model, bias=False)

    def forward(
        self, x_BTD: Tensor, allowed: Tensor | None, causal: bool, cache: State | None = None, start: int = 0
    ) -> Tensor:
        states = cache.tensors if cache is not None else ()
        past = None if not states else states if len(states) > 1 else states[0]
        y_BTX, state = self.onward(x_BTD, past)
        if cache is not None:
            cache.tensors = state if isinstance(state, tuple) else (state,)
        if self.back is not None:
            order_BT = reversal(x_BTD, allowed)
            back_BTX, _ = self.back(_reorder(x_BTD, order_BT))
            y_BTX = torch.cat((y_BTX, _reorder(back_BTX, order_BT)), -1)
        return self.W_O(y_BTX)

    def new_cache(self) -> State:
        return State(rows_at=1)


def reversal(x_BTD: Tensor, allowed: Tensor | None) -> Tensor:
    """[B, T]: where each position of a text is found when the text is read backwards; padding stays in place."""
    t_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)
    if allowed is None:
        return t_T.flip(0).expand(len(x_BTD), -1)
    inside_BT = allowed[:, 0, 0]
    return torch.where(inside_BT, inside_BT.sum(1, keepdim=True) - 1 - t_T, t_T)


def _reorder(x_BTD: Tensor, order_BT: Tensor) -> Tensor:
    return x_BTD.gather(1, order_BT[:, :, None].expand(-1, -1, x_BTD.shape[2]))


class LSTM(Recurrent):
    """Hochreiter and Schmidhuber 1997; the forget gates start at a bias of 1 (Jozefowicz et al. 2015)."""

    cell = nn.LSTM

    @torch.no_grad()
    def settle(self) -> None:
        for name, bias_4X in self.named_parameters():
            if name.endswith(".bias_ih_l0"):
                bias_4X.view(4, -1)[1] = 1.0


class GRU(Recurrent):
    """Cho et al. 2014."""

    cell = nn.GRU


def make_layer(c: Model, scheme: PositionScheme | None, causal: bool, number: int) -> SelfAttention:
    """What `model.layer` names; called like self-attention, whichever it is.

    Raises UserError where it is neither one that ships nor the import path of a LayerType, or where the positional
    scheme acts in an attention that is not there.
    """
    cls = find_layer(c.layer)
    if issubclass(cls, SelfAttention):
        return cls(c, scheme, causal, number)
    if scheme is not None:
        raise UserError(f"model.positions={c.positions} acts within self-attention, and model.layer={c.layer} has none")
    width = inner_width(c, causal)
    layer = construct(cls, LayerSizes(c.d_model, width, c.kernel, c.neighbourhood, c.bias, causal, number))
    return cast(SelfAttention, layer)


def find_layer(name: str) -> type[nn.Module]:
    """The class of that name, or at that import path. Raises UserError naming the nearest valid name."""
    cls: type[nn.Module] = LAYERS.find(name, __name__)
    return cls


# --- self-attention restricted to a neighbourhood of r positions (section 4), at a cost of O(r n d) ---


class NearbyCache(KeyValueCache):
    """The keys and values of only the last pieces: what the next one needs."""

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def append(self, k_BH1K: Tensor, v_BH1V: Tensor) -> tuple[Tensor, Tensor]:
        k_BHTK, v_BHTV = super().append(k_BH1K, v_BH1V)
        self.k_BHTK, self.v_BHTV = k_BHTK[:, :, -self.most :], v_BHTV[:, :, -self.most :]
        return self.k_BHTK, self.v_BHTV


class RestrictedSelfAttention(SelfAttention):
    """A query sees r keys: in the decoder its own and the r - 1 before it, in the encoder those around it.

    Where r is even the encoder sees one more before than after. Texts are cut into blocks of r queries, each with the
    2r - 1 keys that any of them sees; where these would be all keys anyway, the whole matrix is masked instead.
    """

    def __init__(self, c: Model, scheme: PositionScheme | None, causal: bool, number: int = 0):
        if isinstance(scheme, BiasScheme):
            raise UserError(
                f"model.positions={c.positions} adds to the scores of all keys: model.layer=restricted has few"
            )
        super().__init__(c, scheme, causal, number)
        self.r = c.neighbourhood
        self.before = self.r - 1 if causal else self.r // 2

    def near(self, T: int, S: int, device: torch.device) -> Tensor:
        """bool [T, S]: which of S keys, of which the first `before` precede the first query, each query sees."""
        offset_TS = torch.arange(S, device=device) - torch.arange(T, device=device)[:, None]
        return (offset_TS >= 0) & (offset_TS < self.r)

    def forward(
        self,
        x_BTD: Tensor,
        allowed: Tensor | None,
        causal: bool,
        cache: KeyValueCache | None = None,
        start: int = 0,
    ) -> Tensor:
        q, k, v = self.heads(x_BTD, start)
        if cache is not None:
            k, v = cache.append(k, v)
            return self.W_O(merge_heads(self.compare(q, k, v, None, False, x_BTD)))
        k, v = repeat_heads(k, self.h), repeat_heads(v, self.h)
        if x_BTD.shape[1] <= 2 * self.r - 1 or self.watch is not None:
            mask = self.whole(x_BTD.shape[1], allowed, x_BTD.device)
            return self.W_O(merge_heads(self.compare(q, k, v, mask, False, x_BTD)))
        return self.W_O(merge_heads(self.attend_in_blocks(q, k, v, allowed)))

    def whole(self, T: int, allowed: Tensor | None, device: torch.device) -> Tensor:
        """[1 or B, 1, T, T]; a query beyond its text's end sees itself, so that its result is a number."""
        mask = self.near(T, T + self.r - 1, device)[:, self.before : self.before + T][None, None]
        if allowed is None:
            return mask
        return (mask & allowed) | torch.eye(T, dtype=torch.bool, device=device)

    def attend_in_blocks(self, q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, allowed: Tensor | None) -> Tensor:
        """Every block of r queries with its keys as a separate sentence -> [B, H, T, V]."""
        B, T = q_BHTK.shape[0], q_BHTK.shape[2]
        r, after = self.r, self.r - 1 - self.before
        blocks = -(-T // r)
        missing = blocks * r - T

        def windows(x_BHTX: Tensor) -> Tensor:
            """-> [B * blocks, H, 2r - 1, X]."""
            wide = F.pad(x_BHTX, (0, 0, self.before, after + missing))
            return wide.unfold(2, 2 * r - 1, r).permute(0, 2, 1, 4, 3).flatten(0, 1)

        true_B1T1 = torch.ones(1, 1, T, 1, device=q_BHTK.device) if allowed is None else allowed[:, :, 0, :, None]
        there = windows(true_B1T1.to(q_BHTK.dtype))[..., 0] > 0  # [(B or 1) * blocks, 1, 2r - 1]
        itself = torch.eye(2 * r - 1, dtype=torch.bool, device=q_BHTK.device)[self.before : self.before + r]
        mask = (self.near(r, 2 * r - 1, q_BHTK.device) & there[:, :, None]) | itself
        if allowed is None:
            mask = mask.repeat(B, 1, 1, 1)
        q = F.pad(q_BHTK, (0, 0, 0, missing)).unflatten(2, (blocks, r)).transpose(1, 2).flatten(0, 1)
        out = self.compare(q, windows(k_BHTK), windows(v_BHTV), mask, False)
        return out.unflatten(0, (B, blocks)).transpose(1, 2).flatten(2, 3)[:, :, :T]

    def new_cache(self) -> KeyValueCache:
        return NearbyCache(self.r)
