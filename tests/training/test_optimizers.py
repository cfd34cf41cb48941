"""Optimisers: held against torch's, resumed from their state, and the parameters that each part takes."""

import pytest
import torch
from torch import nn

from lightning_tfm.config import Model, Training
from lightning_tfm.errors import UserError
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.registry import OPTIMIZERS
from lightning_tfm.training.optimizers import make_optimizer, orthogonal

SIZES = Model(N=1, d_model=12, d_ff=20, h=2, d_k=3, d_v=5, positions="shaw")


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, numbers: range) -> None:
    for number in numbers:
        draw = torch.Generator().manual_seed(number)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=draw).to(parameter.dtype)
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * (number + 1)
        optimizer.step()
        optimizer.zero_grad()


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


class Mine(torch.optim.NAdam):
    """An optimiser of a user's own."""

    def __init__(self, model: nn.Module, training: Training):
        super().__init__(model.parameters(), lr=0.0, betas=(training.beta1, training.beta2))


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", [*OPTIMIZERS, f"{__name__}.Mine"])
def test_resumed_from_its_state_it_goes_on_to_the_bit(name, decay, tmp_path):
    t = Training(optimizer=name, weight_decay=decay)
    whole, first, second = (Transformer(SIZES, 17, 3) for _ in range(3))
    unbroken = make_optimizer(whole, t)
    steps(whole, unbroken, range(6))
    before = make_optimizer(first, t)
    steps(first, before, range(3))
    torch.save({"model": first.state_dict(), "optimizer": before.state_dict()}, tmp_path / "half.pt")
    half = torch.load(tmp_path / "half.pt", weights_only=True)
    second.load_state_dict(half["model"])
    after = make_optimizer(second, t)
    after.load_state_dict(half["optimizer"])
    steps(second, after, range(3, 6))
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(second), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(weights(whole), weights(first), strict=True))


@pytest.mark.parametrize(("rows", "columns"), [(7, 12), (12, 7), (9, 9)])
def test_muon_is_torchs_to_the_bit_in_its_precision(rows, columns):
    ours, theirs = (nn.Linear(columns, rows, bias=False).bfloat16() for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    t = Training(optimizer="muon", weight_decay=0.1)
    steps(ours, make_optimizer(ours, t), range(4))
    muon = torch.optim.Muon(theirs.parameters(), weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    steps(theirs, muon, range(4))
    assert torch.equal(ours.weight, theirs.weight)


def test_an_update_is_nearly_orthogonal_and_its_own_for_q_k_and_v():
    found = torch.linalg.svdvals(orthogonal(torch.randn(9, 40, dtype=torch.float64)))
    assert 0.6 < found.min() and found.max() < 1.3
    model = Transformer(SIZES, 17, 3).double()
    W_QKV, before = model.encoder[0].self_attention.W_QKV, weights(model.encoder[0].self_attention.W_QKV)[0]
    steps(model, make_optimizer(model, Training(optimizer="muon")), range(1))
    for part in (W_QKV.weight - before).detach().split(list(W_QKV.parts.values())):
        values = torch.linalg.svdvals(part) / (0.01 * 0.2 * max(part.shape) ** 0.5)
        assert 0.6 < values.min() and values.max() < 1.3


def test_muon_takes_linear_maps_and_adamw_the_rest():
    model = Transformer(SIZES, 17, 3)
    optimizer = make_optimizer(model, Training(optimizer="muon", weight_decay=0.1))
    names = {id(p): name for name, p in model.named_parameters()}
    muon, *rest = ([names[id(p)] for p in group["params"]] for group in optimizer.param_groups)
    assert set(muon) == {name for name in names.values() if ".W_" in name and name.endswith("weight")}
    assert sorted([*muon, *rest[0], *rest[1]]) == sorted(names.values())
    assert set(rest[0]) == {"embedding_WD", "encoder.0.self_attention.scheme.table_RK"} | {
        "decoder.0.self_attention.scheme.table_RK"
    }


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_biases_and_gains_never_decay(name):
    model = Transformer(SIZES, 17, 3)
    optimizer = make_optimizer(model, Training(optimizer=name, weight_decay=0.1))
    for group in optimizer.param_groups:
        assert {p.dim() > 1 for p in group["params"]} == {group["weight_decay"] > 0}


def test_what_takes_parameters_is_refused():
    with pytest.raises(UserError, match=r"torch\.optim\.SGD' takes parameters"):
        make_optimizer(nn.Linear(2, 2), Training(optimizer="torch.optim.SGD"))
    with pytest.raises(UserError, match=r"must derive from Optimizer"):
        make_optimizer(nn.Linear(2, 2), Training(optimizer="torch.nn.Linear"))
