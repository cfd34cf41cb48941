"""How queries, keys and values become one mix. One is one class here and one line in `registry.ATTENTIONS`.

Projections, heads, masks, cache, positions, shared keys and dropout stay with model/attention.py. `softmax` is the
paper's, which `attention.attend` computes by torch's fused kernels; the others hold their weights in memory. Shapes:
see `transformer`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lightning_tfm.model.config import Model
from lightning_tfm.model.norms import RMSNorm
from lightning_tfm.model.user_init import construct
from lightning_tfm.registry import ATTENTIONS


@dataclass(frozen=True)
class AttentionSizes:
    """What a type may need to know of the model, and of its place in it."""

    d_model: int
    h: int
    d_k: int
    d_v: int
    place: str
    """encoder, decoder (masked self-attention, and that of one stack) or cross (over the memory)"""
    number: int
    """of the layer in its stack, from 0"""


class AttentionType(nn.Module):
    """Constructed as `Class(sizes)`; its weights are initialised by name with all others (model/init.py).

    A user-defined one declares the traits of `registry.Attention` as attributes: `must_be_even = "d_k"`.
    """

    def __init__(self, sizes: AttentionSizes):
        super().__init__()

    def weights(self, q_BHTK: Tensor, k_BHSK: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        """-> [B, H, T, S]: what each query takes of each key's value, before dropout.

        `mask` (bool, broadcasts to [B, H, T, S]; None: all) is false where a query must not look: nothing may depend on
        what is there. `bias`, broadcast alike, is what a positional scheme adds to the scores.
        """
        raise NotImplementedError(f"{type(self).__name__} has neither weights nor its own forward")

    @property
    def has_weights(self) -> bool:
        """Whether there are any to look at."""
        return type(self).weights is not AttentionType.weights

    def finish(self, mix_BHTV: Tensor, x_BTD: Tensor) -> Tensor:
        """What becomes of the mix before W_O; `x` is what the queries are made of."""
        return mix_BHTV

    def forward(
        self,
        q_BHTK: Tensor,
        k_BHSK: Tensor,
        v_BHSV: Tensor,
        mask: Tensor | None,
        bias: Tensor | None,
        x_BTD: Tensor,
        drop: Callable[[Tensor], Tensor] = lambda w: w,
    ) -> Tensor:
        """The mix [B, H, T, V]. Override it where there are no weights; `drop` is the dropout of weights."""
        return self.finish(drop(self.weights(q_BHTK, k_BHSK, mask, bias)) @ v_BHSV, x_BTD)


def scaled_scores(q_BHTK: Tensor, k_BHSK: Tensor, bias: Tensor | None = None) -> Tensor:
    """Q K^T / sqrt(d_k) + bias (eq. 1), before any mask."""
    score_BHTS = (q_BHTK / math.sqrt(q_BHTK.shape[3])) @ k_BHSK.transpose(2, 3)
    return score_BHTS if bias is None else score_BHTS + bias


def masked_softmax(score_BHTS: Tensor, mask: Tensor | None) -> Tensor:
    return (score_BHTS if mask is None else score_BHTS.masked_fill(~mask, -math.inf)).softmax(-1)


class Softmax(AttentionType):
    """softmax(Q K^T / sqrt(d_k)) V (eq. 1)."""

    def weights(self, q_BHTK: Tensor, k_BHSK: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        return masked_softmax(scaled_scores(q_BHTK, k_BHSK, bias), mask)


class TalkingHeads(AttentionType):
    """P_w softmax(P_l S) V: heads are mixed before the softmax and after it (Shazeer et al. 2020)."""

    def __init__(self, sizes: AttentionSizes):
        super().__init__(sizes)
        self.P_l, self.P_w = (nn.Parameter(torch.empty(sizes.h, sizes.h)) for _ in range(2))

    def weights(self, q_BHTK: Tensor, k_BHSK: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        score_BHTS = torch.einsum("bhts,hi->bits", scaled_scores(q_BHTK, k_BHSK, bias), self.P_l)
        return torch.einsum("bhts,hi->bits", masked_softmax(score_BHTS, mask), self.P_w)


class Gated(Softmax):
    """softmax(S) V ⊙ σ(x W_G), a gate for each channel of each head (Qiu et al. 2025, after the mix)."""

    def __init__(self, sizes: AttentionSizes):
        super().__init__(sizes)
        self.W_G = nn.Linear(sizes.d_model, sizes.h * sizes.d_v, bias=False)

    def finish(self, mix_BHTV: Tensor, x_BTD: Tensor) -> Tensor:
        gate_BHTV = self.W_G(x_BTD).unflatten(-1, (mix_BHTV.shape[1], -1)).transpose(1, 2)
        return mix_BHTV * gate_BHTV.sigmoid()


class Differential(AttentionType):
    """(1 - λ_0) Norm((softmax(Q_1 K_1^T / √d) - λ softmax(Q_2 K_2^T / √d)) V), λ learned (Ye et al. 2024).

    Each head's queries and keys are split in two halves of d = d_k / 2, so that sizes stay the model's.
    """

    def __init__(self, sizes: AttentionSizes):
        super().__init__(sizes)
        self.start = 0.8 - 0.6 * math.exp(-0.3 * sizes.number)
        self.vectors_4K = nn.Parameter(torch.empty(4, sizes.d_k // 2))
        self.vectors_4K.initial_std = 0.1  # type: ignore[attr-defined]
        self.norm = RMSNorm(sizes.d_v, 1e-5)

    def weights(self, q_BHTK: Tensor, k_BHSK: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        (q_1, q_2), (k_1, k_2) = q_BHTK.chunk(2, -1), k_BHSK.chunk(2, -1)
        first, second = (self.vectors_4K[i] @ self.vectors_4K[i + 1] for i in (0, 2))
        factor = first.exp() - second.exp() + self.start
        return masked_softmax(scaled_scores(q_1, k_1, bias), mask) - factor * masked_softmax(
            scaled_scores(q_2, k_2, bias), mask
        )

    def finish(self, mix_BHTV: Tensor, x_BTD: Tensor) -> Tensor:
        return self.norm(mix_BHTV).to(mix_BHTV.dtype) * (1 - self.start)


class Sigmoid(AttentionType):
    """σ(S - log n) V, n the keys that a query may see (Ramapuram et al. 2024)."""

    def weights(self, q_BHTK: Tensor, k_BHSK: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        score_BHTS = scaled_scores(q_BHTK, k_BHSK, bias)
        if mask is None:
            return (score_BHTS - math.log(score_BHTS.shape[3])).sigmoid()
        count = mask.sum(-1, keepdim=True).to(score_BHTS.dtype)
        return (score_BHTS - count.log()).sigmoid().masked_fill(~mask, 0.0)


class Mean(Softmax):
    """The mean of the values, whatever the query: over the memory the value of one vector, its mean. Q and K idle."""

    def weights(self, q_BHTK: Tensor, k_BHSK: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        return super().weights(q_BHTK * 0.0, k_BHSK, mask, None)


def make_attention(c: Model, place: str, number: int) -> AttentionType | None:
    """What `model.attention` names, where it acts; None: softmax, by torch's fused kernels.

    Raises UserError where it is neither one that ships nor the import path of an AttentionType.
    """
    if c.attention == "softmax" or c.attention_where not in ("both", "cross" if place == "cross" else "self"):
        return None
    cls: type[AttentionType] = ATTENTIONS.find(c.attention, __name__)
    return construct(cls, AttentionSizes(c.d_model, c.h, c.d_k, c.d_v, place, number))
