"""What a class of the user's own declares of itself is read wherever what ships is read from registry.py."""

import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_tfm.config import Experiment, Model
from lightning_tfm.config_validation import check
from lightning_tfm.errors import UserError
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.model.layer_types import LayerSizes, LayerType, State
from lightning_tfm.model.norms import Norm
from lightning_tfm.model.positions import T5, Learned, Rotary, Sinusoidal
from lightning_tfm.model.size import count_parameters
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.registry import KINDS, SCHEMES
from lightning_tfm.testing import LayerSuite, NormSuite, SchemeSuite


class ScaleNorm(Norm):
    """g x / |x| (Nguyen and Salazar 2019). Before a feed-forward whose biases are 0, g cancels in the next norm: what
    is left of its gradient there is rounding, which counts for nothing here."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.gain, self.eps = nn.Parameter(torch.tensor(width**0.5)), eps
        self.gain.register_hook(lambda gradient: gradient.where(gradient.abs() > 1e-12, 0.0))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.gain * F.normalize(x_BTD, dim=-1, eps=self.eps)

    @staticmethod
    def parameter_count(model: Model) -> int:
        return 1


class TestScaleNorm(NormSuite):
    norm_kind = f"{__name__}.ScaleNorm"


class Attention(LayerType):
    """One head of attention, which sees no order by itself."""

    sees_order = False

    def __init__(self, sizes: LayerSizes):
        super().__init__(sizes)
        self.W_QKV = nn.Linear(sizes.d_model, 3 * sizes.d_model, bias=False)
        self.W_O = nn.Linear(sizes.d_model, sizes.d_model, bias=False)

    def forward(
        self, x_BTD: Tensor, allowed: Tensor | None, causal: bool, cache: State | None = None, start: int = 0
    ) -> Tensor:
        q_BTD, k_BTD, v_BTD = self.W_QKV(x_BTD).chunk(3, -1)
        if cache is not None:
            if cache.tensors:
                k_BTD, v_BTD = (torch.cat(pair, 1) for pair in zip(cache.tensors, (k_BTD, v_BTD), strict=True))
            cache.tensors = (k_BTD, v_BTD)
        T, S = q_BTD.shape[1], k_BTD.shape[1]
        seen = torch.ones(T, S, dtype=torch.bool, device=x_BTD.device).tril(S - T if causal else S)
        seen = seen if allowed is None else seen & allowed[:, 0]
        score_BTS = (q_BTD @ k_BTD.transpose(1, 2) / q_BTD.shape[2] ** 0.5).masked_fill(~seen, float("-inf"))
        return self.W_O(score_BTS.softmax(-1) @ v_BTD)

    def new_cache(self) -> State:
        return State()

    @staticmethod
    def parameter_count(model: Model, width: int, causal: bool, bias: bool) -> int:
        return 4 * model.d_model**2

    @staticmethod
    def pairs(model: Model, n):
        return n * n


class TestAttention(LayerSuite):
    layer = f"{__name__}.Attention"


class Endless(Sinusoidal):
    """In a module whose name begins as that of the learned vectors does."""


def test_a_scheme_is_bounded_by_its_trait_and_not_by_its_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "learned_by_me", sys.modules[__name__])
    model = Transformer(replace(SchemeSuite.sizes, positions="learned_by_me.Endless"), 31)
    assert model.max_length > 1000
    bounded = Transformer(replace(SchemeSuite.sizes, positions=f"{__name__}.Mine"), 31)
    assert bounded.max_length == SchemeSuite.sizes.max_positions


class Mine(Learned):
    pass


class MyT5(T5):
    pass


class MyRotary(Rotary):
    pass


def test_a_class_inherits_what_is_declared_of_one_that_ships():
    assert SCHEMES.traits(f"{__name__}.Mine").ends_at == "max_positions"
    assert SCHEMES.traits(f"{__name__}.MyT5").shared and SCHEMES.traits(f"{__name__}.Mine").parameter_count is None
    model = Transformer(replace(SchemeSuite.sizes, positions=f"{__name__}.MyT5"), 31)
    assert model.encoder[0].self_attention.scheme is model.encoder[1].self_attention.scheme
    with pytest.raises(UserError, match=r"model\.d_k=7: .*MyRotary needs an even d_k"):
        check(Experiment(model=Model(positions=f"{__name__}.MyRotary", d_k=7)))


@pytest.mark.parametrize("field", [key for key in KINDS if key.startswith("model.")])
def test_classes_of_what_ships_are_where_and_what_they_say(field):
    kind = KINDS[field]
    module, *bases = kind.bases
    __import__(module)
    for name in bases:
        assert isinstance(getattr(sys.modules[module], name), type)
    for name, part in kind.items():
        found = kind.find(name, module)
        assert found.__name__ == part.cls
        assert getattr(part, "acts", None) == getattr(found, "acts", None)


def test_declared_numbers_and_pairs_are_counted():
    changes = {"norm_kind": f"{__name__}.ScaleNorm", "layer": f"{__name__}.Attention"}
    config = Model(**({"N": 2, "d_model": 12, "d_ff": 20, "h": 1, "d_k": 12, "d_v": 12} | changes))
    model = Transformer(config, 31)
    assert count_parameters(config, 31)["total"] == sum(p.numel() for p in model.parameters())
    plain = replace(config, norm_kind="layer", layer="attention")
    lengths = torch.tensor([9, 4]).numpy()
    pairs = AttentionPairs.of(config, lengths, lengths)
    assert pairs == AttentionPairs.of(plain, lengths, lengths)
    assert training_flops(config, 31, 13, 13, pairs) == training_flops(plain, 31, 13, 13, pairs)


class Earlier(Learned):
    even = "d_k"


def test_the_earlier_name_of_a_trait_is_refused_with_todays():
    with pytest.raises(UserError, match=r"Earlier': its trait `even` is now called must_be_even"):
        SCHEMES.find(f"{__name__}.Earlier", "")
