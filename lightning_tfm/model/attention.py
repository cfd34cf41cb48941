"""Scaled dot-product attention and multi-head attention with free d_k and d_v (3.2 of the paper).

Shapes: see `transformer`. The projections of one input share one matrix product; their weights are stacked
in the order that `FusedLinear.parts` names.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention

from lightning_tfm.model.attention_scores import Additive, query_key_norms
from lightning_tfm.model.attention_types import make_attention, masked_softmax, scaled_scores
from lightning_tfm.model.config import Model
from lightning_tfm.model.dropout import Dropout
from lightning_tfm.model.positions import BiasScheme, PositionScheme, RotationScheme, ValueScheme

VECTOR = 16
"""keys below which torch's softmax leaves vector instructions on a CPU, at ten times the cost of an element"""
SHORT = 64
"""keys up to which products and softmax one after the other are faster on a CPU than torch's fused kernel"""


class FusedLinear(nn.Linear):
    """Several linear maps of one input, d_in -> sum of parts; initialised as if they were separate (model/init.py)."""

    def __init__(self, d_in: int, parts: dict[str, int], bias: bool):
        self.parts = parts
        super().__init__(d_in, sum(parts.values()), bias)


def split_heads(x_BTX: Tensor, h: int) -> Tensor:
    """[B, T, h * X] -> [B, h, T, X], a view."""
    return x_BTX.unflatten(-1, (h, -1)).transpose(1, 2)


def merge_heads(x_BHTX: Tensor) -> Tensor:
    """[B, h, T, X] -> [B, T, h * X]."""
    return x_BHTX.transpose(1, 2).flatten(-2)


def attend(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, allowed: Tensor | None, causal: bool, bias: Tensor | None
) -> Tensor:
    """softmax(Q K^T / sqrt(d_k) + bias) V -> [B, H, T, V] (eq. 1).

    `allowed` (bool, broadcasts to [B, 1, T, S]) says which keys a query may see; `causal` forbids keys after the
    query, counted from the last query and the last key.
    """
    T, S = q_BHTK.shape[2], k_BHSK.shape[2]
    causal = False if T == 1 else causal  # no SymBool where the layer is compiled
    short = is_short(q_BHTK, S)
    if bias is None and allowed is None and not short:
        return scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSV, is_causal=causal)
    allowed = with_causal_mask(allowed, causal, T, S, q_BHTK.device)
    if short:
        return attention_short(q_BHTK, k_BHSK, v_BHSV, allowed, bias)
    if bias is None:
        mask = allowed
    else:
        mask = bias.to(q_BHTK.dtype)
        mask = mask if allowed is None else mask.masked_fill(~allowed, float("-inf"))
    return scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSV, attn_mask=mask)


def is_short(q_BHTK: Tensor, S: int) -> bool:
    if torch.compiler.is_compiling():  # asked first: a length that is compared makes a variant for each answer
        return False
    exact = q_BHTK.device.type == "cpu" and q_BHTK.dtype in (torch.float32, torch.float64)
    return exact and q_BHTK.shape[2] > 1 and S <= SHORT


def attention_short(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, allowed: Tensor | None, bias: Tensor | None
) -> Tensor:
    """`attend` of short sentences on a CPU, where torch's fused kernel is slower.

    The keys are filled up to VECTOR with some that no query sees.
    """
    missing = max(0, VECTOR - k_BHSK.shape[2])
    if allowed is not None:
        unseen = q_BHTK.new_zeros(()).masked_fill(~allowed, -math.inf)
        bias = unseen if bias is None else bias + unseen
    if missing:
        bias = q_BHTK.new_zeros(1, k_BHSK.shape[2]) if bias is None else bias
        bias = F.pad(bias, (0, missing), value=-math.inf)
        k_BHSK, v_BHSV = F.pad(k_BHSK, (0, 0, 0, missing)), F.pad(v_BHSV, (0, 0, 0, missing))
    q, k, v = (x.flatten(0, 1) for x in (q_BHTK / math.sqrt(q_BHTK.shape[3]), k_BHSK, v_BHSV))
    score_BHTS = torch.bmm(q, k.transpose(1, 2)).unflatten(0, q_BHTK.shape[:2])
    score_BHTS = score_BHTS if bias is None else score_BHTS + bias
    return torch.bmm(score_BHTS.softmax(-1).flatten(0, 1), v).unflatten(0, q_BHTK.shape[:2])


