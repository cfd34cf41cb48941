"""Dropout masks as layers are given them: 0 or 1/(1-P), shaped like what they act on."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from torch import Tensor, nn

Keep = Tensor | None


class Inner(NamedTuple):
    """Dropout masks within one layer's sub-layers (config: P_attention, P_ff); None where the model draws its own."""

    attention: Keep = None
    memory: Keep = None
    feed_forward: Keep = None

    @staticmethod
    def masked(sublayer: nn.Module, keep: Keep) -> Callable[..., Tensor]:
        """The sub-layer with its mask, where there is one: of types of the user's own not all take any."""
        return sublayer if keep is None else partial(sublayer, keep=keep)


NO_MASKS = Inner()
