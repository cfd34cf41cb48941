"""The suites for a user's own parts pass what is right and find what is broken."""

import sys
import types
from dataclasses import replace
from typing import Any
from unittest import SkipTest

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_tfm.config import Experiment, Model
from lightning_tfm.config_validation import check
from lightning_tfm.errors import UserError
from lightning_tfm.inference.weight_records import weights
from lightning_tfm.model.attention_types import AttentionSizes, AttentionType
from lightning_tfm.model.feed_forward import FeedForward, FeedForwardSizes, ReLU
from lightning_tfm.model.flops import AttentionPairs, training_flops
from lightning_tfm.model.layer_types import LayerSizes, LayerType, State
from lightning_tfm.model.norms import Norm
from lightning_tfm.model.positions import (
    T5,
    BiasScheme,
    EmbeddingScheme,
    Learned,
    PositionSizes,
    Rotary,
    Sinusoidal,
    sinusoids,
)
from lightning_tfm.model.size import count_parameters
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.registry import KINDS, SCHEMES
from lightning_tfm.testing import AttentionSuite, FeedForwardSuite, LayerSuite, NormSuite, SchemeSuite


class Mean(AttentionType):
    """Values by gates of the scores and the bias over what is seen, and the mean of the queries' input."""

    def forward(self, q_BHTK, k_BHSK, v_BHSV, mask, bias, x_BTD, drop=None) -> Tensor:
        gate_BHTS = torch.einsum("bhtk,bhsk->bhts", q_BHTK, k_BHSK).sigmoid()
        gate_BHTS = gate_BHTS if bias is None else gate_BHTS * bias.exp()
        gate_BHTS = gate_BHTS if mask is None else gate_BHTS.masked_fill(~mask, 0.0)
        count = gate_BHTS.shape[3] if mask is None else mask.sum(-1, keepdim=True)
        return gate_BHTS @ v_BHSV / count + x_BTD.mean(-1)[:, None, :, None]


class TestMean(AttentionSuite):
    attention = f"{__name__}.Mean"

    def parameters(self, model: Model) -> int:
        return 0


def test_without_weights_none_are_shown():
    class Trained:
        class module:
            transformer = Transformer(Model(N=1, d_model=8, d_ff=8, h=2, d_k=4, d_v=4, attention=TestMean.attention), 9)

    assert weights(Trained, np.array([4, 5]), np.array([6])) == {"encoder": [], "decoder": [], "cross": []}
    sizes = AttentionSizes(8, 2, 4, 4, "encoder", 0)
    with pytest.raises(NotImplementedError, match="AttentionType has neither weights nor its own forward"):
        AttentionType(sizes).weights(torch.zeros(1), torch.zeros(1), None, None)


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


class FeedForwardDrops(ReLU):
    def forward(self, x_BTD):
        return nn.functional.dropout(super().forward(x_BTD), 0.1, self.training)


class HasAnIdleMatrix(ReLU):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.W_3 = nn.Linear(sizes.d_model, 3)


BROKEN_FEED_FORWARDS = [
    (Narrows, "test_shapes", "3 sequences of 5 positions"),
    (MixesPositions, "test_every_position_stands_alone", "by itself is off"),
    (MixesPositions, "test_padding_is_invisible", "columns of padding"),
    (MixesRows, "test_neighbours_in_the_batch_are_invisible", "by itself, not in a batch"),
    (Constant, "test_every_position_stands_alone", "does not see itself"),
    (FeedForwardDrops, "test_randomness_comes_from_the_seed_alone", "same dropout masks"),
    (HasAnIdleMatrix, "test_every_parameter_learns", "gets no gradient"),
    (HasAnIdleMatrix, "test_parameter_count", "parameters, 75 expected"),
]


@pytest.mark.parametrize(("broken", "check", "words"), BROKEN_FEED_FORWARDS)
def test_a_broken_one_is_caught(broken, check, words):
    attributes: dict[str, Any] = {"feed_forward": f"{__name__}.{broken.__name__}", "parameters": lambda self, model: 75}
    with pytest.raises((AssertionError, RuntimeError), match=words):
        getattr(type("TestOne", (FeedForwardSuite,), attributes)(), check)()


