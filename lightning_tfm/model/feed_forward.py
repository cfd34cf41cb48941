"""Feed-forward sub-layers. One is one class here and one line in `registry.FEED_FORWARDS`. Shapes: see `transformer`.

A gated one has three matrices instead of two. It gets its inner width at equal parameters (`registry.gated_width`), so
that `model.d_ff` means the same budget for all.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from lightning_tfm.model.attention import FusedLinear
from lightning_tfm.model.config import Model
from lightning_tfm.model.dropout import Dropout
from lightning_tfm.model.user_init import construct
from lightning_tfm.registry import FEED_FORWARDS, gated_width


@dataclass(frozen=True)
class FeedForwardSizes:
    """What a feed-forward may need to know of the model."""

    d_model: int
    d_ff: int
    bias: bool = True
    P_ff: float = 0.0


class FeedForward(nn.Module, ABC):
    """Constructed as `Class(sizes)`; its weights are initialised by name with all others (model/init.py).

    Name the matrix whose product is added to the residual stream W_2: `model.init: xavier_residual` looks for it.
    """

    def __init__(self, sizes: FeedForwardSizes):
        super().__init__()
        self.dropout = Dropout(sizes.P_ff)
        """of what ships, before W_2; a user-defined class may call it, too"""

    @abstractmethod
    def forward(self, x_BTD: Tensor) -> Tensor:
        """-> [B, T, D], every position only from itself."""


class ReLU(FeedForward):
    """max(0, x W_1 + b_1) W_2 + b_2 (eq. 2 of the paper)."""

    def __init__(self, sizes: FeedForwardSizes):
        super().__init__(sizes)
        self.W_1 = nn.Linear(sizes.d_model, sizes.d_ff, sizes.bias)
        self.W_2 = nn.Linear(sizes.d_ff, sizes.d_model, sizes.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.W_2(self.dropout(self.activation(self.W_1(x_BTD))))

    def activation(self, x_BTF: Tensor) -> Tensor:
        return F.relu(x_BTF)


class GELU(ReLU):
    """x Φ(x) in place of max(0, x), Φ the normal distribution function (Hendrycks and Gimpel 2016), exact."""

    def activation(self, x_BTF: Tensor) -> Tensor:
        return F.gelu(x_BTF)


class SquaredReLU(ReLU):
    """max(0, x)² (So et al. 2021, Primer)."""

    def activation(self, x_BTF: Tensor) -> Tensor:
        return F.relu(x_BTF).square()


class SwiGLU(FeedForward):
    """(x σ(x) at x W + b) ⊙ (x V + c), then W_2 and its bias (Shazeer 2020); W and V share one matrix."""

    def __init__(self, sizes: FeedForwardSizes):
        super().__init__(sizes)
        width = gated_width(sizes.d_model, sizes.d_ff, sizes.bias)
        self.W_1 = FusedLinear(sizes.d_model, {"gate": width, "value": width}, sizes.bias)
        self.W_2 = nn.Linear(width, sizes.d_model, sizes.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        gate_BTF, value_BTF = self.W_1(x_BTD).chunk(2, -1)
        return self.W_2(self.dropout(self.activation(gate_BTF) * value_BTF))

    def activation(self, x_BTF: Tensor) -> Tensor:
        return F.silu(x_BTF)


class GEGLU(SwiGLU):
    """GELU as the gate (Shazeer 2020)."""

    def activation(self, x_BTF: Tensor) -> Tensor:
        return F.gelu(x_BTF)


def make_feed_forward(c: Model) -> FeedForward:
    """Raises UserError where `feed_forward` is neither one that ships nor the import path of a FeedForward."""
    cls: type[FeedForward] = FEED_FORWARDS.find(c.feed_forward, __name__)
    return construct(cls, FeedForwardSizes(c.d_model, c.d_ff, c.bias, c.P_ff))


def product_weights(module: nn.Module) -> int:
    """Numbers in its matrices, each multiplied once for a position; those of positions, scores and mixes are none."""
    others = ("scheme.", "additive.", "mix.")
    return sum(p.numel() for name, p in module.named_parameters() if p.dim() > 1 and not name.startswith(others))
