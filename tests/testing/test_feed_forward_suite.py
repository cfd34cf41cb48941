"""The suite for users' feed-forwards: a sound one passes, and the checks of its own fail on one that breaks them."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_tfm.config import Model
from lightning_tfm.errors import UserError
from lightning_tfm.model.feed_forward import FeedForward, FeedForwardSizes, ReLU, make_feed_forward
from lightning_tfm.testing import FeedForwardSuite


class Linear(FeedForward):
    """A sound one of a user's own: one matrix and a gain for each channel."""

    def __init__(self, sizes: FeedForwardSizes):
        super().__init__(sizes)
        self.gain_D = nn.Parameter(torch.empty(sizes.d_model))
        self.W_2 = nn.Linear(sizes.d_model, sizes.d_model)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.W_2(x_BTD * self.gain_D)


class TestLinear(FeedForwardSuite):
    feed_forward = f"{__name__}.Linear"

    def parameters(self, model: Model) -> int:
        return 2 * model.N * (model.d_model**2 + 2 * model.d_model)


class Narrows(ReLU):
    def forward(self, x_BTD):
        return super().forward(x_BTD)[..., :1]


class MixesPositions(ReLU):
    def forward(self, x_BTD):
        return super().forward(x_BTD) + 0.1 * x_BTD.mean(1, keepdim=True)


class MixesRows(ReLU):
    def forward(self, x_BTD):
        return super().forward(x_BTD - x_BTD.mean(0))


class Constant(ReLU):
    def forward(self, x_BTD):
        return super().forward(torch.zeros_like(x_BTD))


class DropsOnItsOwn(ReLU):
    def forward(self, x_BTD):
        return nn.functional.dropout(super().forward(x_BTD), 0.1, self.training)


class HasAnIdleMatrix(ReLU):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.W_3 = nn.Linear(sizes.d_model, 3)


BROKEN = [
    (Narrows, "test_shapes", "3 sequences of 5 positions"),
    (MixesPositions, "test_every_position_stands_alone", "by itself is off"),
    (MixesPositions, "test_padding_is_invisible", "columns of padding"),
    (MixesRows, "test_neighbours_in_the_batch_are_invisible", "by itself, not in a batch"),
    (Constant, "test_every_position_stands_alone", "does not see itself"),
    (DropsOnItsOwn, "test_randomness_comes_from_the_seed_alone", "same dropout masks"),
    (HasAnIdleMatrix, "test_every_parameter_learns", "gets no gradient"),
    (HasAnIdleMatrix, "test_parameter_count", "parameters, 75 expected"),
]


@pytest.mark.parametrize(("broken", "check", "words"), BROKEN)
def test_a_broken_one_is_caught(broken, check, words):
    attributes: dict[str, Any] = {"feed_forward": f"{__name__}.{broken.__name__}", "parameters": lambda self, model: 75}
    with pytest.raises((AssertionError, RuntimeError), match=words):
        getattr(type("TestOne", (FeedForwardSuite,), attributes)(), check)()


def test_what_is_no_feed_forward_is_refused():
    with pytest.raises(UserError, match=r"model\.feed_forward='torch\.nn\.Linear' must derive from FeedForward"):
        make_feed_forward("torch.nn.Linear", 4, 8)
    with pytest.raises(UserError, match="did you mean 'swiglu'"):
        make_feed_forward("swigl", 4, 8)
