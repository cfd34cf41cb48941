"""The attention view of models whose layers are of other types."""

from types import SimpleNamespace

import numpy as np
import pytest

from lightning_tfm.config import Model
from lightning_tfm.inference.inspect import weights
from lightning_tfm.model.transformer import Transformer

SIZES = {"N": 2, "d_model": 12, "d_ff": 9, "h": 3, "d_k": 4, "d_v": 5, "neighbourhood": 3}


def shown(**change) -> dict[str, np.ndarray]:
    trained = SimpleNamespace(module=SimpleNamespace(transformer=Transformer(Model(**SIZES, **change), 31).eval()))
    found = weights(trained, np.arange(5, 12), np.arange(5, 11))
    return {kind: np.array(layers) for kind, layers in found.items()}


def test_a_restricted_layer_shows_its_neighbourhood_alone():
    found = shown(layer="restricted")
    assert found["encoder"].shape == (2, 3, 8, 8) and found["cross"].shape == (2, 3, 7, 8)
    offset = np.arange(8) - np.arange(8)[:, None]
    assert ((found["encoder"] > 0).any((0, 1)) == (abs(offset) <= 1)).all()
    offset = offset[:7, :7]
    assert ((found["decoder"] > 0).any((0, 1)) == ((offset <= 0) & (offset > -3))).all()


@pytest.mark.parametrize("scores", ["unscaled", "additive", "cosine"])
def test_weights_are_those_of_the_scores(scores):
    sums = {kind: found.sum(-1) for kind, found in shown(scores=scores).items()}
    assert all(abs(total - 1000).max() <= 5 for total in sums.values())
    assert (shown(scores=scores)["cross"] != shown()["cross"]).any()


def test_a_layer_without_attention_shows_none():
    found = shown(layer="lstm")
    assert found["encoder"].size == found["decoder"].size == 0 and found["cross"].shape == (2, 3, 7, 8)
