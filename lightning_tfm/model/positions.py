"""Positional schemes. One scheme is one class and one line in `schemes.SCHEMES`.

A scheme acts at one of three places, and says so by the abstract class it derives from:

- `EmbeddingScheme.embed` adds to the embeddings, once for each stack (3.5 of the paper);
- `RotationScheme.rotate` turns queries and keys of every self-attention;
- `BiasScheme.bias` adds to the scores of every self-attention.

Cross attention sees positions only through the embeddings, as in the works cited below. `start` is the position of the
first row, above 0 when decoding one piece at a time. Shapes: see `transformer`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lightning_tfm.errors import UserError


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
    """Constructed as `Scheme(sizes)`; parameters are initialised by name with all others (model/init.py)."""

    shared = False
    """whether all layers of a stack have the same one, of schemes within attention"""

    def __init__(self, sizes: PositionSizes):
        super().__init__()


class EmbeddingScheme(PositionScheme):
    @abstractmethod
    def embed(self, x_BTD: Tensor, scale: float, start: int) -> Tensor:
        """scale * x_BTD + what the scheme adds for positions start … start+T-1."""


class RotationScheme(PositionScheme):
    @abstractmethod
    def rotate(self, x_BHTK: Tensor, start: int) -> Tensor:
        """Queries or keys at positions start … start+T-1, turned."""


class BiasScheme(PositionScheme):
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
                f"a sequence of {end} pieces is longer than the {self.table_TD.shape[0]} learned positions: "
                "raise model.max_positions"
            )
        return torch.add(self.table_TD[start:end], x_BTD, alpha=scale)


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
            kept = torch.promote_types(x_BHTK.dtype, torch.float32)  # whoever asks next may ask for more digits
            self.table_TK = table_TK.to(dtype=kept, device=x_BHTK.device)
        sin_TI, cos_TI = self.table_TK[start:end, 0::2], self.table_TK[start:end, 1::2]
        even, odd = x_BHTK[..., 0::2], x_BHTK[..., 1::2]
        turned = torch.stack((even * cos_TI - odd * sin_TI, even * sin_TI + odd * cos_TI), -1).flatten(-2)
        return turned.to(x_BHTK.dtype)
