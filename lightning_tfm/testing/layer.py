"""What every layer type in place of self-attention has to hold, in small models."""

import torch

from lightning_tfm.config import Model
from lightning_tfm.model.beam_search import CachedDecoder
from lightning_tfm.model.causality_check import SOURCES, TARGETS, V, pad
from lightning_tfm.model.size import layer_parameters
from lightning_tfm.testing.model import SAME, ModelSuite, close, normal, run_of, shape


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
