"""Label smoothing against torch's cross entropy, and its gradient."""

import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional as F

from lightning_tfm.training import loss as loss_module
from lightning_tfm.training.evaluate import Line, perplexity
from lightning_tfm.training.loss import smoothed_nll, token_nll
from lightning_tfm.training.pending_losses import NotFinite

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


@pytest.mark.parametrize("smoothing", ["vocabulary", "others"])
def test_gradcheck(smoothing):
    x, E, y = inputs()
    assert gradcheck(lambda x, E: smoothed_nll(x, E, y, 0.1, smoothing)[0], (x, E))


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