CHECKS = [name for name in dir(SchemeSuite) if name.startswith("test_")]


def run(scheme: str, check: str, **attributes: Any) -> None:
    getattr(type("TestOne", (SchemeSuite,), {"scheme": scheme} | attributes)(), check)()


class Gated(EmbeddingScheme):
    """A sound scheme of a user's own: the position's number, at a learned weight for each channel."""

    def __init__(self, sizes: PositionSizes):
        super().__init__(sizes)
        self.gain_D = nn.Parameter(torch.empty(sizes.d_model))

    def embed(self, x_BTD: Tensor, scale: float, start: int) -> Tensor:
        t_T = torch.arange(start, start + x_BTD.shape[1], dtype=x_BTD.dtype, device=x_BTD.device)
        return scale * x_BTD + t_T.log1p()[:, None] * self.gain_D


class TestGated(SchemeSuite):
    scheme = f"{__name__}.Gated"

    def parameters(self, model: Model) -> int:
        return 2 * model.d_model


class LooksAhead(EmbeddingScheme):
    def embed(self, x_BTD, scale, start):
        return scale * (x_BTD + 0.1 * x_BTD.roll(-1, 1))


class IgnoresStart(Sinusoidal):
    def embed(self, x_BTD, scale, start):
        return super().embed(x_BTD, scale, 0)


class CountsFromTheEnd(Sinusoidal):
    def embed(self, x_BTD, scale, start):
        return super().embed(x_BTD.flip(1), scale, start).flip(1)


class SeesNeighbours(Sinusoidal):
    def embed(self, x_BTD, scale, start):
        return super().embed(x_BTD - x_BTD.mean(0), scale, start)


class DrawsByItself(EmbeddingScheme):
    def __init__(self, sizes):
        super().__init__(sizes)
        draw = np.random.default_rng()  # begins elsewhere each time; torch.randn is keyed
        self.register_buffer("table_TD", torch.tensor(draw.normal(size=(999, sizes.d_model))), persistent=False)

    def embed(self, x_BTD, scale, start):
        return scale * x_BTD + self.table_TD[start : start + x_BTD.shape[1]]


class CountsItsInstances(Gated):
    """Its parameter has another name in every instance."""

    made = 0

    def __init__(self, sizes):
        super().__init__(sizes)
        type(self).made += 1
        self.register_parameter(f"gain_{self.made}", nn.Parameter(torch.empty(sizes.d_model)))


class HasAnIdleParameter(Gated):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.idle_D = nn.Parameter(torch.empty(sizes.d_model))


class SavesItsTable(Sinusoidal):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.register_buffer("table_TD", torch.empty(0, sizes.d_model), persistent=True)


class StretchesToTheLongest(EmbeddingScheme):
    longest = 1

    def embed(self, x_BTD, scale, start):
        self.longest = max(self.longest, start + x_BTD.shape[1])
        t_T = torch.arange(start, start + x_BTD.shape[1], device=x_BTD.device) / self.longest
        return scale * x_BTD + t_T.to(x_BTD.dtype)[:, None]


class StopsCounting(Sinusoidal):
    """Beyond max_positions every position is alike."""

    def __init__(self, sizes):
        super().__init__(sizes)
        self.most = sizes.max_positions

    def embed(self, x_BTD, scale, start):
        assert start + x_BTD.shape[1] <= self.most, "too long"
        return super().embed(x_BTD, scale, start)


class Blind(EmbeddingScheme):
    def embed(self, x_BTD, scale, start):
        return scale * x_BTD


class DropsOnItsOwn(Sinusoidal):
    def embed(self, x_BTD, scale, start):
        return nn.functional.dropout(super().embed(x_BTD, scale, start), 0.1, self.training)


class ComputesInDouble(EmbeddingScheme):
    def embed(self, x_BTD, scale, start):
        return scale * x_BTD + sinusoids(start + x_BTD.shape[1], x_BTD.shape[2], "interleaved")[start:]


class StaysOnTheProcessor(BiasScheme):
    def bias(self, q_BHTK, S, start):
        t_T1 = torch.arange(start, start + q_BHTK.shape[2])[:, None]
        return -(torch.arange(S) - t_T1).abs().to(q_BHTK.dtype)


