"""What every part that a user may add has to hold: types of attention and of layers, positional schemes, feed-forwards,
norms, in models small enough that all checks of one take about two seconds; and schedules of the learning rate.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import torch
from torch import nn

from lightning_tfm.config import Experiment, Model, Training
from lightning_tfm.errors import UserError
from lightning_tfm.model import causality_check
from lightning_tfm.model.attention_types import AttentionType
from lightning_tfm.model.beam_search import CachedDecoder
from lightning_tfm.model.causality_check import SOURCES, TARGETS, V, pad
from lightning_tfm.model.positions import BiasScheme, EmbeddingScheme, PositionScheme, RotationScheme
from lightning_tfm.model.size import layer_parameters
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.registry import SCHEDULES
from lightning_tfm.study.user_classes import user_classes
from lightning_tfm.testing.model import SAME, ModelSuite, close, normal, run_of, shape
from lightning_tfm.training.schedule import Schedule, check_schedule


class AttentionSuite(ModelSuite):
    """Inherit it and name the class: `attention = "my_module.MyAttention"`. All else has a default."""

    attention: str
    """the name in model.attention"""
    field, place, plain = "attention", "mix", "softmax"

    def times(self, model: Model) -> int:
        return 3 * model.N

    def test_shapes(self) -> None:
        for model in self._models():
            c = model.config
            for mix, (T, S) in ((mix, sizes) for mix in _mixes(model) for sizes in ((5, 5), (1, 7), (1, 1))):
                q, k, v = normal(3, c.h, T, c.d_k), normal(3, c.h, S, c.d_k), normal(3, c.h, S, c.d_v)
                shape(f"{T} queries, {S} keys", mix(q, k, v, None, None, normal(3, T, c.d_model)), 3, c.h, T, c.d_v)
            shape("the logits", model(pad(SOURCES), pad(TARGETS)), *pad(TARGETS).shape, V)

    def test_what_the_mask_hides_changes_nothing(self) -> None:
        """Whatever number it is: keys, values and biases that no query sees."""
        for model in self._models():
            c, mask = model.config, torch.ones(2, 1, 4, 6, dtype=torch.bool)
            mask[1, ..., 3:], mask[0, :, 0, 2:] = False, False
            for mix in _mixes(model):
                q, k, v = normal(2, c.h, 4, c.d_k), normal(2, c.h, 6, c.d_k), normal(2, c.h, 6, c.d_v)
                x, bias = normal(2, 4, c.d_model), normal(1, c.h, 4, 6)
                out = mix(q, k, v, mask, bias, x)
                close(out[1], mix(q[1:], k[1:, :, :3], v[1:, :, :3], None, bias[..., :3], x[1:])[0], "without them, it")
                k[1, :, 3:], v[1, :, 3:], bias[:, :, 0, 2:] = 1e6, 1e6, 1e6
                again = mix(q, k, v, mask, bias, x)
                assert torch.equal(again[1, :, 1:], out[1, :, 1:]), "keys that the mask hides change the result"
                assert torch.equal(again[0, :, 0], out[0, :, 0]), "a bias that the mask hides changes the result"

    def test_with_every_positional_scheme(self) -> None:
        """Rotating and biasing ones act on it as on softmax, piece by piece as all at once."""
        for positions in ("rotary", "shaw", "t5", "alibi"):
            model = self._model(positions=positions)
            source, order = run_of(9), [1, 0, *range(2, 9)]
            moved = model.encode(source, None)[:, order] - model.encode(source[:, order], None)
            assert float(moved.abs().max()) > SAME, f"with positions={positions} the order of the source is not seen"
            assert not (fault := causality_check.piece_by_piece(model, SAME)), f"positions={positions}: {fault}"

    def test_where_it_acts(self) -> None:
        for where, kinds in (("both", 3), ("self", 2), ("cross", 1)):
            count = len(_mixes(self._model(attention_where=where)))
            assert count == kinds * self.sizes.N * (self.named != self.plain), (
                f"attention_where={where}: {count} attentions of this class"
            )


def _mixes(model: Transformer) -> list[AttentionType]:
    return [module for module in model.modules() if isinstance(module, AttentionType)]


class LayerSuite(ModelSuite):
    """Inherit it and name the class: `layer = "my_module.MyLayer"`. All else has a default."""

    layer: str
    """the name in model.layer"""
    field, place, plain = "layer", "self_attention", "attention"

    def parameters(self, model: Model) -> int | None:
        has_count = self.traits.heads or self.traits.parameter_count is not None
        return model.N * sum(layer_parameters(model, causal) for causal in (False, True)) if has_count else None

    def test_shapes(self) -> None:
        for model in self._models():
            for layers, causal in ((model.encoder, False), (model.decoder, True)):
                for B, T in ((3, 5), (1, 1), (2, 41)):
                    x_BTD = normal(B, T, model.config.d_model)
                    out = layers[-1].self_attention(x_BTD, None, causal)
                    shape(f"{B} sequences of {T} positions", out, *x_BTD.shape)
            shape("the logits", model(pad(SOURCES), pad(TARGETS)), *pad(TARGETS).shape, V)

    def test_what_stands_beyond_the_end_is_invisible(self) -> None:
        """In short texts and in long ones, whatever their number."""
        for model in self._models():
            layer, D = model.encoder[-1].self_attention, model.config.d_model
            for T, end in ((5, 3), (61, 44), (61, 1)):
                x_BTD, allowed = normal(2, T, D), torch.ones(2, 1, 1, T, dtype=torch.bool)
                allowed[1, ..., end:] = False
                out = layer(x_BTD, allowed, False)
                close(out[1, :end], layer(x_BTD[1:, :end], None, False)[0], f"a text of {end} padded to {T}")
                close(out[0], layer(x_BTD[:1], None, False)[0], "its neighbour without padding")
                x_BTD[1, end:] = 1e6
                again = layer(x_BTD, allowed, False)
                assert torch.equal(again[1, :end], out[1, :end]), "what is beyond the end changes the result"
                assert again.isfinite().all(), "beyond the end of a text the result is not finite"

    def test_long_texts_piece_by_piece(self) -> None:
        """Longer than any window, the rows of the batch changing places on the way, as in beam search."""
        for model in self._models():
            source, target = pad(SOURCES), torch.cat([run_of(29), run_of(29).roll(3, 1), run_of(29).flip(1)])
            decoder, order = CachedDecoder(model, source), torch.arange(3)
            for t in range(target.shape[1]):
                if t in (1, 7, 20):
                    swap = torch.tensor([2, 0, 1])
                    decoder.select(swap, swap)
                    order = order[swap]
                out = decoder.step(target[order, t], t)
            expected = model(source, target)[order, -1].log_softmax(-1)
            close(out, expected, "after 29 tokens, with rows that changed places,")

    def test_order_is_seen(self) -> None:
        """With positions by whatever it is; without them by what relates positions by their order, not by attention."""
        order, source = [1, 0, *range(2, len(SOURCES[0]))], pad(SOURCES[:1])
        for positions, seen in (("sinusoidal", True), ("none", self.traits.sees_order)):
            for model in (self._model(norm=norm, positions=positions) for norm in ("post", "pre")):
                moved = float((model.encode(source, None)[:, order] - model.encode(source[:, order], None)).abs().max())
                if seen:
                    assert moved > 1e-6, f"with positions={positions} the encoder does not see that two tokens moved"
                else:
                    assert moved < SAME, f"sees_order is False, and the encoder's results moved by {moved:.1e}"


class SchemeSuite(ModelSuite):
    """Inherit it and name the scheme: `scheme = "my_module.MyScheme"`. All else has a default."""

    scheme: str
    """the name in model.positions"""
    field, place, plain = "positions", "scheme", "none"

    @property
    def named(self) -> str:
        return self.scheme

    def test_shapes(self) -> None:
        for model in self._models():
            sizes, source, target = model.config, pad(SOURCES), pad(TARGETS)
            B, S, T = len(source), source.shape[1], target.shape[1]
            scheme = _scheme_of(model)
            for start, width in ((0, T), (0, 1), (3, 1), (3, T)):
                where = f"at start={start} with {width} positions"
                x_BTD, q_BHTK = normal(B, width, sizes.d_model), normal(B, sizes.h, width, sizes.d_k)
                if isinstance(scheme, BiasScheme):
                    keys = max(S, start + width)
                    bias = scheme.bias(q_BHTK, keys, start)
                    try:
                        bias = bias.expand(B, sizes.h, width, keys)
                    except RuntimeError as error:
                        raise AssertionError(f"bias {where} does not broadcast to [B, H, T, S]: {error}") from error
                    assert bias.isfinite().all(), f"bias {where} is not finite: masks are the model's own"
                elif isinstance(scheme, EmbeddingScheme):
                    shape(f"embed {where}", scheme.embed(x_BTD, 1.5, start), *x_BTD.shape)
                elif isinstance(scheme, RotationScheme):
                    shape(f"rotate {where}", scheme.rotate(q_BHTK, start), *q_BHTK.shape)
            shape("the logits", model(source, target), B, T, V)

    def test_longer_than_in_training(self) -> None:
        most = self.sizes.max_positions
        for model in self._models():
            short = model(run_of(most), run_of(most))
            assert short.isfinite().all(), f"{most} tokens give no finite result"
            for longer in (most + 1, 3 * most):
                if self.traits.ends_at:
                    with _refused(f"{longer} tokens, above model.max_positions={most},", "model.max_positions"):
                        model(run_of(longer), run_of(3))
                    continue
                logits = model(run_of(most), run_of(longer))
                close(logits[:, :most], short, f"the first {most} of {longer} tokens")
                assert logits.isfinite().all(), f"{longer} tokens give no finite result"

    def test_order_is_seen(self) -> None:
        """Two neighbours of the source swapped, and their results swapped back."""
        order = [1, 0, *range(2, len(SOURCES[0]))]
        for model in self._models():
            source = pad(SOURCES[:1])
            moved = float((model.encode(source, None)[:, order] - model.encode(source[:, order], None)).abs().max())
            if self.traits.sees_order:
                assert moved > 1e-6, "the encoder does not see that two tokens changed places"
            else:
                assert moved < SAME, f"sees_order is False, and the encoder's results moved by {moved:.1e}"

    def _own_names(self, model: Transformer) -> list[str]:
        plain = Transformer(replace(model.config, positions="none"), V, 1)
        return [name for name, _ in model.named_parameters() if name not in dict(plain.named_parameters())]


def _scheme_of(model: Transformer) -> PositionScheme:
    """The scheme of the first layer's attention, else of the decoder's embeddings."""
    inside = model.decoder[0].self_attention.scheme
    return model.decoder_positions if inside is None else inside


@contextmanager
def _refused(what: str, named: str) -> Iterator[None]:
    """The block must raise a UserError that says `named`."""
    try:
        yield
    except UserError as error:
        assert named in str(error), f"the message about {what} does not name {named}: {error}"
    else:
        raise AssertionError(f"{what} must be refused with a UserError that names {named}")


class _PositionWise(ModelSuite):
    """The class's objects in a layer are functions of single positions."""

    def _made(self, model: Transformer) -> list[nn.Module]:
        layers = [*cast(nn.ModuleList, model.encoder), *cast(nn.ModuleList, model.decoder)]
        return [m for layer in layers for name, m in layer.named_modules() if name.endswith(self.place)]

    def test_shapes(self) -> None:
        for model in self._models():
            for module in self._made(model):
                for B, T in ((3, 5), (1, 1)):
                    x_BTD = normal(B, T, model.config.d_model)
                    shape(f"{B} sequences of {T} positions", module(x_BTD), *x_BTD.shape)
            shape("the logits", model(pad(SOURCES), pad(TARGETS)), *pad(TARGETS).shape, V)

    def test_every_position_stands_alone(self) -> None:
        """Whatever is beside it in the sequence and in the batch, padding included."""
        for model in self._models():
            module, x_BTD = self._made(model)[0], normal(3, 5, model.config.d_model)
            together = module(x_BTD)
            for b, t in ((0, 0), (1, 3), (2, 4)):
                close(module(x_BTD[b : b + 1, t : t + 1])[0, 0], together[b, t], f"position {t} of row {b} by itself")
            x_BTD[1, 3] = 0.0
            changed = (module(x_BTD) != together).any(2)
            assert changed[1, 3], "a position does not see itself"
            assert int(changed.sum()) == 1, "other positions changed with one of them"


