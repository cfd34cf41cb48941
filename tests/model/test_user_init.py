"""What the constructor of a user-defined class sets is what trains; what it leaves open is drawn as of what ships."""

import random
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lightning_tfm.errors import UserError
from lightning_tfm.model.attention_types import Gated, Softmax
from lightning_tfm.model.causality_check import check_own_classes
from lightning_tfm.model.config import Model
from lightning_tfm.model.feed_forward import FeedForward
from lightning_tfm.model.norms import Norm, RMSNorm
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.model.user_init import origins_in_words

SMALL = Model(N=2, d_model=16, d_ff=23, h=2, d_k=6, d_v=5)


def built(cls: type, seed: int = 1, **change) -> Transformer:
    field = "attention" if issubclass(cls, Softmax) else "norm_kind" if issubclass(cls, Norm) else "feed_forward"
    return Transformer(replace(SMALL, **{field: f"{__name__}.{cls.__name__}"}, **change), 31, seed)


def own(model: Transformer, name: str, layer: int = 0) -> torch.Tensor:
    return model.get_parameter(f"encoder.{layer}.{name}").detach()


class Inner(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.full((width,), 0.1))
        self.map = nn.Linear(width, width)


class Everything(Softmax):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.one, self.none = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(sizes.d_v))
        self.tenth, self.scalar = nn.Parameter(0.1 * torch.ones(sizes.d_v)), nn.Parameter(torch.tensor(1.0))
        self.random = nn.Parameter(torch.randn(3, 4))
        self.by_numpy = nn.Parameter(torch.tensor(np.random.rand(3), dtype=torch.float32))
        self.by_python = nn.Parameter(torch.tensor(random.random()))
        self.empty, self.empty_scalar = nn.Parameter(torch.empty(4, 9)), nn.Parameter(torch.empty(()))
        self.asked = nn.Parameter(torch.ones(500))
        self.asked.initial_std = 0.01
        self.zeroed, self.gate = nn.Linear(4, 4), nn.Linear(4, 3)
        nn.init.zeros_(self.zeroed.weight)
        nn.init.constant_(self.gate.bias, -2.0)
        self.data_zeroed = nn.Linear(4, 4)
        self.data_zeroed.weight.data.zero_()
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.gated_by = nn.Parameter(torch.eye(4))
        self.plain, self.inner = nn.Linear(4, 6), Inner(4)
        self.table = nn.Embedding(7, 4, padding_idx=2)
        self.kernel, self.steps = nn.Conv2d(2, 3, 3), nn.LSTM(4, 5)
        self.norm = nn.GroupNorm(2, 4)
        self.register_buffer("drawn", torch.randn(3))


def test_every_way_to_set_a_parameter_in_a_constructor():
    model = built(Everything)
    mix = "self_attention.mix"
    for name, value in (("one", 1.0), ("none", 0.0), ("tenth", 0.1), ("scalar", 1.0), ("inner.scale", 0.1)):
        assert (own(model, f"{mix}.{name}") == value).all(), name
    for name, value in (("zeroed.weight", 0.0), ("data_zeroed.weight", 0.0), ("gate.bias", -2.0), ("norm.weight", 1.0)):
        assert (own(model, f"{mix}.{name}") == value).all(), name
    assert torch.equal(own(model, f"{mix}.tied.weight"), torch.eye(4))
    for name in ("zeroed.bias", "plain.bias", "inner.map.bias", "kernel.bias", "steps.bias_ih_l0"):
        assert (own(model, f"{mix}.{name}") == 0).all(), f"{name} is model.init's"
    assert (
        own(model, f"{mix}.plain.weight").abs().max() <= (6 / 10) ** 0.5
        and own(model, f"{mix}.empty_scalar").isfinite()
    )
    assert 0.5 < own(model, f"{mix}.plain.weight").abs().max() <= 0.6**0.5, "torch's own draw is within 1/2"
    assert own(model, f"{mix}.asked").std() == pytest.approx(0.01, rel=0.2)
    table = own(model, f"{mix}.table.weight")
    assert (table[2] == 0).all() and table.std() == pytest.approx(0.5, rel=0.4), "N(0, 1/4), as model.init's embeddings"
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_what_a_constructor_draws_is_new_at_each_seed_and_the_same_whatever_else_there_is():
    first = {name: tensor.clone() for name, tensor in built(Everything).state_dict().items()}
    torch.manual_seed(99)
    random.seed(99)
    state = torch.get_rng_state(), random.getstate()
    again, other, deeper = built(Everything), built(Everything, seed=2), built(Everything, N=3)
    assert random.getstate() == state[1], "the generators of others are left alone"
    assert all(torch.equal(tensor, first[name]) for name, tensor in again.state_dict().items())
    assert all(torch.equal(tensor, deeper.state_dict()[name]) for name, tensor in first.items())
    for name in ("random", "by_numpy", "by_python", "drawn", "empty", "plain.weight"):
        key = f"encoder.0.self_attention.mix.{name}"
        assert not torch.equal(first[key], other.state_dict()[key]), f"{name} is drawn anew at each seed"
        assert not torch.equal(first[key], first[key.replace("encoder.0", "encoder.1")]), "and in each layer"


class OpenGate(Gated):
    """Adds to what ships; what it inherits is drawn as there."""

    def __init__(self, sizes):
        super().__init__(sizes)
        self.scale = nn.Parameter(torch.full((1,), 3.0))


