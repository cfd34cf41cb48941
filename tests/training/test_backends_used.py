"""What a record says of the device's own choices: attention's backends, compiled variants and those that were not."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lightning_tfm.config import Experiment, Model
from lightning_tfm.data.batch import make_batch
from lightning_tfm.training.backends_used import attention_backends, backends_used
from lightning_tfm.training.callback import WARM_UP, RunCallback
from lightning_tfm.training.counters import Tally
from lightning_tfm.training.module import TransformerModule
from lightning_tfm.training.schedule import EventSchedule
from tests.helpers.tiny import in_child

SMALL = Model(N=2, d_model=12, d_ff=9, h=2, d_k=6, d_v=6)


def variants(limit: int) -> tuple[list[str], str]:
    """What is recorded and what is said of four forms of a layer."""
    from contextlib import redirect_stderr
    from io import StringIO

    module = TransformerModule(Experiment(model=SMALL), 31)
    torch._dynamo.config.recompile_limit = limit
    for layer in (*module.transformer.encoder, *module.transformer.decoder):
        layer.compile(dynamic=True, backend="eager")
    source, target = torch.tensor([[5, 6, 7, 3], [5, 6, 3, 0]]), torch.tensor([[2, 6, 7], [2, 6, 0]])
    for training in (True, False):
        with torch.set_grad_enabled(training):
            module.train(training).transformer(source, target)
            module.transformer.hidden(source, target, None)
    with redirect_stderr(StringIO()) as said:
        return backends_used(module), said.getvalue()


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # torch's compiler warns of what it does itself
def test_variants_that_run_uncompiled_are_counted_and_said():
    (recorded,), said = in_child(variants, 2)
    assert recorded.startswith("compiled: ") and "or more that run uncompiled" in recorded
    assert said.startswith(recorded)
    (recorded,), said = in_child(variants, 64)
    assert recorded.startswith("compiled: ") and "uncompiled" not in recorded and said == ""


def test_a_cpu_that_compiles_nothing_says_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    assert backends_used(TransformerModule(Experiment(model=SMALL), 31)) == []


def late_variants(seconds: float) -> tuple[list[int], list[int], list[str]]:
    """The compiler's variants after each of many lengths, those that count as late, and what is recorded at the end of
    a training that had lasted for so long before it."""
    module = TransformerModule(Experiment(model=SMALL), 31).train()
    for layer in (*module.transformer.encoder, *module.transformer.decoder):
        layer.compile(dynamic=True, backend="eager")
    callback = RunCallback(EventSchedule(50, 50, 50, 50), None, [], 0, "", Tally())
    draw, tried, late = np.random.default_rng(1), [], []

    def step(number: int) -> None:
        B, S, T = (2, 5, 4) if number < 2 else (1, 9, 7) if number < 4 else draw.integers(2, (12, 100, 100)).tolist()
        rows = [[draw.integers(4, 31, n - (i == 0 and number % 2)) for i in range(B)] for n in (S, T)]
        batch = make_batch(*rows, np.arange(B))
        callback._lap("data")
        module.batch_loss(number, batch)[0].backward()
        callback.tally.seconds |= {"train": seconds, "data": 0.0}
        callback._lap("train")
        tried.append(callback._tried)
        late.append(callback._late)

    for number in range(30):
        step(number)
    for layer in module.transformer.decoder:
        layer.compile(dynamic=True, backend="eager")
    torch._dynamo.reset()
    step(30)
    module.on_train_start()
    callback.on_train_end(None, module)
    return tried, late, callback.tally.this_attempt["inexact"]


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # torch's compiler warns of what it does itself
@pytest.mark.parametrize("seconds", [0.0, WARM_UP + 1])
def test_many_lengths_compile_nothing_new_and_what_is_compiled_late_is_counted(seconds):
    tried, late, recorded = in_child(late_variants, seconds)
    assert 0 < tried[7] == tried[29] <= 8, tried
    assert tried[30] > tried[29], "forced"
    assert late == (tried if seconds else [0] * 31)
    assert recorded == [f"compiled after the first 60 s of training: {late[-1]}"]


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "shaw", "alibi"])
def test_backends_are_named(positions):
    cpu = torch.device("cpu")
    found = attention_backends(replace(SMALL, positions=positions), cpu, "float32")
    assert found.startswith("attention: memory flash, encoder ")
    assert ("decoder flash" in found) is (positions != "shaw"), found  # a bias that learns
    assert "memory math" in attention_backends(replace(SMALL, d_v=7), cpu, "bfloat16")


def test_a_gpu_names_them_in_the_record(monkeypatch):
    module = TransformerModule(Experiment(model=SMALL), 31)
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    stand_in = SimpleNamespace(device=SimpleNamespace(type="cuda"), experiment=module.experiment)
    stand_in.backend = module.backend
    monkeypatch.setattr("lightning_tfm.training.backends_used.attention_backends", lambda *where: "attention: some")
    assert backends_used(stand_in) == ["attention: some"]
