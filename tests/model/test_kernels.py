"""Kernels: equal to their formulas in Triton's interpreter; on a CPU nobody meets them."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from lightning_tfm.accel import kernels, on_gpu, select
from lightning_tfm.cli.main import main
from lightning_tfm.config import Hardware, Model
from lightning_tfm.errors import UserError
from lightning_tfm.queue.resources import check_accelerator
from lightning_tfm.training.backend import Backend
from lightning_tfm.training.masks import SentenceMasks

CPU = torch.device("cpu")
WITH_TRITON = pytest.mark.skipif(not kernels.has_triton(), reason="NOT TESTED: Triton is not installed")


def broken(*_):
    raise RuntimeError("Failed to find C compiler")


@pytest.mark.long
def test_they_equal_their_formulas_in_the_interpreter():
    if not kernels.has_triton():
        pytest.skip("THE KERNELS WERE NOT TESTED: Triton is not installed (pip install --no-deps triton)")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/model/interpreted.py"]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_on_a_cpu_numpy_draws_and_triton_is_not_imported(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    formula, backend = SentenceMasks(Model(N=1, d_model=16), 1), select.backend(Hardware(), "float32", CPU)
    assert backend.loss is Backend().loss and backend.masks(formula, CPU) == formula.between


@pytest.mark.parametrize(("triton", "wanted", "remedy"), [(False, "auto", "triton"), (True, "none", "kernels auto")])
def test_masks_that_a_gpu_waits_for_are_said(monkeypatch, capsys, triton, wanted, remedy):
    monkeypatch.setattr(kernels, "has_triton", lambda: triton)
    formula, gpu = SentenceMasks(Model(N=1, d_model=16), 1), torch.device("cuda:0")
    assert select.backend(Hardware(kernels=wanted), "float32", gpu).masks(formula, gpu) == formula.between
    assert "cuda:0 waits for them" in (said := capsys.readouterr().err) and remedy in said


def test_kernels_that_do_not_run_here_are_refused_not_replaced(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(UserError, match=r"trainer\.kernels=all needs a GPU beside Triton, and this run is on cpu"):
        select.backend(Hardware(kernels="all"), "float32", CPU)
    with pytest.raises(UserError, match=r"trainer\.accelerator=cpu takes none"):
        check_accelerator(Hardware(kernels="all", accelerator="cpu"))
    monkeypatch.setattr("lightning_tfm.queue.resources.visible_gpus", lambda: [])
    monkeypatch.setattr("lightning_tfm.queue.resources.FOREIGN_GPUS", ())
    with pytest.raises(UserError, match=r"trainer\.kernels=all needs a GPU, and this machine has none"):
        check_accelerator(Hardware(kernels="all"))
    with pytest.raises(UserError, match=r"training\.precision=tfloat32 needs an NVIDIA GPU.* this machine has none"):
        check_accelerator(Hardware(), "tfloat32")
    check_accelerator(Hardware(accelerator="cpu"))


@WITH_TRITON
def test_a_loss_kernel_that_does_not_run_or_is_wrong_is_refused_with_the_flag_to_give(monkeypatch):
    from lightning_tfm.accel.kernels import loss

    def wrong(z, y, q_y, b):
        found, nll, gradient = loss.formula(z.clone(), y, q_y, b)
        z.copy_(gradient)
        return 1.0001 * found, nll

    monkeypatch.setattr(kernels, "runs_on", lambda device: True)
    for way, said in ((wrong, "is 1.0e-04 from its formula"), (broken, "does not run .RuntimeError: Failed to find C")):
        monkeypatch.setattr(loss, "over_rows", way)
        for wanted in ("auto", "all"):
            with pytest.raises(UserError, match=said + ".*--trainer.kernels masks"):
                select.backend(Hardware(kernels=wanted), "float32", CPU)
        select.backend(Hardware(kernels="masks"), "float32", CPU)


@WITH_TRITON
def test_masks_whose_kernel_does_not_run_are_numpys_the_same_bits_and_that_is_said(monkeypatch, capsys):
    from lightning_tfm.accel.kernels import masks

    monkeypatch.setattr(kernels, "runs_on", lambda device: True)
    monkeypatch.setattr(masks, "masks", broken)
    formula, backend = (
        SentenceMasks(Model(N=1, d_model=16), 1),
        select.backend(Hardware(kernels="masks"), "float32", CPU),
    )
    assert backend.masks(formula, CPU) == formula.between and backend.notes == ()
    assert "the masks' kernel does not run on cpu (RuntimeError: Failed to find C compiler)" in capsys.readouterr().err


def test_doctor_says_what_kernels_give_on_a_gpu_and_what_was_never_tested(monkeypatch, capsys):
    """A device that is told of and is not there: nothing runs on it, and each line has its remedy."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "NVIDIA H100")
    monkeypatch.setattr(torch.cuda, "nccl", SimpleNamespace(version=lambda: (2, 27, 5)))
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(kernels, "has_triton", lambda: True)
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^gpus +NVIDIA H100$", said, re.MULTILINE)
    assert re.search(r"^kernels on 0 +dropout masks by NumPy, the same bits: \w+: ", said, re.MULTILINE)
    assert re.search(r"loss that Triton's kernel computes on cuda:0 does not run \(.*--trainer.kernels masks", said)
    assert re.search(r"^MPS +runs that share a GPU take turns on it: no MPS is running", said, re.MULTILINE)
    assert re.search(r"^NCCL +2\.27\.5; this program has not been tested on several GPUs", said, re.MULTILINE)
    monkeypatch.setattr(on_gpu, "loss_apart", lambda device: 9.4e-7)
    monkeypatch.setattr(on_gpu, "DeviceMasks", lambda formula, device: None)
    assert on_gpu.kernel_errors(torch.device("cuda")) == [
        "dropout masks: NumPy's in every bit",
        "loss: 9e-07 from its formula in float32",
    ]
    monkeypatch.setattr(kernels, "has_triton", lambda: False)
    assert on_gpu.kernel_errors(torch.device("cuda"))[0].startswith("none: pip install triton")
