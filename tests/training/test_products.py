"""Products by oneDNN: torch's up to rounding, the same experiment, and said in the record."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import parametrize

from lightning_tfm.accel import onednn, select
from lightning_tfm.config import Hardware
from lightning_tfm.data.batch import make_batch
from lightning_tfm.errors import UserError
from lightning_tfm.training.module import TransformerModule
from tests.helpers.tiny import experiment, in_child, train, weights, write_corpus

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(not onednn.has_onednn(), reason="this torch has no oneDNN")


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


def normed(linear):
    found = torch.nn.utils.weight_norm(linear)
    found.weight_g.data.mul_(3)  # as after load_state_dict: the weight of the last forward is not the one of the next
    return found


def shifted(linear):
    linear.forward = lambda x: torch.nn.functional.linear(x, linear.weight) + 1
    return linear


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("own", ["subclass", "parametrized", "hook", "instance"])
def test_a_linear_map_of_the_users_own_stays_the_function_that_it_is(own):
    """Products only round: a masked or pruned linear map must not become a plain one."""
    torch.manual_seed(1)
    make = {
        "subclass": lambda: Halved(8, 8),
        "parametrized": lambda: parametrize.register_parametrization(torch.nn.Linear(8, 8), "weight", Doubled()),
        "hook": lambda: normed(torch.nn.Linear(8, 8)),
        "instance": lambda: shifted(torch.nn.Linear(8, 8)),
    }[own]
    model, x = torch.nn.Sequential(make(), torch.nn.ReLU(), torch.nn.Linear(8, 8)), torch.randn(5, 8)
    with torch.no_grad():
        expected = model(x)
        with onednn.Multiplying():
            assert torch.allclose(model(x), expected, atol=1e-6)
        onednn.pack_below(model)
        assert torch.allclose(model(x), expected, atol=1e-6) and not isinstance(model[2], torch.nn.Linear)


@pytest.mark.parametrize("x", [torch.randn(5), torch.randn(2, 5).double()], ids=["one row", "float64"])
def test_products_that_its_operator_is_not_for_are_torchs(x):
    weight = torch.randn(3, 5, dtype=x.dtype, requires_grad=True)
    expected = torch.nn.functional.linear(x, weight)
    with onednn.Multiplying():
        found = torch.nn.functional.linear(x, weight)
    found.sum().backward()
    assert torch.equal(found, expected) and weight.grad.abs().sum() > 0


@pytest.mark.parametrize("precision, device", [("bfloat16", "cpu"), ("float64", "cpu"), ("float32", "cuda")])
def test_what_it_cannot_multiply_is_refused_where_it_trains(precision, device):
    """A machine that joins a study learns a row's precision only here; autocast would not reach oneDNN's operator."""
    with pytest.raises(UserError, match=f"multiplies float32 on CPUs, not {precision} on {device}"):
        select.backend(Hardware(products="onednn"), precision, torch.device(device))


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
