"""Kernels against their formulas in Triton's interpreter, on a CPU: what it cannot show are races and speed.

test_kernels.py runs these in a process of their own: Triton decides for good as it is imported. By hand:

    TRITON_INTERPRET=1 python -m pytest tests/model/interpreted.py
"""

import random

import numpy as np
import pytest
import torch

from lightning_tfm.config import Experiment, Model, Training
from lightning_tfm.data.batch import make_batch
from lightning_tfm.errors import UserError
from lightning_tfm.training.dropout_masks import SentenceMasks
from lightning_tfm.training.formulas import DeviceMasks
from lightning_tfm.training.module import TransformerModule

CPU = torch.device("cpu")


def ragged(draw: random.Random, longest: int = 19):
    """A batch of a few sentences at far-apart places of a step."""
    count = draw.randint(1, 4)
    sides = [[np.full(draw.randint(0, longest - 1), 5) for _ in range(count)] for _ in range(2)]
    return make_batch(*sides, np.array(sorted(draw.sample(range(1 << 20), count))))


@pytest.mark.parametrize("number", range(8))
def test_masks_are_numpys_to_the_bit(number):
    """Widths that sixteen divides and others, steps beyond 2^32, every share, every dtype."""
    draw = random.Random(number)
    model = Model(N=draw.randint(1, 2), d_model=draw.choice([2, 16, 30, 48, 62, 64]), P_drop=draw.uniform(0.01, 0.95))
    formula, batch = SentenceMasks(model, draw.getrandbits(40)), ragged(draw)
    step = draw.choice([0, 7, (1 << 31) - 1, 1 << 31, (1 << 40) + 3])
    like = torch.empty(0, dtype=draw.choice([torch.float32, torch.bfloat16, torch.float64]))
    wanted, found = formula.noise(step, batch, like), DeviceMasks(formula, CPU).noise(step, batch, like)
    for side in ("source", "target"):
        ours, theirs = getattr(found, side), getattr(wanted, side)
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs), (side, model, step)


def test_masks_of_long_sentences():
    """More blocks than one program draws."""
    formula = SentenceMasks(Model(N=1, d_model=64, P_drop=0.1), 3)
    batch = make_batch([np.full(129, 4), np.full(20, 4)], [np.full(3, 4)] * 2, np.array([8, 1]))
    wanted, found = (m.noise(11, batch, torch.empty(0)) for m in (formula, DeviceMasks(formula, CPU)))
    assert torch.equal(found.source, wanted.source) and torch.equal(found.target, wanted.target)


def test_masks_that_are_not_numpys_stop_the_training(monkeypatch):
    from lightning_tfm.model.kernels import masks as kernel

    right = kernel.masks
    monkeypatch.setattr(kernel, "masks", lambda *how: right(*how).roll(1))
    with pytest.raises(UserError, match=r"are not the experiment's: --trainer.kernels none"):
        DeviceMasks(SentenceMasks(Model(N=1, d_model=16), 1), CPU)


def test_a_step_with_them_is_the_step_without():
    e = Experiment(model=Model(N=1, d_model=16, d_ff=24, h=2, d_k=6, d_v=6), training=Training(seed=5))
    batch, losses = ragged(random.Random(4)), []
    for wanted in ("none", "masks"):
        module = TransformerModule(e, 31).train()
        module.formulas.wanted = wanted
        loss, _ = module.batch_loss(batch, module._noise(3, batch))
        losses.append(loss.item())
        assert module.formulas.said() == [] if wanted == "none" else ["dropout masks by Triton, the same bits"]
    assert losses[0] == losses[1]
