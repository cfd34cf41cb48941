"""Products of matrices by oneDNN, and what a record says of the device's own choices."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.utils import parametrize

from lightning_tfm.accel import onednn, select
from lightning_tfm.config import Experiment, Hardware, Model
from lightning_tfm.data.batch import make_batch
from lightning_tfm.errors import UserError
from lightning_tfm.training.backend import attention_backends, backends_used
from lightning_tfm.training.callback import WARM_UP, RunCallback
from lightning_tfm.training.counters import RunCounters
from lightning_tfm.training.module import TransformerModule
from lightning_tfm.training.schedule import EventSchedule
from tests.helpers.tiny import experiment, in_child, train, weights, write_corpus

CPU = torch.device("cpu")
WITH_ONEDNN = pytest.mark.skipif(not onednn.has_onednn(), reason="this torch has no oneDNN")


@WITH_ONEDNN
@pytest.mark.parametrize("change", [{}, {"model__bias": False, "model__tie": "none"}, {"model__layer": "separable"}])
def test_loss_and_gradients_are_as_near_to_float64s_as_torchs(tmp_path, change, monkeypatch):
    e, draw = experiment(tmp_path, model__P_drop=0.1, **change), np.random.default_rng(3)
    sides = [[draw.integers(4, 40, n) for n in lengths] for lengths in ((3, 17, 9), (11, 2, 14))]
    batch = make_batch(*sides, np.arange(3))
    count, raw = [0], onednn.by_onednn

    def counted(*args):
        count[0] += 1
        return raw(*args)

    monkeypatch.setattr(onednn, "by_onednn", counted)
    found = {}
    for name, by in (("exact", "torch"), ("torch", "torch"), ("onednn", "onednn")):
        module = TransformerModule(e, 44, select.backend(Hardware(products=by), "float32", CPU))
        if name == "exact":
            module.double()
        before = count[0]
        loss, nll = module.batch_loss(2, batch)
        loss.backward()
        assert (count[0] > before) == (by == "onednn")
        grads = {key: p.grad.double() for key, p in module.named_parameters()}
        found[name] = {"loss": loss.detach().double(), "nll": nll.double()} | grads
    linear = sum(isinstance(one, torch.nn.Linear) for one in module.modules())
    assert count[0] == 3 * linear + 3, "forward and both gradients of every product"
    for key, exact in found["exact"].items():
        error = {by: (found[by][key] - exact).abs().max() / exact.abs().max() for by in ("torch", "onednn")}
        assert error["onednn"] < max(4 * error["torch"], 2e-6), (key, error)


class Halved(torch.nn.Linear):
    def forward(self, x):
        return torch.nn.functional.linear(x, 0.5 * self.weight, self.bias)


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return 2 * weight


def apply_norm(linear):
    found = torch.nn.utils.weight_norm(linear)
    found.weight_g.data.mul_(3)  # as after load_state_dict: the weight of the last forward is not the one of the next
    return found


def shifted(linear):
    linear.forward = lambda x: torch.nn.functional.linear(x, linear.weight) + 1
    return linear


@WITH_ONEDNN
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("own", ["subclass", "parametrized", "hook", "instance"])
def test_a_linear_map_of_the_users_own_stays_the_function_that_it_is(own):
    """Products only round: a masked or pruned linear map must not become a plain one."""
    torch.manual_seed(1)
    make = {
        "subclass": lambda: Halved(8, 8),
        "parametrized": lambda: parametrize.register_parametrization(torch.nn.Linear(8, 8), "weight", Doubled()),
        "hook": lambda: apply_norm(torch.nn.Linear(8, 8)),
        "instance": lambda: shifted(torch.nn.Linear(8, 8)),
    }[own]
    model, x = torch.nn.Sequential(make(), torch.nn.ReLU(), torch.nn.Linear(8, 8)), torch.randn(5, 8)
    with torch.no_grad():
        expected = model(x)
        with onednn.Multiplying():
            assert torch.allclose(model(x), expected, atol=1e-6)
        onednn.pack_below(model)
        assert torch.allclose(model(x), expected, atol=1e-6) and not isinstance(model[2], torch.nn.Linear)


@WITH_ONEDNN
@pytest.mark.parametrize("x", [torch.randn(5), torch.randn(2, 5).double()], ids=["one row", "float64"])
def test_products_that_its_operator_is_not_for_are_torchs(x):
    weight = torch.randn(3, 5, dtype=x.dtype, requires_grad=True)
    expected = torch.nn.functional.linear(x, weight)
    with onednn.Multiplying():
        found = torch.nn.functional.linear(x, weight)
    found.sum().backward()
    assert torch.equal(found, expected) and weight.grad.abs().sum() > 0


@WITH_ONEDNN
@pytest.mark.parametrize("precision, device", [("bfloat16", "cpu"), ("float64", "cpu"), ("float32", "cuda")])
def test_what_it_cannot_multiply_is_refused_where_it_trains(precision, device):
    """A machine that joins a study learns a row's precision only here; autocast would not reach oneDNN's operator."""
    with pytest.raises(UserError, match=f"multiplies float32 on CPUs, not {precision} on {device}"):
        select.backend(Hardware(products="onednn"), precision, torch.device(device))


@WITH_ONEDNN
def test_a_run_keeps_its_name_and_says_who_multiplied(tmp_path: Path):
    e = experiment(write_corpus(tmp_path / "text"))
    runs = [in_child(train, e, tmp_path / by, Hardware(products=by)) for by in ("torch", "onednn")]
    assert runs[0].name == runs[1].name
    records = [json.loads((run / "result.json").read_bytes()) for run in runs]
    said = ["products of the training by onednn, rounded otherwise than torch's"]
    assert [one["inexact"] for one in records] == [[], said]
    ours, theirs = (weights(run) for run in runs)
    assert all(torch.allclose(ours[key], theirs[key], rtol=0, atol=1e-4) for key in ours)
    assert any(not torch.equal(ours[key], theirs[key]) for key in ours)


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
    callback = RunCallback(EventSchedule(50, 50, 50, 50), None, [], 0, "", RunCounters())
    draw, tried, late = np.random.default_rng(1), [], []

    def step(number: int) -> None:
        B, S, T = (2, 5, 4) if number < 2 else (1, 9, 7) if number < 4 else draw.integers(2, (12, 100, 100)).tolist()
        rows = [[draw.integers(4, 31, n - (i == 0 and number % 2)) for i in range(B)] for n in (S, T)]
        batch = make_batch(*rows, np.arange(B))
        callback._lap("data")
        module.batch_loss(number, batch)[0].backward()
        callback.counters.seconds |= {"train": seconds, "data": 0.0}
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
    return tried, late, callback.counters.this_attempt["inexact"]


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
    monkeypatch.setattr("lightning_tfm.training.backend.attention_backends", lambda *where: "attention: some")
    assert backends_used(stand_in) == ["attention: some"]
