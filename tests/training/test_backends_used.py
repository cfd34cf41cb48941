"""What a record says of the device's own choices: attention's backends, compiled variants and those that were not."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from lightning_tfm.config import Experiment, Model
from lightning_tfm.training.backends_used import attention_backends, backends_used
from lightning_tfm.training.module import TransformerModule
from tests.tiny import in_child

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
            module.transformer.hidden(source, target, None, None)
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
