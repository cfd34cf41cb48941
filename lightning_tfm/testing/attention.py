"""What every type of attention has to hold, in self-attention and cross-attention, in small models."""

import torch

from lightning_tfm.config import Model
from lightning_tfm.model import causality_check
from lightning_tfm.model.attention_types import AttentionType
from lightning_tfm.model.causality_check import SOURCES, TARGETS, V, pad
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.testing.model import SAME, ModelSuite, close, normal, run_of, shape


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
