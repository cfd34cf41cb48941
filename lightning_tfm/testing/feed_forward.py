"""What every feed-forward and every norm has to hold, in small models."""

from typing import cast

from torch import nn

from lightning_tfm.config import Model
from lightning_tfm.model.causality_check import SOURCES, TARGETS, V, pad
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.testing.model import ModelSuite, close, normal, shape


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
