"""Which devices a slot gets."""

import pytest

from lightning_tfm.errors import UserError
from lightning_tfm.queue.devices import Devices, find_devices, visible_gpus


def test_eight_gpus_by_two_run_four_at_once_on_disjoint_ones(monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    devices = find_devices(True, 1, 2, 1)
    assert len(devices) == 4 and [devices.of(slot) for slot in range(4)] == [
        list("01"),
        list("23"),
        list("45"),
        list("67"),
    ]
    devices.assign(2)
    assert visible_gpus() == ["4", "5"]


def test_three_small_runs_share_a_device() -> None:
    devices = Devices(["0", "1"], True, 1, 3)
    assert len(devices) == 6 and [devices.of(slot) for slot in range(6)] == [["0"]] * 3 + [["1"]] * 3


def test_too_many_are_refused(monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UserError, match="needs 2 GPUs, this machine has 1"):
        find_devices(True, 1, 2, 1)
    with pytest.raises(UserError, match="several runs to a device"):
        find_devices(True, 1, 2, 2)
