"""CPU threads: as many as were asked for, asleep while they wait, never thousands."""

import os
import subprocess
import sys

import pytest

from lightning_tfm.config import Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.queue.resources import make_resources
from lightning_tfm.runs.process import threads
from lightning_tfm.runs.process.threads import FAR, asked_threads, check_cores, wait_quietly, waiting

OPTIONS = {
    "workers": 0, "no_shared_files": False, "storage": "", "devices_per_run": 0, "runs_per_device": 0,
    "launcher": "local", "wandb": "off",
    "slurm": {"jobs": 1, "minutes": 60, "cpus": 4, "gpus": 0, "requeues": 0, "stop_seconds": 60, "nodes": 1},
}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "option", "workers", "expected"),
    [
        ("", 0, 0, (8, 1)), ("2", 0, 0, (4, 2)), ("2", 0, 8, (8, 2)), ("2", 4, 0, (2, 4)), ("", 0, 2, (2, 4)),
        ("3,2", 0, 1, (1, 3)),
    ],
)  # fmt: skip
def test_the_environment_is_honoured_where_no_option_says_otherwise(monkeypatch, said, option, workers, expected):
    """`sweep`, `tune` and `work`: workers and threads of each, on eight cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    found = make_resources(OPTIONS | {"workers": workers}, Hardware(accelerator="cpu", threads=option))
    assert (found.workers, found.threads) == expected


def test_what_is_no_number_and_what_is_far_beyond_the_cores_is_refused(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    with pytest.raises(UserError, match="OMP_NUM_THREADS='many'"):
        asked_threads(Hardware())
    assert asked_threads(Hardware(threads=2)) == 2
    monkeypatch.setenv("OMP_NUM_THREADS", str(4 * FAR + 1))
    with pytest.raises(UserError, match="OMP_NUM_THREADS=33: this machine has 4 cores"):
        check_cores(Hardware())
    check_cores(Hardware(threads=4 * FAR, devices=4 * FAR), workers=4 * FAR)


def test_threads_sleep_beside_others_unless_the_user_says_otherwise_or_torch_is_there_already(monkeypatch):
    seen = [2, 3, 2]
    monkeypatch.setattr(threads, "_runnable", lambda pause: seen.pop())
    for name in threads.WAITING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    wait_quietly()
    assert waiting() == "they spin"  # too late to change it
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setenv("GOMP_SPINCOUNT", "100")
    wait_quietly()
    assert waiting() == "GOMP_SPINCOUNT=100"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    wait_quietly()
    assert waiting() == "asleep at once" and not seen
    monkeypatch.delenv("OMP_WAIT_POLICY")
    seen += [2, 1, 3]  # one look that finds the machine free is enough
    wait_quietly()
    assert waiting() == "they spin"


@pytest.mark.parametrize("said", ["", "0.00 0.00 0.00 0/0 0", "?"])
def test_where_others_cannot_be_seen_they_may_be_there(monkeypatch, tmp_path, said):
    file = tmp_path / "loadavg"
    file.write_text(said)
    monkeypatch.setattr(threads, "Path", lambda name: file)
    assert threads.others_work()
    file.unlink()
    assert threads.others_work()
    file.write_text("0.10 0.10 0.10 1/90 7")
    assert not threads.others_work()


def test_the_command_line_sets_it_before_torch_is_there():
    code = "import sys, os; from lightning_tfm.cli.main import main; main(['--version']); "
    code += "assert 'torch' not in sys.modules; print(os.environ['OMP_WAIT_POLICY'])"
    clean = {name: value for name, value in os.environ.items() if name not in threads.WAITING}
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean, check=True)
        finally:
            other.kill()
    assert done.stdout.split()[-1] == "PASSIVE"