class FeedForwardSuite(_PositionWise):
    """Inherit it and name the class: `feed_forward = "my_module.MyFeedForward"`. All else has a default."""

    feed_forward: str
    """the name in model.feed_forward"""
    field, place, plain = "feed_forward", "feed_forward", "relu"

    def times(self, model: Model) -> int:
        return 2 * model.N


class NormSuite(_PositionWise):
    """Inherit it and name the class: `norm_kind = "my_module.MyNorm"`. All else has a default."""

    norm_kind: str
    """the name in model.norm_kind"""
    field, place, plain = "norm_kind", "norm", "layer"

    def times(self, model: Model) -> int:
        return 5 * model.N + 2 * (model.norm == "pre")

    def _own_names(self, model: Transformer) -> list[str]:
        return [name for name, _ in model.named_parameters() if "norm." in name]


class ScheduleSuite:
    """Inherit it and name the class: `schedule = "my_module.MySchedule"`; `training` and `d_model` have a default."""

    schedule: str
    """the name in training.schedule"""
    training: Training = Training(steps=1000, warmup=100)
    d_model: int = 512

    def test_every_step_has_a_rate_that_depends_on_nothing_else(self) -> None:
        check_schedule(self._settings(), self.d_model)
        check_schedule(self._settings(steps=7, warmup=7), self.d_model)

    def test_the_factor_of_the_settings_acts(self) -> None:
        """Else rows and searches over training.lr_factor would train the same run again and again."""
        once, twice = (self._made(lr_factor=factor * self.training.lr_factor) for factor in (1, 2))
        assert any(once.rate(n) != twice.rate(n) for n in range(1, once.training.steps)), "lr_factor acts on no rate"

    def _settings(self, **change: float) -> Training:
        settings = replace(self.training, schedule=self.schedule, **change)  # type: ignore[arg-type]
        user_classes(Experiment(training=settings))  # looks in the working directory too
        return settings

    def _made(self, **change: float) -> Schedule:
        cls: type[Schedule] = SCHEDULES.find(self.schedule, "lightning_tfm.training.schedule")
        return cls(self._settings(**change), self.d_model)
