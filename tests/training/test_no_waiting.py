"""On a GPU no step waits for the device, and none for text; the numbers are those of a CPU that looks at each step."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lightning_tfm.config import Experiment, Model, Training
from lightning_tfm.data.batch import Step, make_batch
from lightning_tfm.data.module import StepLoader
from lightning_tfm.data.plan import Plan
from lightning_tfm.data.prefetcher import STEPS, Prefetcher
from lightning_tfm.training.module import TransformerModule
from lightning_tfm.training.pending_losses import READ_EVERY, NotFinite

V = 31
META = torch.device("meta")
TRAINER = SimpleNamespace(world_size=1, strategy=object(), loggers=[], log_every_n_steps=0)
SMALL = Model(N=1, d_model=16, d_ff=24, h=2, d_k=6, d_v=6)


class Text:
    """Sentences as a split holds them."""

    def __init__(self, count: int):
        draw = np.random.default_rng(1)
        self.rows = [[draw.integers(4, V, n) for n in draw.integers(2, 9, count)] for _ in range(2)]

    def source(self, i: int) -> np.ndarray:
        return self.rows[0][i]

    def target(self, i: int) -> np.ndarray:
        return self.rows[1][i]


def loader(micro_tokens: int = 0) -> StepLoader:
    text = Text(40)
    lengths = [np.array([len(row) + 1 for row in side]) for side in text.rows]
    return StepLoader(Plan(*lengths, 60, 1), text, 0, 0, 1, micro_tokens)


@pytest.fixture
def alone(monkeypatch):
    """`steps(module)`: training steps without a Trainer."""

    def prepared(**changes) -> TransformerModule:
        e = Experiment(model=replace(SMALL, **changes), training=Training(tokens=60, steps=50, warmup=5, clip_norm=1.0))
        module = TransformerModule(e, V).train()
        optimizer = module.configure_optimizers()
        monkeypatch.setattr(TransformerModule, "trainer", TRAINER)
        monkeypatch.setattr(TransformerModule, "optimizers", lambda self: optimizer)
        monkeypatch.setattr(TransformerModule, "manual_backward", lambda self, loss: loss.backward())
        module.on_train_start()
        return module

    return prepared


CHANGES = [{"positions": name} for name in ("sinusoidal", "rotary", "shaw", "alibi", "learned")]
CHANGES += [{"stack": "prefix", "P_attention": 0.1}, {"stack": "causal", "positions": "learned", "P_ff": 0.1}]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_step_reads_nothing_from_the_device(monkeypatch, change):
    """The meta device holds no numbers, so that every read raises. It has no fused Adam, so SGD steps instead."""
    e = Experiment(model=replace(SMALL, **change), training=Training(tokens=60, clip_norm=1.0))
    module = TransformerModule(e, V).train().to(META)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    monkeypatch.setattr(TransformerModule, "trainer", TRAINER)
    monkeypatch.setattr(TransformerModule, "optimizers", lambda self: optimizer)
    monkeypatch.setattr(TransformerModule, "manual_backward", lambda self, loss: loss.backward())
    module.on_train_start()
    steps = iter(loader(40))
    for number in range(3):
        step = next(steps)
        assert len(step.micro) > 1
        module.training_step(step.to(META), number)
    assert len(module.pending._kept) >= 6
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        module.flush_losses()


def test_sums_are_those_of_reading_every_step(alone):
    found = []
    for every in (1, READ_EVERY):
        module, steps = alone(), iter(loader(40))
        module.pending.every = every
        for number in range(13):
            module.training_step(next(steps), number)
        assert bool(module.pending._kept) is (every > 1)
        found.append(module.take_sums().tolist())
    assert found[0] == found[1] and found[0][0] > 0


@pytest.mark.parametrize("every", [1, READ_EVERY])
def test_nan_is_found_within_ten_steps_and_named_with_its_own(alone, monkeypatch, every):
    module, steps, loss = alone(), iter(loader()), TransformerModule.batch_loss
    module.pending.every = every

    def broken(self, batch, noise):
        found, nll = loss(self, batch, noise)
        return (found * float("nan"), nll) if number == 4 else (found, nll)

    monkeypatch.setattr(TransformerModule, "batch_loss", broken)
    with pytest.raises(NotFinite, match=r"the loss is nan at step 4, micro-batch 1 of shape \(\d+, \d+\) ->"):
        for number in range(20):
            module.training_step(next(steps), number)
    assert number == (4 if every == 1 else READ_EVERY - 1)


# --- batches made ahead ---


def same(a: Step, b: Step) -> None:
    assert (a.step, a.source_tokens, a.target_tokens, len(a.micro)) == (
        b.step,
        b.source_tokens,
        b.target_tokens,
        len(b.micro),
    )
    for one, other in zip(a.micro, b.micro, strict=True):
        for name in ("source_BS", "target_in_BT", "target_out_BT", "allowed", "rows_N", "keys_3B"):
            ours, theirs = getattr(one, name), getattr(other, name)
            assert ours is theirs is None or torch.equal(ours, theirs), name


def test_steps_made_ahead_are_the_same_in_the_same_order():
    """Over several epochs, whose orders another thread draws."""
    plain, ahead = iter(loader(40)), iter(Prefetcher(loader(40), pinned=False))
    for _ in range(3 * loader().plan.steps_per_epoch):
        same(next(plain), next(ahead))
    ahead.close()


class Broken:
    plan = loader().plan

    def __iter__(self) -> Iterator[Step]:
        yield loader().step(0)
        raise OSError("the disk is gone")


def test_what_goes_wrong_ahead_is_raised_where_the_step_is_asked_for():
    steps = iter(Prefetcher(Broken(), pinned=False))
    next(steps)
    with pytest.raises(OSError, match="the disk is gone"):
        next(steps)


def test_no_more_is_made_than_is_wanted():
    made = []

    class Counting(StepLoader):
        def step(self, step: int) -> Step:
            made.append(step)
            return super().step(step)

    whole = loader()
    steps = iter(Prefetcher(Counting(whole.plan, whole.split, 5, 0, 1, 0), pinned=False))
    assert next(steps).step == 5
    steps.close()
    assert made[0] == 5 and len(made) <= STEPS + 2


ENDS_EARLY = """
from types import SimpleNamespace
import torch
from lightning_tfm.data.batch import Step
from lightning_tfm.data.prefetcher import Prefetcher

