"""Attention with its weights in hand, for what acts on them. Shapes: see `transformer`."""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def attend_explicit(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSV: Tensor,
    allowed: Tensor | None,
    causal: bool,
    bias: Tensor | None,
    scores: Callable[[Tensor, Tensor], Tensor] | None,
    values: Callable[[Tensor], Tensor] | None,
    drop: Callable[[Tensor], Tensor],
) -> Tensor:
    """`attention.attend`, if need be with other `scores`, and with what `values` makes of the weights [B, H, T, S]."""
    if scores is None:
        score_BHTS = (q_BHTK / math.sqrt(q_BHTK.shape[3])) @ k_BHSK.transpose(2, 3)
    else:
        score_BHTS = scores(q_BHTK, k_BHSK)
    score_BHTS = score_BHTS if bias is None else score_BHTS + bias
    T, S = score_BHTS.shape[2:]
    if causal and T > 1:
        past_TS = torch.ones(T, S, dtype=torch.bool, device=q_BHTK.device).tril(S - T)
        allowed = past_TS if allowed is None else allowed & past_TS
    if allowed is not None:
        score_BHTS = score_BHTS.masked_fill(~allowed, float("-inf"))
    weights_BHTS = drop(score_BHTS.softmax(-1))
    found_BHTV = weights_BHTS @ v_BHSV
    return found_BHTV if values is None else found_BHTV + values(weights_BHTS)
