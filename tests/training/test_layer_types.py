"""Every layer type gives the same gradient however a step is cut, with dropout masks keyed by sentence."""

import numpy as np
import pytest
import torch

from lightning_tfm.config import Experiment, Model, Training
from lightning_tfm.data.batch import Batch, make_batch
from lightning_tfm.model.layer_types import LAYERS
from lightning_tfm.training.module import TransformerModule

LENGTHS = (3, 14, 1, 9, 6, 30)
SIZES = {"N": 2, "d_model": 16, "d_ff": 11, "h": 2, "d_k": 6, "d_v": 5, "P_drop": 0.2, "neighbourhood": 3}


def batch(index: list[int]) -> Batch:
    """Those sentences of the step, padded to the longest among them."""
    draw = np.random.default_rng(4)
    source, target = ([draw.integers(4, 31, n + more).astype(np.int32) for n in LENGTHS] for more in (0, 2))
    return make_batch([source[i] for i in index], [target[i] for i in index], np.array(index))


@pytest.mark.parametrize("layer", sorted(LAYERS))
def test_parts_of_a_step_add_up(layer):
    training = Training(seed=3, precision="float64")
    module = TransformerModule(Experiment(model=Model(**SIZES, layer=layer), training=training), 31)

    def gradients(*parts: list[int]) -> list[torch.Tensor]:
        module.zero_grad()
        for index in parts:
            one = batch(index)
            module.batch_loss(one, module._noise(5, one))[0].backward()
        return [p.grad.clone() for p in module.parameters()]

    whole = gradients([0, 1, 2, 3, 4, 5])
    for parts in (([5, 0, 2], [1, 4, 3]), ([0], [1], [2], [3], [4], [5])):
        for ours, theirs in zip(whole, gradients(*parts), strict=True):
            assert ours.abs().max() > 1e-9 and (theirs - ours).abs().max() <= 1e-12 * ours.abs().max()