class Endless:
    plan = SimpleNamespace(steps_per_epoch=1 << 40, global_batch=abs)

    def __iter__(self):
        while True:
            yield Step(0, 1, 1, [SimpleNamespace(flattened=lambda pinned: torch.rand(1 << 22).sort())])

steps = iter(Prefetcher(Endless(), pinned=False))
next(steps)
"""


def test_a_process_ends_in_peace_while_a_step_is_made_ahead():
    done = subprocess.run([sys.executable, "-c", ENDS_EARLY], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("flattened", [False, True])
def test_a_batch_travels_in_one_piece(flattened, monkeypatch):
    """A CPU stands for the device: what is cut from the one buffer is what was put in."""
    batch = loader().step(2).micro[0]
    batch = batch.flattened(False) if flattened else batch
    copies = []
    copy = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *where, **how: copies.append(how) or copy(self, "cpu"))
    stand_in = SimpleNamespace(type="cuda")
    found = batch.to(stand_in)
    assert copies == [{"non_blocking": True}]
    same(Step(0, 0, 0, [found]), Step(0, 0, 0, [batch]))
    assert batch.to(torch.device("cpu")) is batch


def test_a_batch_without_sentences_travels():
    empty = make_batch([], [], np.array([], dtype=np.int64))
    assert empty.to(META).source_BS.shape == (0, 1) and empty.allowed is None and empty.rows_N is None