class ForgetsTheKeys(BiasScheme):
    """One number for each query and head: no column for the keys."""

    def bias(self, q_BHTK, S, start):
        return q_BHTK.sum(-1)


class AnyWidthRotary(Rotary):
    """Nobody refuses an odd d_k for it."""

    must_be_even = ""


class SaysThatItEnds(Sinusoidal):
    ends_at = "max_positions"


class SaysThatItGoesOn(Learned):
    ends_at = ""


class SaysThatItIsBlind(Sinusoidal):
    sees_order = False


unwritten = types.ModuleType("unwritten")
exec("from lightning_tfm.model.positions import Sinusoidal\nclass Mine(Sinusoidal): pass", vars(unwritten))

BROKEN = [
    (LooksAhead, "test_no_position_sees_a_later_one", "positions 0 to 2 changed"),
    (LooksAhead, "test_piece_by_piece_is_all_at_once", "the token at position 0"),
    (IgnoresStart, "test_piece_by_piece_is_all_at_once", "the token at position 1 is off"),
    (CountsFromTheEnd, "test_padding_is_invisible", "columns of padding"),
    (SeesNeighbours, "test_neighbours_in_the_batch_are_invisible", "by itself, not in a batch"),
    (DrawsByItself, "test_the_same_seed_gives_the_same_bits", "the results differ"),
    (DrawsByItself, "test_what_its_constructor_sets_and_what_is_drawn", "table_TD differs: draw it by torch.randn"),
    (CountsItsInstances, "test_the_same_seed_gives_the_same_bits", "different names"),
    (CountsItsInstances, "test_weights_are_drawn_by_name", "no counterpart"),
    (Gated, "test_parameter_count", "76 parameters, 75 expected"),
    (HasAnIdleParameter, "test_every_parameter_learns", "idle_D gets no gradient"),
    (SavesItsTable, "test_nothing_is_kept_from_one_text_to_the_next", "does not fit a new one"),
    (StretchesToTheLongest, "test_nothing_is_kept_from_one_text_to_the_next", "after a long one"),
    (StopsCounting, "test_longer_than_in_training", "too long"),
    (Blind, "test_order_is_seen", "changed places"),
    (DropsOnItsOwn, "test_randomness_comes_from_the_seed_alone", "same dropout masks"),
    (ComputesInDouble, "test_every_precision", "dtype"),
    (StaysOnTheProcessor, "test_it_follows_its_input_to_another_device", "not on the expected device meta"),
    (ForgetsTheKeys, "test_shapes", "does not broadcast"),
    (AnyWidthRotary, "test_sizes_that_do_not_fit_are_refused_in_words", "size"),
]


@pytest.mark.parametrize(("scheme", "check", "words"), BROKEN)
def test_a_broken_scheme_is_caught(scheme, check, words):
    with pytest.raises((AssertionError, RuntimeError, UserError), match=words):
        run(f"{__name__}.{scheme.__name__}", check, parameters=lambda self, model: 75)


def test_a_scheme_without_a_source_is_caught(monkeypatch):
    monkeypatch.setitem(sys.modules, "unwritten", unwritten)
    with pytest.raises(UserError, match="no source file"):
        run("unwritten.Mine", "test_it_is_identified_by_its_source")


def test_wrong_claims_about_a_scheme_are_caught():
    with pytest.raises(AssertionError, match=r"38 tokens, above model\.max_positions=37, must be refused"):
        run(f"{__name__}.SaysThatItEnds", "test_longer_than_in_training")
    with pytest.raises(UserError, match="37 learned positions"):
        run(f"{__name__}.SaysThatItGoesOn", "test_longer_than_in_training")
    with pytest.raises(AssertionError, match="sees_order is False"):
        run(f"{__name__}.SaysThatItIsBlind", "test_order_is_seen")


def test_every_check_is_seen_to_fail():
    assert {check for _, check, _ in BROKEN} | {"test_it_is_identified_by_its_source"} == set(CHECKS)


def test_a_count_that_cannot_be_checked_is_skipped_and_says_so():
    with pytest.raises(SkipTest, match=r"override parameters\(model\)"):
        run(f"{__name__}.Blind", "test_parameter_count")


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
