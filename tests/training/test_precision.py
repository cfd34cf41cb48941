"""What products round to, and which numbers it leaves alone; what a GPU is told, asked of a stand-in."""

from dataclasses import replace
from types import SimpleNamespace

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_tfm.config import (
    BFLOAT16_VERSION,
    Evaluation,
    Experiment,
    Hardware,
    Model,
    Training,
    training_hash,
    training_identity,
)
from lightning_tfm.data.batch import make_batch
from lightning_tfm.data.module import Batches
from lightning_tfm.errors import UserError
from lightning_tfm.model import dropout
from lightning_tfm.runs.trainer import make_trainer
from lightning_tfm.training import loss as loss_module
from lightning_tfm.training import precision
from lightning_tfm.training.evaluate import evaluate_lines
from lightning_tfm.training.loss import smoothed_nll
from lightning_tfm.training.module import TransformerModule

V = 31
SMALL = Model(N=1, d_model=16, d_ff=24, h=2, d_k=6, d_v=6)
PRODUCTS = {
    "mm",
    "addmm",
    "addmm_",
    "bmm",
    "baddbmm",
    "linear",
    "matmul",
    "_scaled_dot_product_flash_attention_for_cpu",
}


class Products(TorchDispatchMode):
    """Types of the factors of every product."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[str, torch.dtype]] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in PRODUCTS:
            self.seen |= {(name, x.dtype) for x in args if isinstance(x, torch.Tensor)}
        return func(*args, **(kwargs or {}))


def pairs(count: int = 6):
    draw = np.random.default_rng(3)
    sides = [[draw.integers(4, V, n) for n in range(start, start + count)] for start in (3, 4)]
    return make_batch(*sides, np.arange(count))


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi"])
def test_every_product_of_a_step_under_autocast_is_bfloat16(positions):
    """Not Shaw's on a CPU, where torch's attention with a bias that learns computes in float32."""
    module = TransformerModule(Experiment(model=replace(SMALL, positions=positions)), V).train()
    with Products() as products:
        with torch.autocast("cpu", torch.bfloat16):
            loss, _ = module.batch_loss(3, pairs())
        loss.backward()
    assert {"mm", "_scaled_dot_product_flash_attention_for_cpu"} <= {name for name, _ in products.seen}
    assert {kind for _, kind in products.seen} == {torch.bfloat16}, products.seen


@pytest.mark.parametrize("norm", ["post", "pre", "sandwich"])
def test_residuals_under_autocast_are_joined_as_by_addcmul(norm, monkeypatch):
    """The same gradients to the bit, without a copy of the sub-layer's output in float32."""
    e, batch, found = Experiment(model=replace(SMALL, norm=norm), training=Training(seed=5)), pairs(), []
    for joined in (dropout._Add, SimpleNamespace(apply=torch.addcmul)):
        monkeypatch.setattr(dropout, "_Add", joined)
        module = TransformerModule(e, V).train()
        with torch.autocast("cpu", torch.bfloat16):
            loss, _ = module.batch_loss(3, batch)
        loss.backward()
        found.append({"loss": loss.detach()} | {name: p.grad for name, p in module.named_parameters()})
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())


@pytest.mark.parametrize("rows", [None, 5])
def test_the_loss_under_autocast_is_that_of_rounded_factors(rows, monkeypatch):
    """Against float64 on the rounded factors: the rest of the way costs less than the rounding of one number."""
    if rows:
        monkeypatch.setattr(loss_module, "chunk_rows", lambda V, itemsize: rows)
    torch.manual_seed(4)
    x, E, y = torch.randn(23, 16, requires_grad=True), torch.randn(V, 16, requires_grad=True), torch.randint(V, (23,))
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = smoothed_nll(x, E, y, 0.1, "vocabulary")
    (loss * 0.37).backward()
    exact = [t.detach().bfloat16().double().requires_grad_() for t in (x, E)]
    expected = torch.nn.functional.cross_entropy(exact[0] @ exact[1].T, y, reduction="sum", label_smoothing=0.1)
    (expected * 0.37).backward()
    assert loss.item() == pytest.approx(expected.item(), rel=2e-3)
    for found, wanted in zip((x.grad, E.grad), (exact[0].grad, exact[1].grad), strict=True):
        assert found.dtype is torch.float32
        assert float((found - wanted).norm() / wanted.norm()) < 1e-2


