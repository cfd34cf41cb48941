"""Kernels: equal to their formulas in Triton's interpreter; on a CPU nobody meets them."""

import os
import subprocess
import sys

import pytest
import torch

from lightning_tfm.accel import choose, kernels
from lightning_tfm.config import Hardware, Model
from lightning_tfm.errors import UserError
from lightning_tfm.queue.devices import check_accelerator
from lightning_tfm.training.backend import Backend
from lightning_tfm.training.dropout_masks import SentenceMasks

CPU = torch.device("cpu")


@pytest.mark.long
def test_they_equal_their_formulas_in_the_interpreter():
    if not kernels.has_triton():
        pytest.skip("THE KERNELS WERE NOT TESTED: Triton is not installed (pip install --no-deps triton)")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/model/interpreted.py"]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_on_a_cpu_numpy_draws_and_triton_is_not_imported(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    formula, backend = SentenceMasks(Model(N=1, d_model=16), 1), choose.backend(Hardware(), "float32", CPU)
    assert type(backend) is Backend and backend.masks(formula, CPU) is formula


@pytest.mark.parametrize(("triton", "wanted", "remedy"), [(False, "masks", "triton"), (True, "none", "kernels masks")])
def test_masks_that_a_gpu_waits_for_are_said(monkeypatch, capsys, triton, wanted, remedy):
    monkeypatch.setattr(kernels, "has_triton", lambda: triton)
    formula, gpu = SentenceMasks(Model(N=1, d_model=16), 1), torch.device("cuda:0")
    assert choose.backend(Hardware(kernels=wanted), "float32", gpu).masks(formula, gpu) is formula
    assert "cuda:0 waits for them" in (said := capsys.readouterr().err) and remedy in said


def test_kernels_that_do_not_run_here_are_refused_not_replaced(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(UserError, match=r"trainer\.kernels=all needs a GPU beside Triton, and this run is on cpu"):
        choose.backend(Hardware(kernels="all"), "float32", CPU)
    with pytest.raises(UserError, match=r"trainer\.accelerator=cpu takes none"):
        check_accelerator(Hardware(kernels="all", accelerator="cpu"))
    monkeypatch.setattr("lightning_tfm.queue.devices.visible_gpus", lambda: [])
    monkeypatch.setattr("lightning_tfm.queue.devices.FOREIGN_GPUS", ())
    with pytest.raises(UserError, match=r"trainer\.kernels=all needs a GPU, and this machine has none"):
        check_accelerator(Hardware(kernels="all"))
    with pytest.raises(UserError, match=r"training\.precision=tfloat32 needs an NVIDIA GPU.* this machine has none"):
        check_accelerator(Hardware(), "tfloat32")
    check_accelerator(Hardware(accelerator="cpu"))
