"""What any positional scheme must satisfy, in models small enough that all checks together take about two seconds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import SkipTest

import torch
from torch import Tensor

from lightning_tfm.config import BOS, EOS, PAD, Experiment, Model, check
from lightning_tfm.errors import UserError
from lightning_tfm.model.positions import BiasScheme, EmbeddingScheme, PositionScheme, RotationScheme
from lightning_tfm.model.search import CachedDecoder
from lightning_tfm.model.size import BUILTIN_SCHEMES, count_parameters
from lightning_tfm.model.transformer import Noise, Transformer
from lightning_tfm.study.rows import user_classes

V = 31
SOURCES = ((5, 6, 7, 8, 9, 10, EOS), (11, EOS), (12, 13, 14, 15, EOS))
TARGETS = ((BOS, 16, 17, 18, 19), (BOS, 20, 20, 20, 20), (BOS, 21, 22, 23, 24))
SAME = 1e-12
"""farthest that two float64 results of the same formula lie apart when matrices of other shapes made them"""


class SchemeSuite:
    """Inherit it and name the scheme: `scheme = "my_module.MyScheme"`. All else has a default."""

    scheme: str
    """the name in model.positions"""
    sizes: Model = Model(N=2, d_model=38, d_ff=41, h=11, d_k=26, d_v=13, max_positions=37)
    """of the models that are built; no two alike, so that no axis can stand for another"""
    bounded: bool = False
    """whether it ends at model.max_positions, as a learned table does"""
    sees_order: bool = True
    """whether it tells the encoder the order of the pieces"""

    def parameters(self, model: Model) -> int | None:
        """How many trainable numbers the scheme adds to `model`. Override it; None leaves the count unchecked."""
        return None

    # --- checks ---

    def test_it_is_identified_by_its_source(self) -> None:
        """A run with different source code is a different run."""
        found = user_classes(Experiment(model=self._sizes()))
        expected = set() if self.scheme in BUILTIN_SCHEMES else {self.scheme}
        assert found.keys() == expected, f"{self.scheme} is identified by {found}"

    def test_shapes(self) -> None:
        for model in self._models():
            sizes, source, target = model.config, _pad(SOURCES), _pad(TARGETS)
            B, S, T = len(source), source.shape[1], target.shape[1]
            scheme = _scheme_of(model)
            for start, width in ((0, T), (0, 1), (3, 1), (3, T)):
                where = f"at start={start} with {width} positions"
                x_BTD, q_BHTK = _normal(B, width, sizes.d_model), _normal(B, sizes.h, width, sizes.d_k)
                if isinstance(scheme, BiasScheme):
                    keys = max(S, start + width)
                    bias = scheme.bias(q_BHTK, keys, start)
                    try:
                        bias = bias.expand(B, sizes.h, width, keys)
                    except RuntimeError as error:
                        raise AssertionError(f"bias {where} does not broadcast to [B, H, T, S]: {error}") from error
                    assert bias.isfinite().all(), f"bias {where} is not finite: masks are the model's own"
                elif isinstance(scheme, EmbeddingScheme):
                    _shape(f"embed {where}", scheme.embed(x_BTD, 1.5, start), *x_BTD.shape)
                elif isinstance(scheme, RotationScheme):
                    _shape(f"rotate {where}", scheme.rotate(q_BHTK, start), *q_BHTK.shape)
            _shape("the logits", model(source, target), B, T, V)

    def test_no_position_sees_a_later_one(self) -> None:
        for model in self._models():
            source, target = _pad(SOURCES), _pad(TARGETS)
            before = model(source, target)
            target[:, 3] += 1
            after = model(source, target)
            assert torch.equal(before[:, :3], after[:, :3]), "positions 0 to 2 changed with the piece at position 3"
            assert (before[:, 3:] != after[:, 3:]).any(2).all(), (
                "position 3 or a later one does not see the piece at position 3"
            )

    def test_piece_by_piece_is_all_at_once(self) -> None:
        """Decoding with a cache gives what recomputing the whole target gives."""
        for model in self._models(attention_bias=True):
            source, target = _pad(SOURCES), _pad(TARGETS)
            expected = model(source, target).log_softmax(-1)
            decoder = CachedDecoder(model, source)
            for t in range(target.shape[1]):
                _close(decoder.step(target[:, t], t), expected[:, t], f"with a cache, the piece at position {t}")

    def test_padding_is_invisible(self) -> None:
        for model in self._models():
            source, target = _pad(SOURCES), _pad(TARGETS)
            wide = torch.nn.functional.pad(source, (0, 4), value=PAD)
            _close(model(wide, target), model(source, target), "with four more columns of padding, the result")

    def test_neighbours_in_the_batch_are_invisible(self) -> None:
        for model in self._models():
            source, target = _pad(SOURCES), _pad(TARGETS)
            together = model(source, target)
            for row in range(len(source)):
                alone = model(_pad(SOURCES[row : row + 1]), target[row : row + 1])
                _close(together[row], alone[0], f"row {row} of a batch, against the same row alone,")
            source[0, 2] += 1
            changed = (model(source, target) != together).any(2)
            assert changed[0].all(), "the first row does not see its own source"
            assert not changed[1:].any(), "other rows changed with the source of the first"

    def test_the_same_seed_gives_the_same_bits(self) -> None:
        source, target = _pad(SOURCES), _pad(TARGETS)
        for first, again in zip(self._models(), self._models(), strict=True):
            ours, theirs = dict(first.named_parameters()), dict(again.named_parameters())
            assert ours.keys() == theirs.keys(), f"built twice, different names: {sorted(ours.keys() ^ theirs.keys())}"
            for name, weight in ours.items():
                assert torch.equal(weight, theirs[name]), f"built twice, {name} differs"
            assert torch.equal(first(source, target), again(source, target)), "built twice, the results differ"
            other = dict(self._model(seed=2, norm=first.config.norm).named_parameters())
            for name in self._own_names(first):
                assert not torch.equal(ours[name], other[name]), f"{name} is the same at every seed"

    def test_weights_are_drawn_by_name(self) -> None:
        """A deeper model has the weights of a shallower one, a model with the scheme those of one without."""
        for model in self._models():
            ours = dict(model.named_parameters())
            deeper = dict(self._model(N=self.sizes.N + 1, norm=model.config.norm).named_parameters())
            plain = Transformer(replace(model.config, positions="none"), V, 1).double()
            for other, which in ((deeper, "a deeper model"), (dict(plain.named_parameters()), "a model without it")):
                wanted = ours.keys() if which == "a deeper model" else other.keys()
                missing = wanted - (ours.keys() & other.keys())
                assert not missing, f"{which} has no counterpart of {sorted(missing)}"
                for name in wanted:
                    assert torch.equal(ours[name], other[name]), f"{name} differs from that of {which}"

    def test_parameter_count(self) -> None:
        """As a run's record counts them: what the model has beyond the same model without positions."""
        for model in self._models():
            expected = self.parameters(model.config)
            if expected is None:
                raise SkipTest("override parameters(model) to have the number of parameters checked")
            built = sum(p.numel() for p in model.parameters())
            found = built - count_parameters(replace(model.config, positions="none"), V)["total"]
            assert found == expected, f"{found} parameters, {expected} expected"

    def test_every_parameter_learns(self) -> None:
        for model in self._models():
            names = self._own_names(model)
            model.requires_grad_(True)
            model(_pad(SOURCES), _pad(TARGETS)).log_softmax(-1)[..., 4:9].sum().backward()
            gradients = {name: model.get_parameter(name).grad for name in names}
            for name, gradient in gradients.items():
                assert gradient is not None and gradient.any(), f"{name} gets no gradient: it never learns"
                assert gradient.isfinite().all(), f"the gradient of {name} is not finite"

    def test_nothing_is_kept_from_one_text_to_the_next(self) -> None:
        for model in self._models():
            source, target, long = _pad(SOURCES), _pad(TARGETS), _run_of(self.sizes.max_positions)
            state = {name: tensor.shape for name, tensor in model.state_dict().items()}
            before, at_length = model(source, target), model(long, long)
            assert torch.equal(model(source, target), before), "a short text gives a different result after a long one"
            fresh = self._model(norm=model.config.norm)
            assert torch.equal(fresh(long, long), at_length), "a long text gives a different result after a short one"
            after = {name: tensor.shape for name, tensor in model.state_dict().items()}
            assert after == state, "a used model's checkpoint does not fit a new one: register_buffer(persistent=False)"

    def test_longer_than_in_training(self) -> None:
        most = self.sizes.max_positions
        for model in self._models():
            short = model(_run_of(most), _run_of(most))
            assert short.isfinite().all(), f"{most} pieces give no finite result"
            for longer in (most + 1, 3 * most):
                if self.bounded:
                    with _refused(f"{longer} pieces, above model.max_positions={most},", "model.max_positions"):
                        model(_run_of(longer), _run_of(3))
                    continue
                found = model(_run_of(most), _run_of(longer))
                _close(found[:, :most], short, f"the first {most} of {longer} pieces")
                assert found.isfinite().all(), f"{longer} pieces give no finite result"

    def test_order_is_seen(self) -> None:
        """Two neighbours of the source swapped, and their results swapped back."""
        order = [1, 0, *range(2, len(SOURCES[0]))]
        for model in self._models():
            source = _pad(SOURCES[:1])
            moved = float((model.encode(source, None)[:, order] - model.encode(source[:, order], None)).abs().max())
            if self.sees_order:
                assert moved > 1e-6, "the encoder does not see that two pieces changed places"
            else:
                assert moved < SAME, f"sees_order is False, and the encoder's results moved by {moved:.1e}"

    def test_randomness_comes_from_the_seed_alone(self) -> None:
        """In training too: dropout masks are given, so that no number comes from torch's own generator."""
        for model in self._models(P_drop=0.3):
            sizes, source, target = model.config, _pad(SOURCES), _pad(TARGETS)
            shapes = ((1 + 2 * sizes.N, *source.shape), (1 + 3 * sizes.N, *target.shape))
            noise = Noise(*((_normal(*shape, sizes.d_model) > 0).double() / 0.7 for shape in shapes))
            model.train()
            with torch.random.fork_rng(devices=[]):
                results = [(torch.manual_seed(seed), model(source, target, noise))[1] for seed in (1, 2)]
            assert torch.equal(*results), "two passes with the same dropout masks differ"

    def test_every_precision(self) -> None:
        for model in self._models():
            source, target = _pad(SOURCES), _pad(TARGETS)
            exact = model(source, target)
            single = model.float()(source, target)
            assert single.dtype is torch.float32, f"a float32 model gives {single.dtype}"
            _close(single.double(), exact, "in float32, the result", 1e-4)
            with torch.autocast("cpu", torch.bfloat16):
                _close(model(source, target).double(), exact, "in bfloat16, the result", 0.5)
            fresh = self._model(norm=model.config.norm).float()(source, target)
            assert torch.equal(fresh, single), "a float32 model that was float64 before gives a different result"

    def test_it_follows_its_input_to_another_device(self) -> None:
        """Torch's meta device refuses whatever stays behind, as a GPU would."""
        for model in self._models():
            source, target = _pad(SOURCES), _pad(TARGETS)
            model(source, target)
            for moved in (model.to("meta"), self._model(norm=model.config.norm).to("meta")):
                result = moved(source.to("meta"), target.to("meta"))
                _shape("the logits on another device", result, *target.shape, V)
                CachedDecoder(moved, source.to("meta")).step(target[:, 2].to("meta"), 2)

    def test_sizes_that_do_not_fit_are_refused_in_words(self) -> None:
        """One head, odd widths, a longest position of 1: they work, or a UserError names the field."""
        for change in ({"h": 1}, {"d_k": 7}, {"d_model": 37}, {"d_v": 1}, {"max_positions": 1}):
            try:
                config = self._sizes(**change)
                check(Experiment(model=config))
                result = Transformer(config, V, 1).double().eval()(_pad(SOURCES), _pad(TARGETS))
            except UserError as error:
                assert "model." in str(error), f"with {change} the message names no field: {error}"
            else:
                assert result.isfinite().all(), f"with {change} the result is not finite"

    # --- how they are made ---

    def _sizes(self, **change: Any) -> Model:
        return replace(self.sizes, positions=self.scheme, **change)

    def _model(self, seed: int = 1, **change: Any) -> Transformer:
        config = self._sizes(**change)
        user_classes(Experiment(model=config))  # looks in the working directory too
        return Transformer(config, V, seed).double().eval().requires_grad_(False)

    def _models(self, **change: Any) -> Iterator[Transformer]:
        for norm in ("post", "pre"):
            yield self._model(norm=norm, **change)

    def _own_names(self, model: Transformer) -> list[str]:
        """Names of the scheme's own parameters."""
        plain = Transformer(replace(model.config, positions="none"), V, 1)
        return [name for name, _ in model.named_parameters() if name not in dict(plain.named_parameters())]


def _pad(rows: tuple[tuple[int, ...], ...]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])


def _run_of(length: int) -> Tensor:
    """One sequence of so many pieces."""
    return 4 + torch.arange(length)[None] * 7 % (V - 4)


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def _scheme_of(model: Transformer) -> PositionScheme:
    """The scheme of the first layer's attention, else of the decoder's embeddings."""
    inside = model.decoder[0].self_attention.scheme
    return model.decoder_positions if inside is None else inside


def _shape(what: str, tensor: Tensor, *shape: int) -> None:
    assert tensor.shape == shape, f"{what}: shape {list(tensor.shape)}, expected {list(shape)}"


def _close(found: Tensor, expected: Tensor, what: str, within: float = SAME) -> None:
    off = float((found - expected).abs().max())
    assert off <= within, f"{what} is off by {off:.1e}"


@contextmanager
def _refused(what: str, named: str) -> Iterator[None]:
    """The block must raise a UserError that says `named`."""
    try:
        yield
    except UserError as error:
        assert named in str(error), f"the message about {what} does not name {named}: {error}"
    else:
        raise AssertionError(f"{what} must be refused with a UserError that names {named}")
