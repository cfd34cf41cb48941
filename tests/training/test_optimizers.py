"""The loss, the schedules of the learning rate and the optimizers."""

import math
import os
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lightning_tfm.config import Experiment, Hardware, Model, Training
from lightning_tfm.errors import UserError
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.registry import OPTIMIZERS, SCHEDULES
from lightning_tfm.testing import ScheduleSuite
from lightning_tfm.training import loss as loss_module
from lightning_tfm.training import module
from lightning_tfm.training.evaluate import Line, NotFinite, perplexity
from lightning_tfm.training.loss import smoothed_nll, token_nll
from lightning_tfm.training.optimizers import make_optimizer, orthogonal
from lightning_tfm.training.schedule import Schedule, check_schedule, learning_rate
from tests.helpers import tiny
from tests.helpers.tiny import attempt, experiment, in_child, metrics, train, write_corpus

N, D, V = 23, 7, 31


def inputs():
    torch.manual_seed(2)
    x = torch.randn(N, D, dtype=torch.float64, requires_grad=True)
    E = torch.randn(V, D, dtype=torch.float64, requires_grad=True)
    return x, E, torch.randint(V, (N,))


def test_a_perplexity_may_overflow_and_is_never_nan():
    far = perplexity([Line(8000.0, 10), Line(8100.0, 10)])
    assert (far.ppl, far.nll, far.tokens) == (math.inf, 16100.0, 20)
    for nll in (math.nan, math.inf):
        with pytest.raises(NotFinite, match=f"the NLL of the text is {nll}"):
            perplexity([Line(8000.0, 10), Line(nll, 10)])


def reference(x, E, y, eps, smoothing):
    """The smoothed distribution written out in full."""
    logits = x @ E.T
    if smoothing == "vocabulary":
        return F.cross_entropy(logits, y, reduction="sum", label_smoothing=eps)
    wanted = torch.full((N, V), eps / (V - 1), dtype=torch.float64)
    wanted[torch.arange(N), y] = 1 - eps
    return F.cross_entropy(logits, wanted, reduction="sum")


@pytest.mark.parametrize("smoothing", ["vocabulary", "others"])
@pytest.mark.parametrize("eps", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("rows", [None, 5, 1])
def test_loss_and_gradient_are_those_of_cross_entropy(eps, smoothing, rows, monkeypatch):
    if rows is not None:
        monkeypatch.setattr(loss_module, "chunk_rows", lambda V, itemsize: rows)
    x, E, y = inputs()
    expected = reference(x, E, y, eps, smoothing)
    grad_x, grad_E = torch.autograd.grad(expected * 0.37, (x, E))
    found, nll = smoothed_nll(x, E, y, eps, smoothing)
    (found * 0.37).backward()
    torch.testing.assert_close(found, expected, atol=0, rtol=1e-14)
    torch.testing.assert_close(x.grad, grad_x, atol=1e-14, rtol=1e-12)
    torch.testing.assert_close(E.grad, grad_E, atol=1e-14, rtol=1e-12)
    torch.testing.assert_close(nll, reference(x, E, y, 0.0, "vocabulary").detach(), atol=0, rtol=1e-14)
    assert not nll.requires_grad


def test_chunks_bound_the_logits():
    """A chunk of logits has 1,024 rows, more where they are small, fewer where they are large; whatever the batch."""
    rows = loss_module.chunk_rows
    assert rows(37000, 4) == 1024
    assert rows(800, 4) * 800 * 4 <= loss_module.SMALL_CHUNK < (rows(800, 4) + 1) * 800 * 4
    assert 1024 > rows(50000, 4) == loss_module.LARGE_CHUNK // (50000 * 4) > 800
    assert rows(10**7, 4) == 64


def test_extreme_logits_stay_finite():
    x = torch.tensor([[1e3], [-1e3]], requires_grad=True)
    E = torch.tensor([[1.0], [-1.0], [0.5]], requires_grad=True)
    loss, nll = smoothed_nll(x, E, torch.tensor([0, 0]), 0.1, "vocabulary")
    loss.backward()
    assert loss.isfinite() and nll == 2000 and x.grad.isfinite().all() and E.grad.isfinite().all()


@pytest.mark.parametrize("rows", [None, 4])
def test_nll_of_every_row(rows, monkeypatch):
    if rows is not None:
        monkeypatch.setattr(loss_module, "chunk_rows", lambda V, itemsize: rows)
    x, E, y = inputs()
    expected = -(x @ E.T).log_softmax(1)[torch.arange(N), y].detach()
    torch.testing.assert_close(token_nll(x, E, y), expected, atol=1e-13, rtol=0)


# d_model^-0.5 min(n^-0.5, n 4000^-1.5): 512^-0.5 = 0.0441941738, 4000^-1.5 = 3.95284708e-6, 4000^-0.5 = 0.0158113883
BY_HAND = {1: 1.74692811e-7, 1000: 1.74692811e-4, 4000: 6.98771243e-4, 16000: 3.49385621e-4, 100000: 1.39754249e-4}


@pytest.mark.parametrize(("n", "rate"), BY_HAND.items())
def test_the_papers_schedule(n, rate):
    assert learning_rate(n - 1, 512, Training()) == pytest.approx(rate, rel=1e-8)


def test_width_warmup_and_factor():
    assert learning_rate(0, 128, Training()) == pytest.approx(2 * BY_HAND[1], rel=1e-8)
    assert learning_rate(3999, 512, Training(lr_factor=2.5)) == pytest.approx(2.5 * BY_HAND[4000], rel=1e-8)
    assert learning_rate(99, 64, Training(warmup=100)) == pytest.approx(0.0125, rel=1e-12)  # 1 / (8 * 10)
    assert learning_rate(399, 64, Training(warmup=100)) == pytest.approx(0.00625, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "shares"),
    [
        ({"schedule": "linear"}, {549: 451 / 901, 999: 1 / 901, 1000: 0}),
        ({"schedule": "cosine", "steps": 999}, {324: (1 + 0.5**0.5) / 2, 549: 1 / 2, 999: 0}),
        ({"schedule": "wsd", "cooldown": 0.2}, {400: 1, 799: 1, 899: 101 / 201, 1000: 0}),
    ],
)
def test_other_schedules_fall_from_the_same_peak_to_nothing(changes, shares):
    """`shares` of the peak after some steps."""
    t = Training(**{"steps": 1000, "warmup": 100} | changes)
    rates = [learning_rate(step, 64, t) for step in range(t.steps + 1)]
    assert max(rates) == rates[99] == pytest.approx(0.0125, rel=1e-12) and rates[49] == pytest.approx(
        0.00625, rel=1e-12
    )
    assert [rates[step] for step in shares] == pytest.approx([0.0125 * share for share in shares.values()], abs=1e-15)
    assert all(a >= b for a, b in pairwise(rates[99:]))


