"""Which devices a slot gets."""

import pytest

from lightning_tfm.errors import UserError
from lightning_tfm.queue import devices, launch
from lightning_tfm.queue.devices import Devices, find_devices, how_shared, visible_gpus
from lightning_tfm.queue.resources import Resources
from tests.helpers.launching import ablation


def test_eight_gpus_by_two_run_four_at_once_on_disjoint_ones(monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    found = find_devices(True, 1, 2, 1)
    assert len(found) == 4 and [found.of(slot) for slot in range(4)] == [
        list("01"),
        list("23"),
        list("45"),
        list("67"),
    ]
    found.assign(2)
    assert visible_gpus() == ["4", "5"]


def test_three_small_runs_share_a_device() -> None:
    found = Devices(["0", "1"], True, 1, 3)
    assert len(found) == 6 and [found.of(slot) for slot in range(6)] == [["0"]] * 3 + [["1"]] * 3


def test_runs_that_share_a_gpu_are_clients_of_a_daemon_that_runs(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setattr(devices, "USUAL_MPS", tmp_path)
    assert how_shared().startswith("runs that share a GPU take turns on it: no MPS is running")
    (tmp_path / "control").touch()
    assert how_shared() == f"runs that share a GPU are clients of the MPS at {tmp_path}"
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/somebody/elses")
    assert how_shared() == "runs that share a GPU are clients of the MPS at /somebody/elses"


@pytest.mark.parametrize(("gpu", "runs"), [(True, 8), (True, 1), (False, 8)])
def test_a_study_says_how_its_runs_share_a_gpu(gpu, runs, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(launch, "run_study", lambda job, cells, start: [])
    launch.work(ablation("shared"), [], tmp_path, Resources(devices=Devices(["0"], gpu, 1, runs)))
    assert ("runs that share a GPU" in capsys.readouterr().err) == (gpu and runs > 1)


def test_too_many_are_refused(monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UserError, match="needs 2 GPUs, this machine has 1"):
        find_devices(True, 1, 2, 1)
    with pytest.raises(UserError, match="several runs to a device"):
        find_devices(True, 1, 2, 2)
