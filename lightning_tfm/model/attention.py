"""Scaled dot-product attention and multi-head attention with free d_k and d_v (3.2 of the paper).

Shapes: see `transformer`. The projections of one input share one matrix product; their weights lie one below the other
in the order that `FusedLinear.parts` names.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention

from lightning_tfm.model.positions import BiasScheme, PositionScheme, RotationScheme


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


VECTOR = 16
"""keys below which torch's softmax leaves vector instructions on a CPU, at ten times the cost of an element"""
SHORT = 64
"""keys up to which products and softmax one after the other are faster on a CPU than torch's fused kernel"""


def attend(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, allowed: Tensor | None, causal: bool, bias: Tensor | None
) -> Tensor:
    """softmax(Q K^T / sqrt(d_k) + bias) V -> [B, H, T, V] (eq. 1).

    `allowed` (bool, broadcasts to [B, 1, T, S]) says which keys a query may see; `causal` forbids keys after the
    query, counted from the last query and the last key.
    """
    T, S = q_BHTK.shape[2], k_BHSK.shape[2]
    causal = causal and T > 1
    short = _is_short(q_BHTK, S)
    if bias is None and allowed is None and not short:
        return scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSV, is_causal=causal)
    if causal:
        past_TS = torch.ones(T, S, dtype=torch.bool, device=q_BHTK.device).tril(S - T)
        allowed = past_TS if allowed is None else allowed & past_TS
    if short:
        return _attend_short(q_BHTK, k_BHSK, v_BHSV, allowed, bias)
    if bias is None:
        mask = allowed
    else:
        mask = bias.to(q_BHTK.dtype)
        mask = mask if allowed is None else mask.masked_fill(~allowed, float("-inf"))
    return scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSV, attn_mask=mask)


def _is_short(q_BHTK: Tensor, S: int) -> bool:
    exact = q_BHTK.device.type == "cpu" and q_BHTK.dtype in (torch.float32, torch.float64)
    return exact and q_BHTK.shape[2] > 1 and S <= SHORT and not torch.compiler.is_compiling()


def _attend_short(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, allowed: Tensor | None, bias: Tensor | None
) -> Tensor:
    """`attend` without a fused kernel, the keys filled up to VECTOR with some that no query sees."""
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


class KeyValueCache:
    """Keys and values of the pieces decoded so far, one self-attention layer: [B, H, T, K] and [B, H, T, V]."""

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


class SelfAttention(nn.Module):
    """MultiHead(x, x, x) (3.2.2), with a rotating or biasing positional scheme where there is one."""

    def __init__(self, d_model: int, h: int, d_k: int, d_v: int, bias: bool, scheme: PositionScheme | None):
        super().__init__()
        self.h = h
        self.W_QKV = FusedLinear(d_model, {"Q": h * d_k, "K": h * d_k, "V": h * d_v}, bias)
        self.W_O = nn.Linear(h * d_v, d_model, bias)
        self.scheme = scheme
        self.widths = [h * d_k, h * d_k, h * d_v]

    def forward(
        self, x_BTD: Tensor, allowed: Tensor | None, causal: bool, cache: KeyValueCache | None = None, start: int = 0
    ) -> Tensor:
        """x_BTD -> [B, T, D]. With a cache, x holds only the newest piece, at position `start`."""
        q, k, v = (split_heads(part, self.h) for part in self.W_QKV(x_BTD).split(self.widths, -1))
        if isinstance(self.scheme, RotationScheme):
            q, k = self.scheme.rotate(q, start), self.scheme.rotate(k, start)
        if cache is not None:
            k, v = cache.append(k, v)
        bias = self.scheme.bias(q, k.shape[2], start) if isinstance(self.scheme, BiasScheme) else None
        return self.W_O(merge_heads(attend(q, k, v, allowed, causal, bias)))


class CrossAttention(nn.Module):
    """MultiHead(x, memory, memory): the decoder looks at the encoder's output (3.2.3)."""

    def __init__(self, d_model: int, h: int, d_k: int, d_v: int, bias: bool):
        super().__init__()
        self.h = h
        self.W_Q = nn.Linear(d_model, h * d_k, bias)
        self.W_KV = FusedLinear(d_model, {"K": h * d_k, "V": h * d_v}, bias)
        self.W_O = nn.Linear(h * d_v, d_model, bias)
        self.widths = [h * d_k, h * d_v]

    def keys_values(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """k_BHSK and v_BHSV of the memory, computed once for a whole decoding."""
        k, v = self.W_KV(memory_BSD).split(self.widths, -1)
        return split_heads(k, self.h), split_heads(v, self.h)

    def forward(self, x_BTD: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, allowed: Tensor | None) -> Tensor:
        q_BHTK = split_heads(self.W_Q(x_BTD), self.h)
        return self.W_O(merge_heads(attend(q_BHTK, k_BHSK, v_BHSV, allowed, False, None)))