def with_causal_mask(allowed: Tensor | None, causal: bool, T: int, S: int, device: torch.device) -> Tensor | None:
    """`allowed`, and where `causal` no key after the query, counted from the last query and the last key."""
    if not causal or T == 1:
        return allowed
    past_TS = torch.ones(T, S, dtype=torch.bool, device=device).tril(S - T)
    return past_TS if allowed is None else allowed & past_TS


def repeat_heads(x_BGTX: Tensor, h: int) -> Tensor:
    """[B, G, T, X] -> [B, h, T, X]: each of G heads of keys or values serves h / G neighbouring queries."""
    return x_BGTX if x_BGTX.shape[1] == h else x_BGTX.repeat_interleave(h // x_BGTX.shape[1], 1)


class Attention(nn.Module):
    """What both kinds have: heads, h of queries and G of keys and values (config: kv_heads), and norms of Q and K."""

    watch: Callable[[Tensor | None, Tensor, Tensor | None, Tensor | None], None] | None = None
    """told scores, weights, mask and bias of every call, where somebody looks (inference/attention_hooks.py)"""

    def __init__(self, c: Model, place: str, number: int):
        super().__init__()
        self.h, self.G = c.h, c.kv_heads or c.h
        self.mix = make_attention(c, place, number)
        self.parts = {"Q": c.h * c.d_k, "K": self.G * c.d_k, "V": self.G * c.d_v}
        self.q_norm, self.k_norm = query_key_norms(c)
        self.dropout = Dropout(c.P_attention)
        self.additive = Additive(c.h, c.d_k) if c.scores == "additive" else None

    def apply_norm(self, norm: nn.Module | None, x_BHTK: Tensor) -> Tensor:
        return x_BHTK if norm is None else norm(x_BHTK).to(x_BHTK.dtype)

    def compare(
        self,
        q_BHTK: Tensor,
        k_BHSK: Tensor,
        v_BHSV: Tensor,
        allowed: Tensor | None,
        causal: bool,
        x_BTD: Tensor | None = None,
        bias: Tensor | None = None,
        values: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """`attend`; with its weights in hand where something acts on them or looks at them. `x`: what the queries are
        made of; `values`: what a positional scheme makes of the weights."""
        k_BHSK, v_BHSV = repeat_heads(k_BHSK, self.h), repeat_heads(v_BHSV, self.h)
        watched = self.watch is not None
        if self.additive is None and self.mix is None and values is None and not (self.dropout.acts or watched):
            return attend(q_BHTK, k_BHSK, v_BHSV, allowed, causal, bias)
        mask = with_causal_mask(allowed, causal, q_BHTK.shape[2], k_BHSK.shape[2], q_BHTK.device)
        if self.mix is not None:
            if self.watch is not None and self.mix.has_weights:
                self.watch(None, self.mix.weights(q_BHTK, k_BHSK, mask, bias), mask, bias)
            return self.mix(q_BHTK, k_BHSK, v_BHSV, mask, bias, x_BTD, self.dropout)
        score_BHTS = (scaled_scores if self.additive is None else self.additive)(q_BHTK, k_BHSK)
        score_BHTS = score_BHTS if bias is None else score_BHTS + bias
        weights_BHTS = self.dropout(masked_softmax(score_BHTS, mask))
        if self.watch is not None:
            self.watch(score_BHTS, weights_BHTS, mask, bias)
        mix_BHTV = weights_BHTS @ v_BHSV
        return mix_BHTV if values is None else mix_BHTV + values(weights_BHTS)


class KeyValueCache:
    """Keys and values of the pieces decoded so far, one self-attention layer: [B, G, T, K] and [B, G, T, V]."""

    def __init__(self) -> None:
        self.k_BHTK: Tensor | None = None
        self.v_BHTV: Tensor | None = None

    def append(self, k_BH1K: Tensor, v_BH1V: Tensor) -> tuple[Tensor, Tensor]:
        if self.k_BHTK is None or self.v_BHTV is None:
            self.k_BHTK, self.v_BHTV = k_BH1K, v_BH1V
        else:
            self.k_BHTK = torch.cat((self.k_BHTK, k_BH1K), 2)
            self.v_BHTV = torch.cat((self.v_BHTV, v_BH1V), 2)
        return self.k_BHTK, self.v_BHTV

    def select(self, rows: Tensor) -> None:
        """Keep, repeat or reorder rows of the batch."""
        if self.k_BHTK is not None and self.v_BHTV is not None:
            self.k_BHTK, self.v_BHTV = self.k_BHTK.index_select(0, rows), self.v_BHTV.index_select(0, rows)


class SelfAttention(Attention):
    """MultiHead(x, x, x) (3.2.2), with a rotating or biasing positional scheme if there is one."""

    def __init__(self, c: Model, scheme: PositionScheme | None, causal: bool = False, number: int = 0):
        """`causal`: whether it belongs to the decoder; `number` of the layer in its stack, from 0."""
        super().__init__(c, "decoder" if causal else "encoder", number)
        self.W_QKV = FusedLinear(c.d_model, self.parts, c.attention_bias)
        self.W_O = nn.Linear(c.h * c.d_v, c.d_model, c.attention_bias)
        self.scheme = scheme

    def heads(self, x_BTD: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """q_BHTK, k_BGTK and v_BGTV, as they are compared and summed."""
        q, k, v = self.W_QKV(x_BTD).split(list(self.parts.values()), -1)
        q, k = (
            self.apply_norm(self.q_norm, split_heads(q, self.h)),
            self.apply_norm(self.k_norm, split_heads(k, self.G)),
        )
        if isinstance(self.scheme, RotationScheme):
            q, k = self.scheme.rotate(q, start), self.scheme.rotate(k, start)
        return q, k, split_heads(v, self.G)

    def new_cache(self) -> KeyValueCache:
        return KeyValueCache()

    def forward(
        self, x_BTD: Tensor, allowed: Tensor | None, causal: bool, cache: KeyValueCache | None = None, start: int = 0
    ) -> Tensor:
        """x_BTD -> [B, T, D]. With a cache, x holds only the newest pieces, from position `start`."""
        q, k, v = self.heads(x_BTD, start)
        if cache is not None:
            k, v = cache.append(k, v)
        bias = self.scheme.bias(q, k.shape[2], start) if isinstance(self.scheme, BiasScheme) else None
        values = partial(self.scheme.values, start=start) if isinstance(self.scheme, ValueScheme) else None
        return self.W_O(merge_heads(self.compare(q, k, v, allowed, causal, x_BTD, bias, values)))


class CrossAttention(Attention):
    """MultiHead(x, memory, memory): the decoder looks at the encoder's output (3.2.3)."""

    def __init__(self, c: Model, number: int = 0):
        super().__init__(c, "cross", number)
        self.W_Q = nn.Linear(c.d_model, self.parts["Q"], c.attention_bias)
        self.W_KV = FusedLinear(c.d_model, {"K": self.parts["K"], "V": self.parts["V"]}, c.attention_bias)
        self.W_O = nn.Linear(c.h * c.d_v, c.d_model, c.attention_bias)

    def keys_values(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """k_BGSK and v_BGSV of the memory, computed once for a whole decoding."""
        k, v = self.W_KV(memory_BSD).split([self.parts["K"], self.parts["V"]], -1)
        return self.apply_norm(self.k_norm, split_heads(k, self.G)), split_heads(v, self.G)

    def forward(self, x_BTD: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, allowed: Tensor | None) -> Tensor:
        """Where x has several rows for one of the memory, beams of a sentence, these are queries of one attention."""
        y_BTD = x_BTD if len(x_BTD) == len(k_BGSK) else x_BTD.view(len(k_BGSK), -1, x_BTD.shape[-1])
        q_BHTK = self.apply_norm(self.q_norm, split_heads(self.W_Q(y_BTD), self.h))
        mix_BTD = self.W_O(merge_heads(self.compare(q_BHTK, k_BGSK, v_BGSV, allowed, False, y_BTD)))
        return mix_BTD if y_BTD is x_BTD else mix_BTD.reshape(x_BTD.shape)
