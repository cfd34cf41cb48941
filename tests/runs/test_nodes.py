"""Runs over several nodes of a SLURM job: the options, and a study on a real SLURM whose two nodes are this machine."""

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.config import Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.queue.launch import job_arguments
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.resources import make_resources
from lightning_tfm.queue.slurm import Slurm
from lightning_tfm.queue.storage import find_storage
from lightning_tfm.runs import further_node, nodes
from lightning_tfm.watch.study_state import CellState
from tests.calling import Call
from tests.cluster import NoSlurm, slurm
from tests.family import offspring
from tests.queue.test_slurm import SLOW, TINY
from tests.tiny import metrics, write_corpus
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
STEPS = 120
SWEEP = """name: nodes
method: grid
parameters:
  row: {values: [base]}
  seed: {values: [1, 2]}
command: [lightning-tfm, fit, "${args}"]
"""


def resources(hardware: Hardware, launcher: str = "slurm", workers: int = 0, runs: int = 0, **asked: int):
    options = {"workers": workers, "no_shared_files": False, "storage": "", "devices_per_run": 0, "wandb": "off"}
    options |= {"runs_per_device": runs, "launcher": launcher, "slurm": vars(Slurm(**asked))}
    return make_resources(options, hardware)


def test_nodes_of_a_job_are_those_of_its_runs() -> None:
    made = resources(Hardware(accelerator="cpu", devices=2), nodes=3, cpus=8)
    assert (made.workers, made.hardware.num_nodes, made.hardware.devices) == (1, 3, 2)
    assert resources(Hardware(accelerator="cpu", num_nodes=2), nodes=2).hardware.num_nodes == 2


def test_workers_of_a_job_are_those_of_its_gpus() -> None:
    gpu = Hardware(accelerator="gpu")
    assert resources(gpu, gpus=4, cpus=8).workers == 4
    assert resources(replace(gpu, devices=2), gpus=4).workers == 2
    shared = resources(gpu, gpus=2, runs=8)
    assert (shared.workers, shared.devices) == (16, None), "the job finds its devices"
    arguments = job_arguments(Path("results"), shared)
    assert arguments[arguments.index("--runs-per-device") + 1] == "8" and "--trainer.accelerator=gpu" in arguments


@pytest.mark.parametrize(
    "hardware, options, why",
    [
        (Hardware(), {"nodes": 0}, "--slurm.nodes=0: must be at least 1"),
        (Hardware(), {"nodes": 2, "launcher": "local"}, "--slurm.nodes=2 needs --launcher slurm"),
        (Hardware(num_nodes=2), {"nodes": 1}, "give --slurm.nodes=2"),
        (Hardware(), {"nodes": 2, "workers": 3}, "--workers=3: a run over 2 nodes takes all of them"),
        (Hardware(num_nodes=2), {"launcher": "local"}, "needs a SLURM job"),
        (Hardware(), {"nodes": 2, "runs": 2}, "--runs-per-device=2: a run over 2 nodes does not share its devices"),
        (Hardware(devices=2), {"gpus": 2, "runs": 2}, "several devices to a run, or several runs to a device"),
    ],
)
def test_nodes_that_cannot_be(hardware: Hardware, options: dict, why: str, monkeypatch) -> None:
    monkeypatch.delenv("SLURM_JOB_NUM_NODES", raising=False)
    with pytest.raises(UserError, match=why):
        resources(hardware, **options)


def test_a_job_of_another_size_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "3")
    with pytest.raises(UserError, match="this SLURM job has 3"):
        nodes.check_allocation(2)


def test_a_node_that_does_not_see_the_run_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    read, write = os.pipe()  # what srun holds open for as long as the first node lives

    def action() -> int:
        os.dup2(read, 0)
        return further_node.main(str(tmp_path / "nodes.json"))

    said = Call(action).wait()
    assert said.code == 2 and "node 1: " in said.err and "see the same files" in said.err
    os.close(read)
    os.close(write)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, str]]:
    try:
        with slurm(tmp_path / "slurm", nodes=2) as environment:
            yield environment
    except NoSlurm as why:
        warnings.warn(f"NOT TESTED, no SLURM could be started: {why}", stacklevel=1)
        pytest.skip(f"no SLURM: {why}")