class Cycles(Schedule):
    """Half a cosine again and again, never below a tenth of the peak, after a warm-up on a square."""

    def rate(self, n: int) -> float:
        t = self.training
        return self.peak * (n / t.warmup) ** 2 if n <= t.warmup else self.after_warmup(n)

    def after_warmup(self, n: int) -> float:
        part = (n - self.training.warmup) % 50 / 50
        return self.peak * (0.1 + 0.9 * (1 + math.cos(math.pi * part)) / 2)


class Counts(Schedule):
    """Its rate depends on how often it was asked."""

    asked = 0

    def after_warmup(self, n: int) -> float:
        self.asked += 1
        return self.peak / self.asked


class Negative(Schedule):
    def after_warmup(self, n: int) -> float:
        return -self.peak


class Broken(Schedule):
    def after_warmup(self, n: int) -> float:
        return self.peak / (n - self.training.steps)


class Unscaled(Schedule):
    def rate(self, n: int) -> float:
        return 1e-3

    def after_warmup(self, n: int) -> float:
        return 1e-3


@pytest.mark.parametrize("name", [*SCHEDULES, f"{__name__}.Cycles"])
@pytest.mark.parametrize("check", [name for name in vars(ScheduleSuite) if name.startswith("test_")])
def test_what_ships_and_a_class_of_one_s_own_pass_the_suite(name, check):
    getattr(type("Suite", (ScheduleSuite,), {"schedule": name})(), check)()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Counts", "when steps are asked backwards: it must depend on n alone"),
        ("Negative", r"step 11 has the rate -.*: expected a finite number, 0 or above"),
        ("Broken", "ZeroDivisionError"),
    ],
)
def test_a_schedule_that_would_not_resume_or_gives_no_rate_is_refused_by_its_name(name, words):
    with pytest.raises(UserError, match=f"training.schedule='{__name__}.{name}': .*{words}"):
        check_schedule(Training(schedule=f"{__name__}.{name}", steps=100, warmup=10), 64)


def test_the_suite_sees_a_factor_that_does_not_act():
    suite = type("Suite", (ScheduleSuite,), {"schedule": f"{__name__}.Unscaled"})()
    with pytest.raises(AssertionError, match="lr_factor acts on no rate"):
        suite.test_the_factor_of_the_settings_acts()


def test_a_class_of_one_s_own_has_its_warm_up_its_cycles_and_its_least_rate():
    t = Training(schedule=f"{__name__}.Cycles", steps=1000, warmup=100)
    rates = [learning_rate(step, 64, t) for step in range(1000)]
    assert rates[49] == pytest.approx(0.0125 / 4) and max(rates) == rates[99] == rates[149] == pytest.approx(0.0125)
    assert 0.00125 < min(rates[100:]) < 0.00127


def test_a_run_with_a_schedule_of_one_s_own_is_resumed_bit_for_bit(tmp_path):
    """Killed in the middle of a cycle, after seven of twelve steps."""
    e = experiment(write_corpus(tmp_path / "text"), training__schedule=f"{__name__}.Cycles")
    whole = in_child(train, e, tmp_path / "whole", Hardware(checkpoint_every=5))
    with pytest.raises(AssertionError, match="exit code 9"):
        in_child(_killed_at_step_8, e, tmp_path / "killed")
    again = in_child(train, e, tmp_path / "killed", Hardware(checkpoint_every=5))
    first, second = tiny.weights(whole), tiny.weights(again)
    assert all(torch.equal(first[name], second[name]) for name in first) and metrics(whole) == metrics(again)


def _killed_at_step_8(e: Experiment, root: Path) -> None:
    rate = module.learning_rate

    def killed(step: int, *others) -> float:
        if step == 7:
            os._exit(9)
        return rate(step, *others)

    module.learning_rate = killed
    attempt(e, root, Hardware(checkpoint_every=5))


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
