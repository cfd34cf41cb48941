"""A service for each shared GPU, by a program that stands in for NVIDIA's."""

import os
import subprocess
from pathlib import Path

import pytest

from lightning_tfm.queue import launch, mps
from lightning_tfm.queue.devices import Devices
from lightning_tfm.queue.resources import Resources
from tests.launching import ablation
from tests.waiting import wait_for

SHARED = Devices(["2", "GPU-5f", "7"], True, 1, 8)

PROGRAM = """#!/bin/sh
if [ "$1" = -d ]; then
    [ "$CUDA_VISIBLE_DEVICES" = "$REFUSED" ] && { echo "An instance of this daemon is already running"; exit 1; }
    echo "$CUDA_VISIBLE_DEVICES" > "$CUDA_MPS_LOG_DIRECTORY/control.log"
    sleep 600 &
    echo $! > "$CUDA_MPS_PIPE_DIRECTORY/pid"
else
    read word && [ "$word" = quit ] && kill "$(cat "$CUDA_MPS_PIPE_DIRECTORY/pid")" || { echo "no daemon"; exit 1; }
fi
"""


@pytest.fixture
def said(monkeypatch, tmp_path):
    """What is said; the program is the only one of its name, and no other service is here."""
    program = tmp_path / "bin" / mps.CONTROL
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("REFUSED", "none")
    monkeypatch.delenv(mps.PIPES, raising=False)
    monkeypatch.setattr(mps, "HOME", tmp_path / "tmp")
    monkeypatch.setattr(mps, "USUAL", tmp_path / "tmp" / "nvidia-mps")
    return []


def alive(pid: str) -> bool:
    path = Path("/proc", pid.strip(), "stat")
    try:
        return path.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_each_device_that_workers_use_has_its_own_as_long_as_they_run(said, tmp_path, monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", mps.PIPES, mps.LOGS):
        monkeypatch.setenv(name, "before")
    monkeypatch.delenv(mps.PIPES)
    with mps.served(SHARED, 12, tmp_path / "study", said.append) as devices:
        pipes = [devices.clients[name][mps.PIPES] for name in ("2", "GPU-5f")]
        pids = [Path(one, "pid").read_text() for one in pipes]
        assert all(map(alive, pids)) and len(set(pids)) == 2 and "7" not in devices.clients
        assert (tmp_path / "study/mps/GPU-5f/control.log").read_text() == "GPU-5f\n"
        devices.assign(3)
        assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ[mps.PIPES]) == ("0", pipes[0])
        devices.assign(9)
        assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ[mps.PIPES]) == ("GPU-5f", pipes[1])
        monkeypatch.delenv(mps.PIPES)
    wait_for(lambda: not any(map(alive, pids)))
    assert said == []
    assert not list((tmp_path / "tmp").glob("lightning-tfm-mps-*/*"))


def test_a_study_s_runs_are_clients(said, tmp_path, monkeypatch):
    seen = []

    def run_study(job, cells, start):
        seen.append(job.training.devices.clients["7"][mps.PIPES])
        return []

    monkeypatch.setattr(launch, "run_study", run_study)
    resources = Resources(workers=4, devices=Devices(["7"], True, 1, 4))
    launch.work(ablation("shared"), [], tmp_path, resources)
    assert len(seen) == 1 and not Path(seen[0]).exists()


def test_a_device_that_refuses_is_shared_by_turns_and_that_is_said(said, tmp_path, monkeypatch):
    monkeypatch.setenv("REFUSED", "2")
    with mps.served(SHARED, 16, tmp_path, said.append) as devices:
        assert list(devices.clients) == ["GPU-5f"]
    why = "An instance of this daemon is already running"
    assert said == [f"runs that share GPU 2 take turns on it, as its MPS did not start: {why}"]


def test_where_there_is_nothing_to_start_nothing_is(said, tmp_path, monkeypatch):
    for alone in (None, Devices(["0"], True, 1, 1), Devices(["0"], False, 1, 8)):
        with mps.served(alone, 8, tmp_path, said.append) as devices:
            assert devices is alone
    assert said == []
    monkeypatch.setenv(mps.PIPES, "/somebody/elses")
    with mps.served(SHARED, 8, tmp_path, said.append) as devices:
        assert devices is SHARED
    monkeypatch.delenv(mps.PIPES)
    monkeypatch.setenv("PATH", "/nowhere")
    with mps.served(SHARED, 8, tmp_path, said.append) as devices:
        assert devices is SHARED
    assert said == [
        "runs that share a GPU are clients of the MPS at /somebody/elses",
        "runs that share a GPU take turns on it: nvidia-cuda-mps-control, which comes with NVIDIA's driver, "
        "is not installed",
    ]


def test_the_next_launcher_stops_what_a_killed_one_left(said, tmp_path):
    base = tmp_path / "tmp" / f"lightning-tfm-mps-{os.getuid()}"
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = mps.Daemon("0", base / str(gone.pid) / "0", tmp_path)
    assert left.start() == ""
    pid = (left.pipes / "pid").read_text()
    with mps.served(SHARED, 1, tmp_path, said.append):
        pass
    assert said == ["an MPS that a killed launcher had left running was stopped"]
    assert not left.pipes.exists()
    wait_for(lambda: not alive(pid))


def test_one_that_does_not_end_is_named_with_what_to_do(said, tmp_path):
    with mps.served(SHARED, 1, tmp_path, said.append) as devices:
        pipes = Path(devices.clients["2"][mps.PIPES])
        pid = (pipes / "pid").read_text()
        (pipes / "pid").unlink()
    os.kill(int(pid), 9)
    assert len(said) == 1 and said[0].startswith("the MPS of GPU 2 still runs (")
    assert said[0].endswith(f"echo quit | {mps.PIPES}={pipes} {mps.CONTROL}")
