"""One attempt at a run: claim its directory, train in a process of its own, say how it ended."""

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from lightning_tfm.config import Hardware, to_dict
from lightning_tfm.errors import UserError
from lightning_tfm.runs import torchrun
from lightning_tfm.runs.directory import Attempt, RunFolder, RunIsOwned, StaleAttempt
from lightning_tfm.runs.nodes import train_on_nodes
from lightning_tfm.runs.outcome import EXIT_CODES, exit_code_of, name_of, say
from lightning_tfm.runs.processes import exit_on_signals, let_come, set_threads
from lightning_tfm.runs.ranks import fork_ranks
from lightning_tfm.study.cell import Cell, Plan


@dataclass(frozen=True)
class Task:
    """What a run is given: `train(task)` computes the cell and writes result.json through `attempt`."""

    cell: Cell
    folder: RunFolder
    attempt: Attempt
    threads: int
    slot: int
    """0, 1, … on this machine: workers that run at once have different slots"""


Train = Callable[[Task], None]


class Places(Protocol):
    """The devices of this machine, by slot (queue/devices.py)."""

    def settle(self, slot: int) -> None: ...


def make_train(
    plans: Mapping[str, Plan] | Callable[[Cell], Plan], hardware: Hardware, root: Path, places: Places | None = None
) -> Train:
    """The `train(task)` of a launcher. `plans` gives the plan of a cell, or holds it by its training hash."""
    from lightning_tfm.runs.train import Run  # with torch: once, before any child is forked, not in each of them

    find = plans if callable(plans) else lambda cell: plans[cell.training_hash]

    def train(task: Task) -> None:
        experiment, identity = find(task.cell)
        threads = task.threads or hardware.threads
        if places is not None:
            places.settle(task.slot)
        task.attempt.write_json(task.folder.identity, identity)
        task.attempt.write_json(task.folder.experiment, to_dict(experiment))
        task.attempt.write_json(task.folder.cell, {"row": task.cell.row, "seed": task.cell.seed})
        run = Run(experiment, replace(hardware, threads=threads), task.attempt, root)
        spawn = hardware.accelerator == "gpu"
        if torchrun.started_us():
            run.train()
        elif hardware.num_nodes > 1:
            train_on_nodes(run, spawn)
        elif hardware.devices == 1:
            run.train()
        else:
            fork_ranks(run.train, hardware.devices, threads, spawn)

    return train


def run_child(train: Train, cell: Cell, folder: RunFolder, threads: int, slot: int) -> int:
    """Body of a run's process; returns its exit code. What it prints goes to the run's log."""
    exit_on_signals()
    folder.path.mkdir(parents=True, exist_ok=True)
    log = os.open(folder.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    # fresh objects: those of the launcher draw on a terminal
    sys.stdout = open(1, "w", buffering=1, closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    let_come()
    set_threads(threads)
    return attempt_run(train, cell, folder, threads, slot)


def attempt_run(train: Train, cell: Cell, folder: RunFolder, threads: int = 0, slot: int = 0) -> int:
    """Claim the run, train unless it is finished, and leave outcome.json; returns the exit code (EXIT_CODES)."""
    try:
        attempt = folder.claim()
    except RunIsOwned as error:
        print(error, file=sys.stderr)
        return EXIT_CODES["owned"]
    try:
        folder.outcome.unlink(missing_ok=True)
        try:
            if not folder.finished():
                train(Task(cell, folder, attempt, threads, slot))
            if not folder.finished():
                raise UserError(f"{folder.path}: training ended without result.json")
            code = 0
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            code = _leave_outcome(attempt, error)
        attempt.release()
    except StaleAttempt as error:
        print(error, file=sys.stderr)
        return EXIT_CODES["stale"]
    return code


def _leave_outcome(attempt: Attempt, error: BaseException) -> int:
    """Write how the run ended and return the exit code that says the same. Raises StaleAttempt."""
    if isinstance(error, StaleAttempt):
        raise error
    outcome = name_of(error)
    if outcome not in ("interrupted", "pruned"):
        traceback.print_exc()
    progress = attempt.folder.read_progress()
    step = getattr(error, "step", None) or (progress["step"] if progress else None)
    try:
        named = "failed" if outcome == "refused" else outcome
        attempt.write_outcome(named, say(error), step)
    except OSError as full:  # the exit code still says it
        print(f"outcome.json could not be written: {full}", file=sys.stderr)
    if outcome == "interrupted":
        return exit_code_of(error) or EXIT_CODES["failed"]
    return EXIT_CODES[outcome]
