"""Every layer type, positional scheme and score obeys the house: however a step is cut, wherever a run is resumed."""

from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from lightning_tfm.config import Experiment, Hardware, Model, Training
from lightning_tfm.data.batch import Batch, Step, make_batch
from lightning_tfm.registry import LAYERS, SCHEMES
from lightning_tfm.runs.trainer import make_trainer
from lightning_tfm.training.module import TransformerModule

LENGTHS = (3, 14, 1, 9, 6, 30)
SIZES = {"N": 2, "d_model": 16, "d_ff": 11, "h": 2, "d_k": 6, "d_v": 5, "P_drop": 0.2, "neighbourhood": 3}


def batch(index: list[int]) -> Batch:
    """Those sentences of the step, padded to the longest among them."""
    draw = np.random.default_rng(4)
    source, target = ([draw.integers(4, 31, n + more).astype(np.int32) for n in LENGTHS] for more in (0, 2))
    return make_batch([source[i] for i in index], [target[i] for i in index], np.array(index))


TYPES = [{"layer": name} for name in sorted(LAYERS)]
OTHERS = [{"positions": name} for name in SCHEMES if name not in ("sinusoidal", "none")]
OTHERS += [{"scores": name, "P_attention": 0.1} for name in ("unscaled", "additive", "cosine")]
INNER = {"P_attention": 0.3, "P_ff": 0.2}
DROPPED = [INNER, INNER | {"P_drop": 0.0}, {"P_attention": 0.3, "layer": "lstm"}]
DROPPED += [INNER | {"feed_forward": "geglu", "scores": "additive"}]
FAST = ("lstm", "restricted", "shaw_values", "t5", "cosine")
"""resumed in the fast tests: those that keep most of their own"""

WITHOUT = "scheme.W_out.bias"
"""FIRE's last bias adds one number to all scores of a query, which changes no weight: its gradient is zero"""


def named(change: dict) -> str:
    return "-".join(str(value) for value in change.values())


def marked(changes: list[dict], fast: tuple[str, ...]) -> list:
    """All but those `fast` in the long form."""
    return [pytest.param(c, marks=() if fast_enough(c, fast) else pytest.mark.long, id=named(c)) for c in changes]


def fast_enough(change: dict, fast: tuple[str, ...]) -> bool:
    return any(value in fast for value in change.values())


@pytest.mark.parametrize("change", [*marked(TYPES + OTHERS, (*LAYERS, *FAST)), *DROPPED])
def test_parts_of_a_step_add_up(change):
    training = Training(seed=3, precision="float64")
    module = TransformerModule(Experiment(model=Model(**(SIZES | change)), training=training), 31)

    def gradients(*parts: list[int]) -> list[torch.Tensor]:
        module.zero_grad()
        for index in parts:
            one = batch(index)
            module.batch_loss(5, one)[0].backward()
        return [p.grad.clone() for name, p in module.named_parameters() if not name.endswith(WITHOUT)]

    whole = gradients([0, 1, 2, 3, 4, 5])
    for parts in (([5, 0, 2], [1, 4, 3]), ([0], [1], [2], [3], [4], [5])):
        for ours, theirs in zip(whole, gradients(*parts), strict=True):
            assert ours.abs().max() > 1e-9 and (theirs - ours).abs().max() <= 1e-12 * ours.abs().max()


class Steps:
    """Optimizer steps from `first` on, the sentences of each its own."""

    def __init__(self, first: int):
        self.first = first

    def __iter__(self):
        for step in range(self.first, 99):
            order = np.random.default_rng(step).permutation(len(LENGTHS)).tolist()
            one = batch(order[: 3 + step % 3])
            tokens = (int(one.source_lengths_B.sum()), int(one.target_lengths_B.sum()))
            yield Step(step, *tokens, [one])


class Keep(pl.Callback):
    """Writes a checkpoint after one step, as a run does."""

    def __init__(self, after: int, path: Path):
        self.after, self.path = after, path

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        if trainer.global_step == self.after:
            trainer.save_checkpoint(self.path, storage_options=None)


@pytest.mark.parametrize("change", marked(TYPES + OTHERS, FAST))
def test_what_a_checkpoint_holds_is_enough_to_go_on_exactly(change, tmp_path):
    """Killed after step 3 of 5, it ends with the weights of a run that nobody disturbed, bit for bit."""
    training = Training(seed=3, steps=5, warmup=2, lr_factor=5.0)
    e = Experiment(model=Model(**SIZES, **change), training=training)
    ends = []
    for first, start in ((0, None), (3, tmp_path / "3.ckpt")):
        module = TransformerModule(e, 31)
        trainer = make_trainer(e, Hardware(accelerator="cpu"), [Keep(3, tmp_path / "3.ckpt")] if not first else [])
        trainer.fit(module, train_dataloaders=Steps(first), ckpt_path=start)
        assert trainer.global_step == 5
        ends.append(module.state_dict())
    kept = torch.load(tmp_path / "3.ckpt", weights_only=True)["state_dict"]
    assert ends[0].keys() == ends[1].keys() == kept.keys()
    for name, weight in ends[0].items():
        assert torch.equal(ends[1][name], weight), name
        assert name.endswith(WITHOUT) or not torch.equal(kept[name], weight), f"{name} stood still"
