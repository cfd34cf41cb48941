"""Weights in a run's folder: those from which it resumes, with all the snapshots that its average will need, and those
of exactly the steps that its experiment requires to be scored. What is missing or damaged is named.
"""

import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from lightning_tfm.atomic_io import TEMPORARY
from lightning_tfm.config import Experiment
from lightning_tfm.errors import UserError
from lightning_tfm.runs.folder import Attempt, RunFolder
from lightning_tfm.sums import DamagedFile
from lightning_tfm.training.schedule import EventSchedule
from lightning_tfm.training.weight_files import checkpoint_file, checkpoint_files, load, snapshot_file, step_of, verify

ASIDE = ".damaged"
"""suffix of a damaged checkpoint that was skipped"""


@dataclass
class Start:
    """Where a run resumes."""

    checkpoint: Path | None = None
    """None: from the beginning"""
    step: int = 0
    """the last step that is not repeated"""
    damaged: list[Path] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """lines for whoever reads the run's log"""

    def settle(self, attempt: Attempt) -> None:
        """What one process does before the run resumes: move damaged and half-written files out of the way."""
        for line in self.remarks:
            print(line, file=sys.stderr, flush=True)
        with attempt.guard():
            for path in self.damaged:
                os.replace(path, path.with_suffix(ASIDE))
            for path in attempt.folder.path.rglob(f".*{TEMPORARY}"):
                path.unlink(missing_ok=True)
        attempt.truncate_metrics(self.step)


def find_start(folder: RunFolder, events: EventSchedule) -> Start:
    """The newest intact checkpoint whose snapshots are also intact; every rank finds the same one.

    Raises UserError if there are checkpoints but none is usable: starting over is for the user to decide.
    """
    start, files = Start(), checkpoint_files(folder.checkpoints)
    for path in reversed(files):
        try:
            old = not verify(path, folder.training_hash)
        except DamagedFile as error:
            start.damaged.append(path)
            start.remarks.append(str(error))
            continue
        missing = _wanting(folder, events, step_of(path))
        if not missing:
            start.checkpoint, start.step = path, step_of(path)
            if old:
                start.remarks.append(f"{path}: written before checkpoints had checksums; accepted unverified")
            if path != files[-1]:
                start.remarks.append(f"resuming from {path} instead")
            return start
        start.remarks += [f"{path} needs a snapshot: {why}" for why in missing]
    if files:
        reasons = "; ".join(dict.fromkeys(start.remarks))
        remove = shlex.join(["lightning-tfm", "runs", "remove", folder.path.name, "--force", "--out", str(folder.root)])
        raise UserError(
            f"the run cannot continue: {reasons}. Put intact files back, or train it from the beginning: "
            f"{remove}, then the same command again"
        )
    return start


def _wanting(folder: RunFolder, events: EventSchedule, step: int) -> list[str]:
    """What is wrong with the snapshots up to `step`."""
    missing = []
    for wanted in (s for s in events.snapshot_steps() if s <= step):
        try:
            verify(snapshot_file(folder.snapshots, wanted), folder.training_hash)
        except DamagedFile as error:
            missing.append(str(error))
    return missing


# --- to be scored ---


def weights_to_score(folder: RunFolder, e: Experiment) -> dict[str, Tensor]:
    """Those that the evaluation of `e` requires. Raises UserError, DamagedFile."""
    return average_weights(folder, e) if e.evaluation.weights == "average" else last(folder, e)


def average_weights(folder: RunFolder, e: Experiment) -> dict[str, Tensor]:
    """The mean of all snapshots. Raises UserError where there are none, and naming one that is missing or damaged."""
    t = e.training
    steps = EventSchedule(t.steps, 1, 1, 1, t.average_last, t.average_every).snapshot_steps()
    return average([snapshot_file(folder.snapshots, step) for step in steps], folder.training_hash)


def average(snapshots: list[Path], run: str) -> dict[str, Tensor]:
    """Weights averaged in float64 and cast back (6.1: the last 5 snapshots for base, 20 for big).

    Raises UserError unless all are whole snapshots of run `run`.
    """
    if not snapshots:
        raise UserError("no snapshots to average: training.average_last was 0 when this run was trained")
    total: dict[str, Tensor] = {}
    first: dict[str, Tensor] = {}
    for path in snapshots:
        weights = load(path, run)
        first = first or weights
        if {n: v.shape for n, v in weights.items()} != {n: v.shape for n, v in first.items()}:
            raise UserError(f"{path} and {snapshots[0]} hold different parameters: they are not snapshots of one run")
        for name, value in weights.items():
            total[name] = total[name] + value.double() if name in total else value.double()
    return {name: (value / len(snapshots)).to(first[name].dtype) for name, value in total.items()}


def last(folder: RunFolder, e: Experiment) -> dict[str, Tensor]:
    """Those after the last step, of the checkpoint or the snapshot. Raises DamagedFile."""
    step, run = e.training.steps, folder.training_hash
    checkpoint, snapshot = checkpoint_file(folder.checkpoints, step), snapshot_file(folder.snapshots, step)
    try:
        state = load(checkpoint, run)["state_dict"]
        return {name.removeprefix("transformer."): value for name, value in state.items()}
    except DamagedFile as error:
        if not snapshot.exists():
            raise DamagedFile(f"{error}; the run's last weights are gone: runs remove it and train it again") from None
        if checkpoint.exists():  # `runs gc` removes it if the snapshot exists
            print(f"{error}; using {snapshot}, which holds the same weights", file=sys.stderr)
    return load(snapshot, run)
