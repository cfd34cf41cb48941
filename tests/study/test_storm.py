"""A whole study in a storm of kills: every run ends exactly once, equal to that of a calm one, and nobody is left.

STORM_RUNS, STORM_WORKERS and STORM_EVERY (seconds between two kills) set its length.
"""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from lightning_tfm.study.claim import Cell
from lightning_tfm.study.folder import RunFolder
from lightning_tfm.study.launch import run_study
from lightning_tfm.study.owner import started
from lightning_tfm.study.worker import Task

RUNS = int(os.environ.get("STORM_RUNS", "200"))
WORKERS = int(os.environ.get("STORM_WORKERS", "8"))
EVERY = float(os.environ.get("STORM_EVERY", "2"))
STEPS = 20
GRACE = 4.0


def cells() -> list[Cell]:
    return [Cell(f"r{i}", 1, f"{i:04d}".ljust(64, "0"), 1.0) for i in range(RUNS)]


def train(task: Task) -> None:
    """A chain of numbers, each from the one before, that goes on from its checkpoint."""
    with (task.folder.root / "pids").open("a") as file:
        file.write(f"{os.getpid()}\n")
    checkpoint = task.folder.checkpoints / "last"
    step, value = map(int, checkpoint.read_text().split()) if checkpoint.exists() else (0, int(task.cell.row[1:]))
    task.attempt.truncate_metrics(step)
    while step < STEPS:
        time.sleep(0.05)
        step, value = step + 1, (value * 1103515245 + 12345) % 2**31
        task.attempt.append_metrics({"step": step, "value": value})
        task.attempt.write(checkpoint, f"{step} {value}".encode())
        task.attempt.write_progress(step, STEPS, 1.0, "train")
    with (task.folder.root / "ended").open("a") as file:
        file.write(f"{task.cell.row}\n")
    task.attempt.write_json(task.folder.result, {"status": "finished", "scores": {"dev": {"ppl": float(value)}}})


def launch(root: Path, storage: str) -> None:
    with (root / "shown").open("a") as stream:
        run_study("storm", cells(), root, train, WORKERS, storage=storage, grace=GRACE, stream=stream)


def workers(launcher: int) -> list[int]:
    path = Path(f"/proc/{launcher}/task/{launcher}/children")
    return [int(pid) for pid in path.read_text().split() if started(int(pid))] if path.exists() else []


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["journal", "postgres"])
def test_a_storm_of_kills_changes_nothing(tmp_path: Path, forks, kind: str, request: pytest.FixtureRequest) -> None:
    storage = request.getfixturevalue("postgres").url if kind == "postgres" else ""
    dice = random.Random(1)
    launcher = forks.start(lambda: launch(tmp_path, storage))
    kills, stopped, woken = 0, [], False
    began = time.monotonic()
    while started(launcher):
        time.sleep(EVERY)
        victims = [pid for pid in workers(launcher) if pid not in stopped]
        if not victims:
            continue
        victim = dice.choice(victims)
        if kills == 3:
            forks.kill(launcher)
            launcher = forks.start(lambda: launch(tmp_path, storage))
        elif kills == 6:
            stopped = [victim, *workers(victim)]
            since = time.monotonic()
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
        else:
            os.kill(victim, signal.SIGKILL)
        kills += 1
        if stopped and not woken and time.monotonic() - since > 2 * GRACE:
            woken = True
            for pid in reversed(stopped):
                if started(pid):
                    os.kill(pid, signal.SIGCONT)
    assert forks.join(launcher) == 0
    print(f"{kind}: {RUNS} runs, {kills} kills, {time.monotonic() - began:.0f} s")
    assert woken or RUNS < 200
    ended = Counter((tmp_path / "ended").read_text().split())
    assert set(ended) == {cell.row for cell in cells()}
    for cell in cells():
        folder, value = RunFolder(tmp_path, cell.training_hash), int(cell.row[1:])
        expected = []
        for step in range(1, STEPS + 1):
            value = (value * 1103515245 + 12345) % 2**31
            expected.append({"step": step, "value": value})
        assert folder.read_metrics() == expected
        result = folder.read_result()
        assert result is not None and result["scores"]["dev"]["ppl"] == value
    final = run_study("storm", cells(), tmp_path, train, storage=storage, stream=(tmp_path / "again").open("w"))
    assert {state.state for state in final} == {"done"} and len(final) == RUNS
    assert not [pid for pid in map(int, (tmp_path / "pids").read_text().split()) if started(pid)]
