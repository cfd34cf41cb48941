"""Positional schemes. One scheme is one class here and one line in `registry.SCHEMES`.

A scheme acts at one of three places, and says so by the abstract class it derives from:

- `EmbeddingScheme.embed` adds to the embeddings, once for each stack (3.5 of the paper);
- `RotationScheme.rotate` turns queries and keys of every self-attention;
- `BiasScheme.bias` adds to the scores of every self-attention.

Cross attention sees positions only through the embeddings, as in the works cited below. `start` is the position of the
first row, above 0 when decoding one piece at a time. Shapes: see `transformer`; R distances.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_tfm.errors import UserError
from lightning_tfm.registry import FIRE_WIDTH, SCHEMES, T5_BUCKETS


@dataclass(frozen=True)
class PositionSizes:
    """What a scheme may need to know of the model."""

    d_model: int
    h: int
    d_k: int
    max_positions: int
    sinusoid_layout: str
    clip: int = 16
    d_v: int = 0
    causal: bool = False
    """whether it is the decoder's, of schemes within attention"""


class PositionScheme(nn.Module, ABC):
    """Constructed as `Scheme(sizes)`; parameters are initialised by name with all others (model/init.py).

    A user-defined one declares the traits of `registry.Scheme` as attributes: `shared = True`, `must_be_even = "d_k"`.
    """

    acts: str

    def __init__(self, sizes: PositionSizes):
        super().__init__()


class EmbeddingScheme(PositionScheme):
    acts = "embedding"

    @abstractmethod
    def embed(self, x_BTD: Tensor, scale: float, start: int) -> Tensor:
        """scale * x_BTD + what the scheme adds for positions start … start+T-1."""


class RotationScheme(PositionScheme):
    acts = "rotation"

    @abstractmethod
    def rotate(self, x_BHTK: Tensor, start: int) -> Tensor:
        """Queries or keys at positions start … start+T-1, turned."""


class BiasScheme(PositionScheme):
    acts = "scores"

    @abstractmethod
    def bias(self, q_BHTK: Tensor, S: int, start: int) -> Tensor:
        """Added to the scaled scores of queries start … start+T-1 with keys 0 … S-1; broadcasts to [B, H, T, S]."""


class ValueScheme(BiasScheme):
    @abstractmethod
    def values(self, weights_BHTS: Tensor, start: int) -> Tensor:
        """Added to what attention sums up with these weights, [B, H, T, V]."""


def sinusoids(T: int, d_model: int, layout: str) -> Tensor:
    """[T, d_model] table of 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos of the same.

    `concatenated` is the first code's timing signal: all sines, then all cosines, exponent i / (d_model/2 - 1).
    """
    half = d_model // 2
    i = torch.arange(half, dtype=torch.float64)
    exponent = 2 * i / d_model if layout == "interleaved" else i / max(half - 1, 1)
    angle_TI = torch.arange(T, dtype=torch.float64)[:, None] * 10000.0**-exponent
    pair = (angle_TI.sin(), angle_TI.cos())
    return torch.stack(pair, -1).flatten(1) if layout == "interleaved" else torch.cat(pair, 1)


class Sinusoidal(EmbeddingScheme):
    """The paper's fixed sinusoids (3.5)."""

    table_TD: Tensor

    def __init__(self, sizes: PositionSizes):
        super().__init__(sizes)
        self.d_model, self.layout = sizes.d_model, sizes.sinusoid_layout
        self.register_buffer("table_TD", torch.empty(0, sizes.d_model), persistent=False)

    def embed(self, x_BTD: Tensor, scale: float, start: int) -> Tensor:
        end = start + x_BTD.shape[1]
        if end > self.table_TD.shape[0]:
            table_TD = sinusoids(max(64, 2 * end), self.d_model, self.layout)
            self.table_TD = table_TD.to(dtype=x_BTD.dtype, device=x_BTD.device)
        return torch.add(self.table_TD[start:end], x_BTD, alpha=scale)


