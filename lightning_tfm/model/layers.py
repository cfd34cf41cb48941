"""The residual with norm and dropout, and the two kinds of layer (3.1, 5.4). Shapes: see `transformer`.

Dropout takes its mask from outside where one is given (`keep`: 0 or 1/(1-P_drop), shaped like the activation), so that
training can key masks by sentence; without one it asks torch's generator.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_tfm.config import Model
from lightning_tfm.model.attention import CrossAttention, KeyValueCache
from lightning_tfm.model.feed_forward import make_feed_forward
from lightning_tfm.model.layer_types import make_layer
from lightning_tfm.model.norms import make_norm
from lightning_tfm.model.positions import PositionScheme

Keep = Tensor | None


class Inner(NamedTuple):
    """Dropout masks within one layer's sub-layers (config: P_attention, P_ff); None where the model draws its own."""

    attention: Keep = None
    memory: Keep = None
    feed_forward: Keep = None

    @staticmethod
    def masked(sublayer: nn.Module, keep: Keep) -> Callable[..., Tensor]:
        """The sub-layer with its mask, where there is one: of types of the user's own not all take any."""
        return sublayer if keep is None else partial(sublayer, keep=keep)


NO_MASKS = Inner()


class Dropout(nn.Module):
    """Dropout of embeddings, y * keep."""

    def __init__(self, P_drop: float):
        super().__init__()
        self.P_drop = P_drop

    def forward(self, y_BTD: Tensor, keep: Keep) -> Tensor:
        return F.dropout(y_BTD, self.P_drop, self.training) if keep is None else y_BTD * keep


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
        else:
            x_BTD = torch.addcmul(x_BTD, y_BTD, keep)
        return x_BTD if self.pre else self.norm(x_BTD)


class EncoderLayer(nn.Module):
    """Self-attention, or what `model.layer` puts in its place, and feed-forward."""

    sublayers = 2

    def __init__(self, c: Model, scheme: PositionScheme | None, number: int):
        super().__init__()
        self.self_attention = make_layer(c, scheme, False, number)
        self.feed_forward = make_feed_forward(c.feed_forward, c.d_model, c.d_ff, c.bias, c.P_ff)
        self.residual_1, self.residual_2 = Residual(c), Residual(c)

    def forward(self, x_BSD: Tensor, allowed: Tensor | None, keeps: list[Keep], inner: Inner = NO_MASKS) -> Tensor:
        attention = inner.masked(self.self_attention, inner.attention)
        y_BSD = attention(self.residual_1.before(x_BSD), allowed, causal=False)
        x_BSD = self.residual_1.after(x_BSD, y_BSD, keeps[0])
        y_BSD = inner.masked(self.feed_forward, inner.feed_forward)(self.residual_2.before(x_BSD))
        return self.residual_2.after(x_BSD, y_BSD, keeps[1])


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the memory, feed-forward."""

    sublayers = 3

    def __init__(self, c: Model, scheme: PositionScheme | None, number: int):
        super().__init__()
        self.self_attention = make_layer(c, scheme, True, number)
        self.cross_attention = CrossAttention(c)
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
        inner: Inner = NO_MASKS,
    ) -> Tensor:
        """`k` and `v` are this layer's keys and values of the memory; `allowed` masks the memory."""
        attention = inner.masked(self.self_attention, inner.attention)
        y_BTD = attention(self.residual_1.before(x_BTD), None, True, cache, start)
        x_BTD = self.residual_1.after(x_BTD, y_BTD, keeps[0])
        y_BTD = self.cross_attention(self.residual_2.before(x_BTD), k_BHSK, v_BHSV, allowed, inner.memory)
        x_BTD = self.residual_2.after(x_BTD, y_BTD, keeps[1])
        y_BTD = inner.masked(self.feed_forward, inner.feed_forward)(self.residual_3.before(x_BTD))
        return self.residual_3.after(x_BTD, y_BTD, keeps[2])
