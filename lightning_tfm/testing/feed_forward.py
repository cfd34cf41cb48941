"""What every feed-forward has to hold, in models small enough that all checks together take about two seconds."""

from lightning_tfm.testing.model import SOURCES, TARGETS, ModelSuite, V, close, normal, pad, shape


class FeedForwardSuite(ModelSuite):
    """Inherit it and name the class: `feed_forward = "my_module.MyFeedForward"`. All else has a default."""

    feed_forward: str
    """the name in model.feed_forward"""
    field, place, plain = "feed_forward", "feed_forward", "relu"

    @property
    def named(self) -> str:
        return self.feed_forward

    def test_shapes(self) -> None:
        for model in self._models():
            made = [layer.feed_forward for layer in model.encoder] + [layer.feed_forward for layer in model.decoder]
            for feed_forward in made:
                for B, T in ((3, 5), (1, 1)):
                    x_BTD = normal(B, T, model.config.d_model)
                    shape(f"{B} sequences of {T} positions", feed_forward(x_BTD), *x_BTD.shape)
            shape("the logits", model(pad(SOURCES), pad(TARGETS)), *pad(TARGETS).shape, V)

    def test_every_position_stands_alone(self) -> None:
        """Whatever stands beside it in the sequence and in the batch, padding included."""
        for model in self._models():
            feed_forward, x_BTD = model.encoder[0].feed_forward, normal(3, 5, model.config.d_model)
            together = feed_forward(x_BTD)
            for b, t in ((0, 0), (1, 3), (2, 4)):
                close(feed_forward(x_BTD[b : b + 1, t : t + 1])[0, 0], together[b, t], f"position {t} of row {b} alone")
            x_BTD[1, 3] = 0.0
            changed = (feed_forward(x_BTD) != together).any(2)
            assert changed[1, 3], "a position does not see itself"
            assert int(changed.sum()) == 1, "other positions changed with one of them"