class Learned(EmbeddingScheme):
    """One learned vector for each position (row E of Table 3)."""

    def __init__(self, sizes: PositionSizes):
        super().__init__(sizes)
        self.table_TD = nn.Parameter(torch.empty(sizes.max_positions, sizes.d_model))

    def embed(self, x_BTD: Tensor, scale: float, start: int) -> Tensor:
        end = start + x_BTD.shape[1]
        if end > self.table_TD.shape[0]:
            raise UserError(
                f"a sequence of {end} tokens is longer than the {self.table_TD.shape[0]} learned positions: "
                "raise model.max_positions"
            )
        return torch.add(self.table_TD[start:end], x_BTD, alpha=scale)


class LearnedScaled(Learned):
    """Learned vectors that begin at the sinusoids' size, N(0, 1/2), an rms of 0.71; `learned`'s at N(0, 1/d_model).

    Beside it `learned` differs from the sinusoids in size and scheme, this one only in the scheme.
    """

    def __init__(self, sizes: PositionSizes):
        super().__init__(sizes)
        self.table_TD.initial_std = 0.5**0.5  # type: ignore[attr-defined]


class NoPositions(EmbeddingScheme):
    """None: order reaches the model only through the decoder's causal mask."""

    def embed(self, x_BTD: Tensor, scale: float, start: int) -> Tensor:
        return x_BTD * scale


class Rotary(RotationScheme):
    """Rotary embedding (Su et al. 2021): channel pairs (2i, 2i+1) turned by pos / 10000^(2i/d_k)."""

    table_TK: Tensor

    def __init__(self, sizes: PositionSizes):
        super().__init__(sizes)
        self.d_k = sizes.d_k
        self.register_buffer("table_TK", torch.empty(0, sizes.d_k), persistent=False)

    def rotate(self, x_BHTK: Tensor, start: int) -> Tensor:
        end = start + x_BHTK.shape[2]
        if end > self.table_TK.shape[0]:
            table_TK = sinusoids(max(64, 2 * end), self.d_k, "interleaved")
            dtype = torch.promote_types(x_BHTK.dtype, torch.float32)  # whoever asks next may ask for more digits
            self.table_TK = table_TK.to(dtype=dtype, device=x_BHTK.device)
        sin_TI, cos_TI = self.table_TK[start:end, 0::2], self.table_TK[start:end, 1::2]
        even, odd = x_BHTK[..., 0::2], x_BHTK[..., 1::2]
        turned = torch.stack((even * cos_TI - odd * sin_TI, even * sin_TI + odd * cos_TI), -1).flatten(-2)
        return turned.to(x_BHTK.dtype)


# --- what adds to the scores of every self-attention ---


def distances(T: int, S: int, start: int, device: torch.device) -> Tensor:
    """[T, S]: by how many positions key s is behind query start + t; negative before it."""
    t_T1 = torch.arange(start, start + T, device=device)[:, None]
    return torch.arange(S, device=device) - t_T1


class Shaw(BiasScheme):
    """Relative positions (Shaw et al. 2018, eq. 4): q_t · a_clip(s-t) / sqrt(d_k), a table for each layer.

    Only the key term: their Table 3 finds 25.8 BLEU with both terms, 25.8 with only this one.
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
    gradient of `gather` sorts all B * H * T * S entries to be the same in every run."""
    return torch.einsum("bhtr,trs->bhts", scores_BHTR, one_hot_index(index_TS, scores_BHTR.shape[3], scores_BHTR.dtype))


def one_hot_index(index_TS: Tensor, R: int, dtype: torch.dtype) -> Tensor:
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
        chosen_TRS = one_hot_index(index_TS, self.table_RV.shape[0], weights_BHTS.dtype)
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

    In an encoder keys behind the query have another 16; a decoder has none there.
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
    have only decoders; in an encoder the distance keeps its sign.
    """

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


def find_scheme(name: str) -> type[PositionScheme]:
    """The class of that name, or at that import path. Raises UserError naming the nearest valid name."""
    cls: type[PositionScheme] = SCHEMES.find(name, __name__)
    return cls