def others(run: Path) -> list[int]:
    """Processes of the second node that work on a run, its rank last."""
    plan, found = str(run / nodes.PLAN).encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):  # gone in this moment
            continue
        if plan in words and words[0] != b"srun":
            found.append(int(entry.name))
    return sorted(found, key=lambda pid: bool(offspring(pid)), reverse=True)


def states(folder: Path) -> list[CellState]:
    if not (folder / "journal.log").exists():
        return []
    return Queue("nodes", find_storage("", folder), lambda text: None, create=False).states()


@pytest.mark.alone
@pytest.mark.long
@pytest.mark.timeout(600)
def test_runs_over_two_nodes_are_those_of_two_processes_and_outlive_a_death_on_either(tmp_path: Path, cluster) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "nodes.yaml").write_text(SWEEP)
    text, here, there = write_corpus(tmp_path / "text", longest=22), tmp_path / "here", tmp_path / "there"
    environment = cluster | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "COLUMNS": "80"}

    def command(out: Path, *more: str) -> list[str]:
        settings = TINY | {"training.steps": STEPS, "data.folder": str(text), "out": str(out), "workers": 1}
        options = [f"--{key}={value}" for key, value in settings.items()]
        return [sys.executable, "-m", "lightning_tfm.cli.main", "sweep", str(tmp_path / "nodes.yaml"), *options, *more]

    done = subprocess.run(
        command(here, "--trainer.devices=2"), cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown, study = tmp_path / "shown", there / "studies" / "nodes"

    def said() -> str:
        paths = [shown, *study.glob("slurm/*_log.*"), *there.glob("runs/*/log.txt")]
        return "\n".join(path.read_text() for path in paths)

    hurt: list[Path] = []

    def at_work() -> bool:
        """Whether a run that was not hurt yet has a checkpoint; it is the last of `hurt` then."""
        assert launcher.poll() is None, said()
        for state in states(study):
            run = there / "runs" / state.cell.training_hash[:16]
            if state.owner is not None and run not in hurt and list(run.glob("checkpoints/step-*.ckpt")):
                hurt.append(run)
                return True
        return False

    with shown.open("w") as file:
        asked = command(there, "--launcher=slurm", "--slurm.nodes=2", "--slurm.minutes=9")
        launcher = subprocess.Popen(asked, cwd=tmp_path, env=environment, stdout=file, stderr=file)
    try:
        wait_for(at_work, 120, said, pause=0.1)  # the second node's rank is killed
        first, rank = others(hurt[0])
        os.kill(rank, signal.SIGKILL)
        wait_for(lambda: first not in others(hurt[0]), 30, said, pause=0.1)
        wait_for(at_work, 120, said, pause=0.1)  # the run's process on the first node is killed
        seen = others(hurt[1])
        worker = next(state.owner.pid for state in states(study) if state.owner is not None)
        (process,) = offspring(worker)
        os.kill(process, signal.SIGKILL)
        wait_for(lambda: not set(seen) & set(others(hurt[1])), 30, said, pause=0.1)
        assert launcher.wait(300) == 0, said()
    finally:
        if launcher.poll() is None:
            launcher.terminate()
            launcher.wait()
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        subprocess.run(["scancel", "--user", user], env=environment)
    assert [(state.state, state.attempt) for state in states(study)] == [("done", 2), ("done", 2)]
    names = sorted(path.name for path in here.glob("runs/*"))
    assert names == sorted(path.name for path in there.glob("runs/*")) and len(names) == 2
    for name in names:
        one, two = here / "runs" / name, there / "runs" / name
        results = [json.loads((run / "result.json").read_text()) for run in (one, two)]
        assert results[0]["scores"]["dev"]["ppl"] == results[1]["scores"]["dev"]["ppl"]
        assert metrics(one) == metrics(two)
        trainer = results[1]["hardware"]["trainer"]
        assert (trainer["devices"], trainer["num_nodes"], results[1]["hardware"]["processes"]) == (1, 2, 2)
        assert not others(two), "nothing is left running"
