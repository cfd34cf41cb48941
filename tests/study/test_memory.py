"""What training takes of memory is said, or refused, before anything is allocated."""

from dataclasses import replace

import pytest

from lightning_tfm.config import Experiment, Hardware, Model
from lightning_tfm.errors import UserError
from lightning_tfm.model.size import count_parameters
from lightning_tfm.study import memory
from lightning_tfm.study.memory import check_memory, check_on_cpu, needed

V, CPU = 1000, Hardware(accelerator="cpu", micro_tokens=1000)


def test_what_is_scarce_is_said_with_its_parts_and_what_is_free(monkeypatch) -> None:
    numbers = count_parameters(Model(), V)["total"]
    monkeypatch.setattr(memory, "installed", lambda: 64 * 2**30)
    monkeypatch.setattr(memory, "free", lambda: 17 * numbers)
    said = check_on_cpu(Experiment(), V, CPU, "base")
    parts = [f"{numbers:,} parameters take about {8 * numbers / 2**30:.1f} GiB with their gradients"]
    parts += [f"{8 * numbers / 2**30:.1f} GiB in the optimiser", f"{17 * numbers / 2**30:.1f} GiB of memory are free"]
    assert all(part in said for part in parts), said
    assert "in each of 2 processes" in check_on_cpu(Experiment(), V, replace(CPU, devices=2), "base")
    monkeypatch.setattr(memory, "free", lambda: 64 * 2**30)
    assert check_on_cpu(Experiment(), V, CPU, "base") == ""


def test_a_model_that_only_adam_makes_too_large_is_refused(monkeypatch) -> None:
    numbers = count_parameters(Model(), 37000)["total"]
    monkeypatch.setattr(memory, "installed", lambda: 15 * numbers)
    check_memory(Experiment(), "base")  # a GPU may hold it
    with pytest.raises(UserError, match=f"base: a model of {numbers:,} parameters takes .* for its weights, gradients"):
        check_on_cpu(Experiment(), 37000, CPU, "base")


def test_activations_grow_with_the_micro_batch_and_the_vocabulary() -> None:
    one = needed(Experiment(), V, CPU)
    assert needed(Experiment(), V, replace(CPU, micro_tokens=2000)).activations == 2 * one.activations
    assert needed(Experiment(), V + 10, CPU).activations == one.activations + 4 * 1000 * 30
    assert needed(Experiment(), V, replace(CPU, micro_tokens=0, devices=2)).activations > one.activations


def test_what_is_free_is_what_the_kernel_says(tmp_path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       100 kB\nMemAvailable:       7 kB\n")
    assert memory.free(tmp_path / "meminfo") == 7 * 1024
    assert 0 < memory.free() <= memory.installed()