def test_only_bfloat16_runs_have_new_names():
    def named(kind: str) -> str:
        return training_hash(training_identity(Experiment(training=Training(precision=kind)), "t", {}))

    identity = training_identity(Experiment(training=Training(precision="bfloat16")), "t", {})
    assert identity["bfloat16"] == BFLOAT16_VERSION == 2
    assert named("bfloat16") != training_hash({k: v for k, v in identity.items() if k != "bfloat16"})
    assert "bfloat16" not in training_identity(Experiment(), "t", {})
    assert len({named(kind) for kind in ("float32", "tfloat32", "bfloat16", "float64")}) == 4


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_scores_are_the_same_in_our_loop_and_in_a_trainer_s(positions):
    """A Trainer tests inside autocast; ours, and every verb, outside."""
    e = Experiment(
        model=replace(SMALL, positions=positions),
        training=Training(precision="bfloat16"),
        evaluation=Evaluation(beam=2, extra_len=3),
    )
    module = TransformerModule(e, V)
    trainer = pl.Trainer(
        accelerator="cpu",
        precision="bf16-mixed",
        logger=False,
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.test(module, Batches([pairs()]), verbose=False)
    theirs = module.tested_lines
    assert len(theirs) == 6 and theirs == evaluate_lines(TransformerModule(e, V), [pairs()], 6, e.evaluation)


def test_a_table_of_rotations_does_not_take_the_digits_of_who_asks_first():
    model = replace(SMALL, positions="rotary")
    fresh = TransformerModule(Experiment(model=model), V).eval()
    lowered = TransformerModule(Experiment(model=model), V).eval()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        lowered.batch_loss(3, pairs())
    assert (lowered.sentence_nll(pairs()) == fresh.sentence_nll(pairs())).all()


# --- what a GPU is told; there is none here ---


@pytest.fixture
def told(monkeypatch):
    """What a Trainer on a GPU is made with, and torch's flags at that time."""
    before = torch.get_float32_matmul_precision(), torch.utils.deterministic.fill_uninitialized_memory
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")

    def told(kind: str = "float32", accelerator: str = "auto") -> dict:
        made: dict = {}
        with monkeypatch.context() as patch:
            patch.setattr(pl, "Trainer", lambda **how: made.update(how))
            make_trainer(Experiment(training=Training(precision=kind)), Hardware(accelerator=accelerator), [])
        return made

    yield told
    torch.set_float32_matmul_precision(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]


def test_a_gpu_is_strictly_deterministic_and_fills_nothing(told):
    made = told()
    assert made["accelerator"] == "gpu" and made["deterministic"] is True
    assert torch.utils.deterministic.fill_uninitialized_memory is False
    assert told(accelerator="cpu")["deterministic"] is None


def test_tensorfloat_is_never_switched_on_silently(told, monkeypatch):
    torch.set_float32_matmul_precision("high")  # whoever did so
    assert told()["precision"] == "32-true" and torch.get_float32_matmul_precision() == "highest"
    assert told("tfloat32")["precision"] == "32-true" and torch.get_float32_matmul_precision() == "high"
    with precision.of_weights(torch.device("cpu")):
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == "high"
    with pytest.raises(UserError, match=r"training\.precision=tfloat32 needs an NVIDIA GPU.*this run is on a CPU"):
        told("tfloat32", "cpu")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 0))
    with pytest.raises(UserError, match="a GPU is older"):
        told("tfloat32")


@pytest.mark.parametrize(("accelerator", "gpus", "fresh"), [("auto", 1, True), ("auto", 0, False), ("cpu", 1, False)])
def test_ranks_on_gpus_are_fresh_processes_whoever_asked_for_gpus(accelerator, gpus, fresh, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert precision.uses_gpu(Hardware(accelerator=accelerator)) is fresh


def test_one_addition_to_an_element_needs_no_order():
    """Strictly deterministic, a GPU sorts where it could add: not where the loss adds once to each row."""
    modes = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.overloadpacket.__name__ == "scatter_add_":
                modes.append(torch.are_deterministic_algorithms_enabled())
            return func(*args, **(kwargs or {}))

    x, E, y = torch.randn(5, 4, requires_grad=True), torch.randn(V, 4, requires_grad=True), torch.arange(5)
    torch.set_deterministic_debug_mode("error")
    try:
        with Watch():
            smoothed_nll(x, E, y, 0.1, "vocabulary")
        assert torch.get_deterministic_debug_mode() == 2
    finally:
        torch.set_deterministic_debug_mode("default")
    assert modes == [False]
