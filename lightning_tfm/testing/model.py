"""What every class that a model is made of has to hold, in models so small that all checks take about two seconds."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import SkipTest

import torch
from torch import Tensor

from lightning_tfm.config import Experiment, Model
from lightning_tfm.config_validation import check
from lightning_tfm.errors import UserError
from lightning_tfm.model import causality_check
from lightning_tfm.model.beam_search import CachedDecoder
from lightning_tfm.model.causality_check import CHANGED, SOURCES, TARGETS, V, pad
from lightning_tfm.model.dropout import masks_set
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.model.user_init import SET, origins_in_words
from lightning_tfm.registry import KINDS
from lightning_tfm.study.user_classes import user_classes

SAME = 1e-12
"""farthest that two float64 results of the same formula are apart when matrices of other shapes made them"""


class ModelSuite:
    """The checks that all kinds share. A kind's suite names its field of the model, a user's the class."""

    field: str
    """of model, that names the class"""
    place: str
    """its name in a layer"""
    plain: str
    """what ships under that field and adds nothing that is counted or compared"""
    sizes: Model = Model(N=2, d_model=38, d_ff=41, h=11, d_k=26, d_v=13, max_positions=37)
    """of the models that are built; no two alike, so that no axis can pass for another"""

    @property
    def named(self) -> str:
        """What the field holds: a suite's attribute of the field's name."""
        return str(getattr(self, self.field))

    @property
    def traits(self) -> Any:
        """What is declared of it: one that ships in registry.py, a user-defined one by its attributes."""
        user_classes(Experiment(model=self._sizes()))  # imports it
        return KINDS[f"model.{self.field}"].traits(self.named)

    def parameters(self, model: Model) -> int | None:
        """How many trainable numbers the class brings to `model`: by its trait `parameter_count`, or override it; None
        leaves the count unchecked."""
        formula = self.traits.parameter_count
        return None if formula is None else self.times(model) * int(formula(model))

    def times(self, model: Model) -> int:
        """How many of them `parameter_count` counts once."""
        return 1

    # --- checks ---

    def test_it_is_identified_by_its_source(self) -> None:
        """A run with different source code is a different run."""
        sources = user_classes(Experiment(model=self._sizes()))
        expected = set() if self.named in KINDS[f"model.{self.field}"] else {self.named}
        assert sources.keys() == expected, f"{self.named} is identified by {sources}"

    def test_no_position_sees_a_later_one(self) -> None:
        for model in self._models():
            before, after = causality_check.with_another_piece(model)
            assert not (fault := causality_check.later_position(before, after)), fault
            assert (before[:, CHANGED:] != after[:, CHANGED:]).any(2).all(), (
                f"position {CHANGED} or a later one does not see the token at position {CHANGED}"
            )
        for model in self._models(max_positions=causality_check.LONG):
            assert not (
                fault := causality_check.later_position(
                    *causality_check.with_another_piece(model, causality_check.LATE), causality_check.LATE
                )
            ), fault

    def test_piece_by_piece_is_all_at_once(self) -> None:
        """Decoding with a cache gives what recomputing the whole target gives."""
        for model in self._models(attention_bias=True):
            assert not (fault := causality_check.piece_by_piece(model, SAME)), fault

    def test_padding_is_invisible(self) -> None:
        for model in self._models():
            assert not (fault := causality_check.padding(model, SAME)), fault

    def test_neighbours_in_the_batch_are_invisible(self) -> None:
        for model in self._models():
            source, target = pad(SOURCES), pad(TARGETS)
            assert not (fault := causality_check.neighbours(model, SAME)), fault
            together = model(source, target)
            source[0, 2] += 1
            changed = (model(source, target) != together).any(2)
            assert changed[0].all(), "the first row does not see its own source"
            assert not changed[1:].any(), "other rows changed with the source of the first"

    def test_the_same_seed_gives_the_same_bits(self) -> None:
        source, target = pad(SOURCES), pad(TARGETS)
        for first, again in zip(self._models(), self._models(), strict=True):
            ours, theirs = dict(first.named_parameters()), dict(again.named_parameters())
            assert ours.keys() == theirs.keys(), f"built twice, different names: {sorted(ours.keys() ^ theirs.keys())}"
            for name, weight in ours.items():
                assert torch.equal(weight, theirs[name]), f"built twice, {name} differs"
            assert torch.equal(first(source, target), again(source, target)), "built twice, the results differ"
            other = dict(self._model(seed=2, norm=first.config.norm).named_parameters())
            for name in self._own_names(first):
                constant = len(ours[name].unique()) <= 2  # biases and gains start alike, those of gates at two
                constant |= name in first.origins and first.origins[name].how == SET
                assert constant or not torch.equal(ours[name], other[name]), f"{name} is the same at every seed"

    def test_what_its_constructor_sets_and_what_is_drawn(self) -> None:
        """Says it (pytest -s): a class says `init = "own"` or `"model"` where it wants the other."""
        model = self._model()
        for line in origins_in_words(model.origins):
            print(line)
        causality_check.check_constructed_alike(model, self._model())

    def test_weights_are_drawn_by_name(self) -> None:
        """A deeper model has the weights of a shallower one, a model with the class those of one without."""
        for model in self._models():
            ours = dict(model.named_parameters())
            deeper = dict(self._model(N=self.sizes.N + 1, norm=model.config.norm).named_parameters())
            named: dict[str, Any] = {self.field: self.plain}
            plain = Transformer(replace(model.config, **named), V, 1).double()
            for other, which in ((deeper, "a deeper model"), (dict(plain.named_parameters()), "a model without it")):
                wanted = ours.keys() if which == "a deeper model" else other.keys() - set(self._own_names(plain))
                missing = wanted - (ours.keys() & other.keys())
                assert not missing, f"{which} has no counterpart of {sorted(missing)}"
                for name in wanted:
                    assert torch.equal(ours[name], other[name]), f"{name} differs from that of {which}"

    def test_parameter_count(self) -> None:
        """What the model has beyond the same model without what is the class's own."""
        for model in self._models():
            expected = self.parameters(model.config)
            if expected is None:
                raise SkipTest("declare `parameter_count` or override parameters(model) to have the parameters counted")
            count = sum(model.get_parameter(name).numel() for name in self._own_names(model))
            assert count == expected, f"{count} parameters, {expected} expected"

    def test_every_parameter_learns(self) -> None:
        """From weights off the start, where biases are 0: there what scales a feed-forward's input cancels in the norm
        after it, and has a gradient of 0 whatever it is."""
        for model in self._models():
            names = self._own_names(model)
            for parameter in model.parameters():
                parameter.add_(normal(*parameter.shape), alpha=0.1)
            model.requires_grad_(True)
            model(pad(SOURCES), pad(TARGETS)).log_softmax(-1)[..., 4:9].sum().backward()
            gradients = {name: model.get_parameter(name).grad for name in names}
            for name, gradient in gradients.items():
                assert gradient is not None and gradient.any(), f"{name} gets no gradient: it never learns"
                assert gradient.isfinite().all(), f"the gradient of {name} is not finite"

    def test_nothing_is_kept_from_one_text_to_the_next(self) -> None:
        for model in self._models():
            source, target, long = pad(SOURCES), pad(TARGETS), run_of(self.sizes.max_positions)
            state = {name: tensor.shape for name, tensor in model.state_dict().items()}
            before, at_length = model(source, target), model(long, long)
            assert torch.equal(model(source, target), before), "a short text gives a different result after a long one"
            fresh = self._model(norm=model.config.norm)
            assert torch.equal(fresh(long, long), at_length), "a long text gives a different result after a short one"
            after = {name: tensor.shape for name, tensor in model.state_dict().items()}
            assert after == state, "a used model's checkpoint does not fit a new one: register_buffer(persistent=False)"

    def test_randomness_comes_from_the_seed_alone(self) -> None:
        """In training too: dropout masks are given, so that no number comes from torch's own generator."""
        for model in self._models(P_drop=0.3):
            sizes, source, target = model.config, pad(SOURCES), pad(TARGETS)
            shapes = ((1 + 2 * sizes.N, *source.shape), (1 + 3 * sizes.N, *target.shape))
            source_keep, target_keep = ((normal(*shape, sizes.d_model) > 0).double() / 0.7 for shape in shapes)
            masks = zip(model.dropouts(), [*source_keep, *target_keep], strict=True)
            model.train()
            with torch.random.fork_rng(devices=[]), masks_set(list(masks)):
                results = [(torch.manual_seed(seed), model(source, target))[1] for seed in (1, 2)]
            assert torch.equal(*results), "two passes with the same dropout masks differ"

    def test_every_precision(self) -> None:
        for model in self._models():
            source, target = pad(SOURCES), pad(TARGETS)
            exact = model(source, target)
            single = model.float()(source, target)
            assert single.dtype is torch.float32, f"a float32 model gives {single.dtype}"
            close(single.double(), exact, "in float32, the result", 1e-4)
            with torch.autocast("cpu", torch.bfloat16):
                try:
                    close(model(source, target).double(), exact, "in bfloat16, the result", 0.5)
                except RuntimeError as error:
                    if "could not create a primitive" not in str(error):
                        raise
                    warnings.warn(f"NOT TESTED in bfloat16, which this CPU cannot do: {error}", stacklevel=1)
            fresh = self._model(norm=model.config.norm).float()(source, target)
            assert torch.equal(fresh, single), "a float32 model that was float64 before gives a different result"

    def test_it_follows_its_input_to_another_device(self) -> None:
        """Torch's meta device refuses whatever stays behind, as a GPU would."""
        for model in self._models():
            source, target = pad(SOURCES), pad(TARGETS)
            model(source, target)
            for moved in (model.to("meta"), self._model(norm=model.config.norm).to("meta")):
                result = moved(source.to("meta"), target.to("meta"))
                shape("the logits on another device", result, *target.shape, V)
                CachedDecoder(moved, source.to("meta")).step(target[:, 2].to("meta"), 2)

    def test_sizes_that_do_not_fit_are_refused_in_words(self) -> None:
        """One head, odd widths, a longest position of 1: they work, or a UserError names the field."""
        for change in ({"h": 1}, {"d_k": 7}, {"d_model": 37}, {"d_v": 1}, {"max_positions": 1}):
            try:
                config = self._sizes(**change)
                check(Experiment(model=config))
                result = Transformer(config, V, 1).double().eval()(pad(SOURCES), pad(TARGETS))
            except UserError as error:
                assert "model." in str(error), f"with {change} the message names no field: {error}"
            else:
                assert result.isfinite().all(), f"with {change} the result is not finite"

    # --- how they are made ---

    def _sizes(self, **change: Any) -> Model:
        named: dict[str, Any] = {self.field: self.named}
        return replace(self.sizes, **named, **change)

    def _model(self, seed: int = 1, **change: Any) -> Transformer:
        config = self._sizes(**change)
        user_classes(Experiment(model=config))  # looks in the working directory too
        return Transformer(config, V, seed).double().eval().requires_grad_(False)

    def _models(self, **change: Any) -> Iterator[Transformer]:
        for norm in ("post", "pre"):
            yield self._model(norm=norm, **change)

    def _own_names(self, model: Transformer) -> list[str]:
        """Names of the class's own parameters."""
        return [name for name, _ in model.named_parameters() if f".{self.place}." in name]


def run_of(length: int) -> Tensor:
    """One sequence of this many pieces."""
    return 4 + torch.arange(length)[None] * 7 % (V - 4)


def normal(*sizes: int) -> Tensor:
    return torch.randn(sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def shape(what: str, tensor: Tensor, *expected: int) -> None:
    assert tensor.shape == expected, f"{what}: shape {list(tensor.shape)}, expected {list(expected)}"


def close(ours: Tensor, expected: Tensor, what: str, within: float = SAME) -> None:
    off = float((ours - expected).abs().max())
    assert off <= within, f"{what} is off by {off:.1e}"
