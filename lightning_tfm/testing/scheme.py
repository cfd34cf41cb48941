"""What any positional scheme must satisfy, in models small enough that all checks together take about two seconds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lightning_tfm.errors import UserError
from lightning_tfm.model.causality_check import SOURCES, TARGETS, V, pad
from lightning_tfm.model.positions import BiasScheme, EmbeddingScheme, PositionScheme, RotationScheme
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.testing.model import SAME, ModelSuite, close, normal, run_of, shape


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
