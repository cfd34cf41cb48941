"""Attention of short sentences on a CPU, where torch's fused kernel is slower. Shapes: see `transformer`."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

VECTOR = 16
"""keys below which torch's softmax leaves vector instructions on a CPU, at ten times the cost of an element"""
SHORT = 64
"""keys up to which products and softmax one after the other are faster on a CPU than torch's fused kernel"""


def is_short(q_BHTK: Tensor, S: int) -> bool:
    exact = q_BHTK.device.type == "cpu" and q_BHTK.dtype in (torch.float32, torch.float64)
    return exact and q_BHTK.shape[2] > 1 and S <= SHORT and not torch.compiler.is_compiling()


def attend_short(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, allowed: Tensor | None, bias: Tensor | None) -> Tensor:
    """`attention.attend` without a fused kernel, the keys filled up to VECTOR with some that no query sees."""
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
