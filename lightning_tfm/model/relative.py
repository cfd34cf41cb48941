"""Positional schemes that add to the scores of every self-attention. Shapes: see `transformer`; R distances."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_tfm.model.positions import BiasScheme, PositionSizes, ValueScheme
from lightning_tfm.model.size import FIRE_WIDTH, T5_BUCKETS


def distances(T: int, S: int, start: int, device: torch.device) -> Tensor:
    """[T, S]: by how many positions key s lies behind query start + t; negative before it."""
    t_T1 = torch.arange(start, start + T, device=device)[:, None]
    return torch.arange(S, device=device) - t_T1


class Shaw(BiasScheme):
    """Relative positions (Shaw et al. 2018, eq. 4): q_t · a_clip(s-t) / sqrt(d_k), a table for each layer.

    Only the key term: their Table 3 finds 25.8 BLEU with both terms, 25.8 with this one alone.
    """

    def __init__(self, sizes: PositionSizes):
        super().__init__(sizes)
        self.clip = sizes.clip
        self.table_RK = nn.Parameter(torch.empty(2 * sizes.clip + 1, sizes.d_k))

    def bias(self, q_BHTK: Tensor, S: int, start: int) -> Tensor:
        B, H, T, K = q_BHTK.shape
        index_TS = self.index(T, S, start, q_BHTK.device)
        scores_BHTR = q_BHTK @ self.table_RK.T * K**-0.5
        if q_BHTK.device.type == "cpu":
            return scores_BHTR.gather(3, index_TS.expand(B, H, T, S))
        return look_up(scores_BHTR, index_TS)

    def index(self, T: int, S: int, start: int, device: torch.device) -> Tensor:
        return distances(T, S, start, device).clamp(-self.clip, self.clip) + self.clip


def look_up(scores_BHTR: Tensor, index_TS: Tensor) -> Tensor:
    """scores[b, h, t, index[t, s]] -> [B, H, T, S], as a product with zeros and ones: exact, and for a GPU, where the
    gradient of `gather` sorts all B * H * T * S entries if it is to be the same in every run."""
    return torch.einsum("bhtr,trs->bhts", scores_BHTR, chosen(index_TS, scores_BHTR.shape[3], scores_BHTR.dtype))


def chosen(index_TS: Tensor, R: int, dtype: torch.dtype) -> Tensor:
    """[T, R, S]: 1 where index[t, s] is r, else 0."""
    return (index_TS[:, None] == torch.arange(R, device=index_TS.device)[:, None]).to(dtype)


class ShawValues(Shaw, ValueScheme):
    """Both terms of Shaw et al. 2018: to the sum of values, each weight also adds a vector by its distance (eq. 3)."""

    def __init__(self, sizes: PositionSizes):
        super().__init__(sizes)
        self.table_RV = nn.Parameter(torch.empty(2 * sizes.clip + 1, sizes.d_v))

    def values(self, weights_BHTS: Tensor, start: int) -> Tensor:
        T, S = weights_BHTS.shape[2:]
        index_TS = self.index(T, S, start, weights_BHTS.device)
        chosen_TRS = chosen(index_TS, self.table_RV.shape[0], weights_BHTS.dtype)
        return torch.einsum("bhts,trs->bhtr", weights_BHTS, chosen_TRS) @ self.table_RV


class ALiBi(BiasScheme):
    """Linear bias (Press et al. 2022): -m_h |t - s| with slopes m_h = 2^(-8 h / H), h = 1 … H, at any H."""

    slopes_H11: Tensor

    def __init__(self, sizes: PositionSizes):
        super().__init__(sizes)
        slopes = 2.0 ** (-8.0 * torch.arange(1, sizes.h + 1, dtype=torch.float64) / sizes.h)
        self.register_buffer("slopes_H11", slopes[:, None, None], persistent=False)

    def bias(self, q_BHTK: Tensor, S: int, start: int) -> Tensor:
        distance_TS = distances(q_BHTK.shape[2], S, start, q_BHTK.device).abs()
        return (-self.slopes_H11.to(q_BHTK.dtype) * distance_TS).unsqueeze(0)


T5_FARTHEST = 128
"""distance from which on all share T5's last bucket"""