def test_a_subclass_of_what_ships_has_the_draws_of_that():
    model, ships = built(OpenGate), Transformer(replace(SMALL, attention="gated"), 31, 1)
    for name, parameter in ships.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name)), name
    assert (own(model, "self_attention.mix.scale") == 3).all()


class Squared(FeedForward):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.W_1, self.W_2 = nn.Linear(sizes.d_model, sizes.d_ff), nn.Linear(sizes.d_ff, sizes.d_model)

    def forward(self, x_BTD):
        return self.W_2(self.W_1(x_BTD).square())


class Kept(Squared):
    init = "own"


class Redrawn(Squared):
    init = "model"

    def __init__(self, sizes):
        super().__init__(sizes)
        self.gain, self.norm = nn.Parameter(torch.ones(sizes.d_ff)), RMSNorm(sizes.d_ff, 1e-6)


class Halfway(Squared):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.table = nn.Parameter(torch.empty(4, 5))
        nn.init.zeros_(self.table[0])


class Left(Kept):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.table = nn.Parameter(torch.empty(4, 5))


class Misspelt(Squared):
    init = "mine"


class Zeroed(Squared):
    """The second map starts at 0, so that the layer starts as none."""

    def __init__(self, sizes):
        super().__init__(sizes)
        nn.init.zeros_(self.W_2.weight)
        self.idle = nn.Parameter(torch.ones(3))


class Elsewhere(Squared):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.gain = nn.Parameter(torch.tensor(np.random.default_rng().random(3)))


def test_plain_linear_maps_are_those_of_the_feed_forward_that_ships():
    model, ships = built(Squared), Transformer(SMALL, 31, 1)
    assert all(torch.equal(parameter, ships.get_parameter(name)) for name, parameter in model.named_parameters())


def test_a_class_says_who_initialises_it():
    kept, redrawn = built(Kept), built(Redrawn)
    assert own(kept, "feed_forward.W_1.bias").abs().max() > 0, "torch's own draw"
    assert (own(redrawn, "feed_forward.gain") != 1).any() and (own(redrawn, "feed_forward.norm.weight") == 1).all()
    for cls, words in (
        (Misspelt, "Misspelt: init='mine': own or model"),
        (Left, "Left says init = 'own' and leaves its parameter table empty"),
        (Halfway, "Halfway: its constructor sets only a part of its parameter table"),
    ):
        with pytest.raises(UserError, match=words):
            built(cls)


def test_the_check_before_the_first_step_says_what_was_kept_and_what_no_gradient_reaches():
    lines = check_own_classes(replace(SMALL, feed_forward=f"{__name__}.Zeroed"))
    assert lines == [
        "Zeroed: kept as its constructor set it: idle, W_2.weight; drawn by model.init: W_1.weight, W_1.bias, W_2.bias "
        "(as torch made it)",
        "no gradient reaches Zeroed.idle: never trained",
    ]
    assert lines[:1] == origins_in_words(built(Zeroed).origins)
    with pytest.raises(UserError, match=r"constructed twice with one seed, encoder.0.feed_forward.gain differs"):
        check_own_classes(replace(SMALL, feed_forward=f"{__name__}.Elsewhere"))


class Bare(Norm):
    def __init__(self, width, eps):
        super().__init__()
        self.gain, self.map = nn.Parameter(torch.full((width,), 2.0)), nn.Linear(width, width)

    def forward(self, x_BTD):
        return self.map(x_BTD) * self.gain


def test_a_norm_keeps_what_it_sets_and_its_maps_are_drawn_by_the_seed():
    first, other = built(Bare), built(Bare, seed=2)
    name = "encoder.0.residual_1.norm"
    assert (first.get_parameter(f"{name}.gain") == 2).all() and (first.get_parameter(f"{name}.map.bias") == 0).all()
    assert not torch.equal(first.get_parameter(f"{name}.map.weight"), other.get_parameter(f"{name}.map.weight"))


class Draws(FeedForward):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.W_2 = nn.Linear(sizes.d_model, sizes.d_model)

    def forward(self, x_BTD):
        return self.draw() * self.W_2(x_BTD)


class ByPython(Draws):
    def draw(self):
        return random.random()


class ByTorch(Draws):
    def draw(self):
        return torch.rand(())


class Unseeded(Draws):
    def draw(self):
        return random.SystemRandom().random() if self.training else 1.0


class InTraining(Draws):
    def draw(self):
        return torch.rand(()) * random.random() if self.training else 1.0


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (ByPython, "outside training, the same text gives other numbers the second time: .* only if self.training"),
        (ByTorch, "outside training, the same text gives other numbers the second time: .* only if self.training"),
        (Unseeded, "in training, with one seed, the same text gives other numbers the second time: .* by torch.rand"),
        (InTraining, None),
    ],
)
def test_random_numbers_are_no_leak_of_later_positions(cls, words):
    sizes = replace(SMALL, feed_forward=f"{__name__}.{cls.__name__}")
    if words is None:
        check_own_classes(sizes)
    else:
        with pytest.raises(UserError, match=f"{cls.__name__}': {words}"):
            check_own_classes(sizes)


class GivenToTorch(Norm):
    def __init__(self, width: int, eps: float):
        super().__init__(width, eps)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return x_BTD


def test_an_error_raised_in_torch_shows_the_line_of_the_user_s_class():
    with pytest.raises(UserError, match=rf"GivenToTorch.*TypeError.*\({re.escape(__file__)}:\d+\)"):
        check_own_classes(replace(SMALL, norm_kind=f"{__name__}.GivenToTorch"))
