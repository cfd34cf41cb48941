"""How queries and keys are compared (config: scores).

Unscaled and cosine scores are prepared in queries and keys, so that attention's fused kernels serve all but additive
ones. The kernels divide by sqrt(d_k), which the queries are therefore multiplied with. Shapes: see `transformer`.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_tfm.model.config import Model
from lightning_tfm.model.norms import Norm, RMSNorm


def query_key_norms(c: Model) -> tuple[nn.Module | None, nn.Module | None]:
    """What queries and keys pass before they are compared; None: nothing."""
    if c.scores == "cosine":
        return CosineQuery(c.h, c.d_k), CosineKey()
    query, key = (RMSNorm(c.d_k, c.norm_eps) if c.qk_norm else None for _ in range(2))
    return (Unscaled(c.d_k, query), key) if c.scores == "unscaled" else (query, key)


class Unscaled(nn.Module):
    """q sqrt(d_k): scores are q·k (Luong et al. 2015), of variance d_k where q and k have variance 1 (footnote 4)."""

    def __init__(self, d_k: int, inner: nn.Module | None):
        super().__init__()
        self.factor, self.inner = math.sqrt(d_k), inner

    def forward(self, q_BHTK: Tensor) -> Tensor:
        return (q_BHTK if self.inner is None else self.inner(q_BHTK)) * self.factor


class CosineQuery(Norm):
    """Scores are g_h sqrt(d_k) cos(q, k) with a learned g for each head, from 1 (after Henry et al. 2020).

    sqrt(d_k) cos has variance 1 for random q and k, as scaled products have.
    """

    def __init__(self, h: int, d_k: int):
        super().__init__()
        self.gain_H, self.d_k = nn.Parameter(torch.ones(h)), d_k

    def forward(self, q_BHTK: Tensor) -> Tensor:
        return F.normalize(q_BHTK, dim=-1) * (self.gain_H[:, None, None] * self.d_k)


class CosineKey(nn.Module):
    def forward(self, k_BHSK: Tensor) -> Tensor:
        return F.normalize(k_BHSK, dim=-1)


class Additive(nn.Module):
    """u_h · tanh(q + k) (Bahdanau et al. 2015), whose two matrices are those that make q and k.

    It holds B h T S d_k numbers at once.
    """

    def __init__(self, h: int, d_k: int):
        super().__init__()
        self.u_HK = nn.Parameter(torch.empty(h, d_k))

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        """-> [B, H, T, S]."""
        sum_BHTSK = torch.tanh(q_BHTK[:, :, :, None] + k_BHSK[:, :, None])
        return (sum_BHTSK @ self.u_HK[:, None, :, None]).squeeze(-1)
