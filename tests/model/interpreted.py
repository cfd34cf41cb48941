"""Kernels against their formulas in Triton's interpreter, on a CPU: what it cannot show are races and speed.

test_kernels.py runs these in a process of their own: Triton decides for good as it is imported. By hand:

    TRITON_INTERPRET=1 python -m pytest tests/model/interpreted.py
"""

import json
import random
import re

import numpy as np
import pytest
import torch

from lightning_tfm.accel import on_gpu, select
from lightning_tfm.accel.on_gpu import DeviceMasks
from lightning_tfm.config import Experiment, Hardware, Model, Training
from lightning_tfm.data.batch import make_batch
from lightning_tfm.errors import UserError
from lightning_tfm.training.loss import smoothed_nll, smoothing_weights
from lightning_tfm.training.masks import SentenceMasks
from lightning_tfm.training.module import TransformerModule
from tests.helpers import tiny

CPU = torch.device("cpu")
WHOLE = on_gpu.CHECKED


@pytest.fixture(autouse=True)
def checked_in_short(monkeypatch):
    """What is compared before each training takes longer, interpreted, than what is tested here."""
    monkeypatch.setattr(on_gpu, "CHECKED", (((1 << 32) + 5, (1 << 20,), (3,)),))


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
    wanted, found = formula.between(step, batch, like), DeviceMasks(formula, CPU).between(step, batch, like)
    for side, ours, theirs in zip(("source", "target"), found, wanted, strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs), (side, model, step)


def test_masks_of_long_sentences():
    """More blocks than one program draws."""
    formula = SentenceMasks(Model(N=1, d_model=64, P_drop=0.1), 3)
    batch = make_batch([np.full(129, 4), np.full(20, 4)], [np.full(3, 4)] * 2, np.array([8, 1]))
    wanted, found = (m.between(11, batch, torch.empty(0)) for m in (formula, DeviceMasks(formula, CPU)))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, wanted, strict=True))


def test_masks_that_are_not_numpys_stop_the_training(monkeypatch):
    from lightning_tfm.accel.kernels import masks as kernel

    monkeypatch.setattr(on_gpu, "CHECKED", WHOLE)
    DeviceMasks(SentenceMasks(Model(N=1, d_model=16), 1), CPU)
    right = kernel.masks
    monkeypatch.setattr(kernel, "masks", lambda *how: right(*how).roll(1))
    with pytest.raises(UserError, match=r"are not the experiment's: --trainer.kernels none"):
        DeviceMasks(SentenceMasks(Model(N=1, d_model=16), 1), CPU)


def test_a_step_with_them_is_the_step_without():
    e = Experiment(model=Model(N=1, d_model=16, d_ff=24, h=2, d_k=6, d_v=6), training=Training(seed=5))
    batch, losses = ragged(random.Random(4)), []
    for wanted in ("none", "masks"):
        module = TransformerModule(e, 31, select.backend(Hardware(kernels=wanted), "float32", CPU)).train()
        loss, _ = module.batch_loss(3, batch)
        losses.append(loss.item())
        assert module.backend.notes[:1] == (() if wanted == "none" else ("dropout masks by Triton, the same bits",))
    assert losses[0] == losses[1]


# --- the loss ---


def logits(number: int, dtype: torch.dtype):
    """Rows of one chunk, of several, of exactly one; peaked and flat; the wanted piece among the first and the last."""
    draw = torch.Generator().manual_seed(number)
    V = (5, 31, 4096, 5001, 9000)[number % 5]
    z = (torch.randn(5, V, generator=draw, dtype=torch.float64) * (1 + 3 * number)).to(dtype)
    y = torch.randint(V, (5,), generator=draw)
    y[0], y[1] = 0, V - 1
    return z, y, smoothing_weights(0.1 * (number % 3), V, ("vocabulary", "others")[number % 2])


@pytest.mark.parametrize("number", range(6))
def test_the_loss_of_rows_is_the_formula_s(number):
    """In float32 to 1e-6 of float64; in bfloat16 the sums as well, the gradient to its own rounding, 2^-8."""
    from lightning_tfm.accel.kernels.loss import formula, over_rows

    for dtype, bound in ((torch.float32, 1e-6), (torch.bfloat16, 2**-8)):
        z, y, (q_y, b) = logits(number, dtype)
        loss, nll, gradient = formula(z.double(), y, q_y, b)
        found_loss, found_nll = over_rows(z, y, q_y, b)
        scale = loss.abs().max()
        assert float((found_loss - loss).abs().max() / scale) < 1e-6
        assert float((found_nll - nll).abs().max() / nll.abs().max().clamp(min=1)) < 1e-6
        assert float((z - gradient).abs().max()) < bound
        assert z.isfinite().all()