def t5_bucket(distance: int, causal: bool) -> int:
    """Of 32 (Raffel et al. 2020; mesh_tensorflow's code): half of them for single distances, the others ever wider.

    In an encoder keys behind the query have 16 of their own; a decoder has none there.
    """
    buckets = T5_BUCKETS if causal else T5_BUCKETS // 2
    behind = 0 if causal or distance <= 0 else buckets
    apart = max(-distance, 0) if causal else abs(distance)
    exact = buckets // 2
    if apart < exact:
        return behind + apart
    wide = math.log(apart / exact) / math.log(T5_FARTHEST / exact) * (buckets - exact)
    return behind + min(exact + int(wide + 1e-9), buckets - 1)


class T5(BiasScheme):
    """A learned number for each head and bucket of distances, the same in all layers of a stack."""

    shared = True
    bucket_R: Tensor

    def __init__(self, sizes: PositionSizes):
        super().__init__(sizes)
        self.table_RH = nn.Parameter(torch.empty(T5_BUCKETS, sizes.h))
        buckets = [t5_bucket(d, sizes.causal) for d in range(-T5_FARTHEST, T5_FARTHEST + 1)]
        self.register_buffer("bucket_R", torch.tensor(buckets), persistent=False)

    def bias(self, q_BHTK: Tensor, S: int, start: int) -> Tensor:
        distance_TS = distances(q_BHTK.shape[2], S, start, q_BHTK.device).clamp(-T5_FARTHEST, T5_FARTHEST)
        bucket_TS = self.bucket_R[distance_TS + T5_FARTHEST]
        return F.embedding(bucket_TS, self.table_RH).permute(2, 0, 1).to(q_BHTK.dtype).unsqueeze(0)


class Kerple(BiasScheme):
    """KERPLE's logarithmic kernel (Chi et al. 2022): -a log(1 + b |t - s|), a and b learned for each head and layer.

    They are positive as softplus of what is learned, where the authors' code clips.
    """

    def __init__(self, sizes: PositionSizes):
        super().__init__(sizes)
        self.a_H, self.b_H = nn.Parameter(torch.empty(sizes.h)), nn.Parameter(torch.empty(sizes.h))

    def bias(self, q_BHTK: Tensor, S: int, start: int) -> Tensor:
        distance_TS = distances(q_BHTK.shape[2], S, start, q_BHTK.device).abs()
        a_H11, b_H11 = (F.softplus(x)[:, None, None] for x in (self.a_H, self.b_H))
        return (-a_H11 * torch.log1p(b_H11 * distance_TS)).to(q_BHTK.dtype).unsqueeze(0)


class Fire(BiasScheme):
    """FIRE (Li et al. 2024): a small network of ψ(t - s) / ψ(max(t, L)), ψ(x) = log(1 + c x), the same in all layers.

    c and L are learned (positive as softplus; L begins near 16, of the size of sentences, the authors' at 512). They
    have decoders alone; in an encoder the distance keeps its sign.
    """

    shared = True

    def __init__(self, sizes: PositionSizes):
        super().__init__(sizes)
        self.c_1, self.L_1 = nn.Parameter(torch.empty(1)), nn.Parameter(torch.empty(1))
        self.W_in, self.W_out = nn.Linear(1, FIRE_WIDTH), nn.Linear(FIRE_WIDTH, sizes.h)

    def bias(self, q_BHTK: Tensor, S: int, start: int) -> Tensor:
        T, kind = q_BHTK.shape[2], self.c_1.dtype
        distance_TS = -distances(T, S, start, q_BHTK.device).to(kind)
        t_T1 = torch.arange(start, start + T, device=q_BHTK.device)[:, None].to(kind)
        c, L = F.softplus(self.c_1), 16 * F.softplus(self.L_1)
        near_TS = torch.log1p(c * distance_TS.abs()) / torch.log1p(c * torch.maximum(t_T1, L))
        hidden_TSF = F.relu(self.W_in((near_TS * distance_TS.sign())[..., None]))
        return self.W_out(hidden_TSF).permute(2, 0, 1).to(q_BHTK.dtype).unsqueeze(0)