def test_a_row_that_begins_with_excluded_pieces_has_a_finite_nll_and_gradient():
    """As many logits of -inf as a program reads at a time, and more; the smoothed loss is infinite, as it should be."""
    from lightning_tfm.accel.kernels.loss import BLOCK, formula, over_rows

    for excluded in (BLOCK, 2 * BLOCK + 5):
        z = torch.randn(3, 2 * BLOCK + 9, generator=torch.Generator().manual_seed(1))
        z[1, :excluded] = -torch.inf
        y = torch.tensor([0, z.shape[1] - 1, 5])
        weights = smoothing_weights(0.1, z.shape[1], "vocabulary")
        loss, nll, gradient = formula(z.double(), y, *weights)
        found_loss, found_nll = over_rows(z, y, *weights)
        assert found_loss[1] == loss[1] == torch.inf
        assert float((found_loss - loss)[[0, 2]].abs().max()) < 1e-5
        assert float((found_nll - nll).abs().max()) < 1e-5
        assert float((z - gradient).abs().max()) < 1e-6


@pytest.mark.parametrize("smoothing", ["vocabulary", "others"])
def test_loss_and_gradients_are_today_s(smoothing):
    from lightning_tfm.accel.kernels import loss as kernel

    torch.manual_seed(3)
    x, E, y = torch.randn(23, 16, requires_grad=True), torch.randn(37, 16, requires_grad=True), torch.randint(37, (23,))
    exact = [t.detach().double().requires_grad_() for t in (x, E)]
    wanted, wanted_nll = smoothed_nll(*exact, y, 0.1, smoothing)
    found, nll = kernel.smoothed_nll(x, E, y, *smoothing_weights(0.1, 37, smoothing), torch.float32)
    (wanted * 0.37).backward()
    (found * 0.37).backward()
    assert float(abs(found.detach() - wanted.detach()) / wanted.detach()) < 1e-6
    assert float(abs(nll - wanted_nll) / wanted_nll) < 1e-6
    for ours, theirs in zip((x, E), exact, strict=True):
        assert ours.grad.dtype is torch.float32
        assert float((ours.grad - theirs.grad).norm() / theirs.grad.norm()) < 1e-6


def test_a_step_in_bfloat16_has_no_other_products_and_the_gradient_of_one_buffer():
    """Against today's way in bfloat16: both round logits and gradients to 8 bits, at other places."""
    from tests.training.test_precision import Products

    e = Experiment(model=Model(N=1, d_model=16, d_ff=24, h=2, d_k=6, d_v=6), training=Training(seed=5))
    batch, found = ragged(random.Random(4)), []
    for wanted in ("masks", "all"):
        module = TransformerModule(e, 31, select.backend(Hardware(kernels=wanted), "float32", CPU)).train()
        with Products() as products:
            with torch.autocast("cpu", torch.bfloat16):
                loss, _ = module.batch_loss(3, batch)
            loss.backward()
        assert {kind for _, kind in products.seen} == {torch.bfloat16}
        found.append((loss.item(), module.transformer.embedding_WD.grad))
    masks, loss = module.backend.notes
    assert masks == "dropout masks by Triton, the same bits"
    assert re.fullmatch(r"loss by Triton, \de-0[78] from its formula in float32", loss)
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-5)
    assert float((found[1][1] - found[0][1]).norm() / found[0][1].norm()) < 1e-2


def test_a_run_is_computed_by_them_and_says_so(tmp_path):
    """Its scores, by PyTorch's formulas, differ by the weights' rounding from those of a run without kernels."""
    small = {"N": 1, "d_model": 16, "d_ff": 16, "h": 2, "d_k": 4, "d_v": 4}
    changes = {f"model__{name}": value for name, value in small.items()} | {"training__steps": 1}
    e = tiny.experiment(tiny.write_corpus(tmp_path / "corpus", pairs=12), **changes)
    found = {}
    for wanted in ("none", "all"):
        run = tiny.in_child(tiny.train, e, tmp_path / wanted, Hardware(kernels=wanted))
        found[wanted] = json.loads((run / "result.json").read_text())
    assert found["none"]["inexact"] == []
    loss, masks = sorted(found["all"]["inexact"], reverse=True)
    assert loss.startswith("loss by Triton, ") and masks == "dropout masks by Triton, the same bits"
    ppl = [record["scores"]["test"]["ppl"] for record in found.values()]
    assert ppl[1] == pytest.approx(ppl[0], rel=1e-5)
