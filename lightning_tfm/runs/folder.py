"""The directory of one run, named by its training hash, and the numbered attempts that may write into it.

Whoever works on a run claims an attempt. Numbers only rise, and every write checks under a lock that no newer attempt
exists. So a process that was stopped, lost its run to another and wakes up can no longer touch a file of the run
(a fencing token); which of two claimers wins is decided by one lock.
"""

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lightning_tfm.atomic_io import (
    LockTimeout,
    append_whole,
    locked,
    new_file,
    replacing,
    sync_file,
    temporary,
    to_json,
)
from lightning_tfm.config import Experiment, from_record
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.runs.process.process_id import ProcessId, this_process
from lightning_tfm.runs.record import Called, Claimed, Outcome, Progress, RunRecord, read_small
from lightning_tfm.runs.record import read_record as read_record
from lightning_tfm.schema import infinite_as_text

GRACE = 120.0
"""seconds without a heartbeat after which a process that cannot be checked, or that is stopped, loses its run"""
BEAT = 10.0
"""seconds between two heartbeats"""
REMEDY = "remove the file, or the run: lightning-tfm runs remove RUN --force"
"""for a record that is damaged"""


class RunIsOwned(Exception):
    """A living process works on this run."""

    def __init__(self, path: Path, owner: ProcessId | None) -> None:
        super().__init__(f"{path}: {owner or 'another process'} is working on this run")
        self.owner = owner


class StaleAttempt(Exception):
    """A newer attempt took over the run, or the run was removed: nothing may be written any more."""


class Inside:
    """A file or folder of a run's folder, as an attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: "RunFolder", cls: type) -> Path:
        return folder.path / self._name


@dataclass(frozen=True)
class RunFolder:
    """Paths and records of one run: `<root>/runs/<first 16 hex digits of the training hash>/`."""

    root: Path
    training_hash: str
    grace: float = GRACE
    beat: float = BEAT

    @property
    def path(self) -> Path:
        return self.root / "runs" / self.training_hash[:16]

    experiment = Inside("experiment.json")
    identity = Inside("identity.json")
    cell = Inside("cell.json")
    """what the run was called when requested: its row and seed. Not part of its identity"""
    attempts = Inside("attempts")
    progress = Inside("progress.json")
    metrics = Inside("metrics.jsonl")
    checkpoints = Inside("checkpoints")
    snapshots = Inside("snapshots")
    result = Inside("result.json")
    outcome = Inside("outcome.json")
    log = Inside("log.txt")

    def scores(self, evaluation_hash: str) -> Path:
        """Folder of the scores under one evaluation."""
        return self.path / "scores" / evaluation_hash[:16]

    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return self.read_result() is not None

    def read_result(self) -> RunRecord | None:
        """What a finished run left; None where it is not finished. Raises UserError where that is damaged."""
        record = read_record(self.result)
        if isinstance(record, RunRecord):
            return record
        if record.damaged:
            raise UserError(f"{self.result}: {record.reason}; {REMEDY}")
        return None

    def read_called(self) -> Called | None:
        """What the run was last requested as; None where that was not written down. Raises UserError."""
        try:
            return read_small(Called, self.cell)
        except ValueError as error:
            raise UserError(f"{self.cell}: {error}; {REMEDY}") from None

    def newest(self) -> int:
        """Number of the newest attempt, 0 before the first."""
        if not self.attempts.is_dir():
            return 0
        return max((int(name[:-5]) for name in os.listdir(self.attempts) if name.endswith(".json")), default=0)

    @property
    def begun(self) -> float | None:
        """When its first attempt was claimed, in seconds since 1970."""
        first = self._record(1)
        return first.time if first else None

    def owner(self) -> ProcessId | None:
        """The living owner of the run, if it has one."""
        number = self.newest()
        record = self._record(number) if number else None
        if record is None or record.ended is not None:
            return None
        return None if record.owner.gone() or self._silent(number) > self.grace else record.owner

    def ask_to_stop(self, pid: int) -> bool:
        """Ask the attempt of process `pid` to stop as unpromising; False where that process does not hold the run."""
        owner = self.owner()
        if owner is None or owner.pid != pid:
            return False
        (self.attempts / f"{self.newest():04d}.stop").touch()
        return True

    def claim(self) -> "Attempt":
        """Start the next attempt and its heartbeat. Raises RunIsOwned while the newest one is alive.

        An owner on this machine is dead as soon as its process is; one elsewhere, or stopped, after `grace` seconds
        without a heartbeat.
        """
        self.attempts.mkdir(parents=True, exist_ok=True)
        token = uuid.uuid4().hex
        try:
            with locked(self._lock, timeout=5):
                owner = self.owner()
                if owner is not None:
                    raise RunIsOwned(self.path, owner)
                number = self.newest() + 1
                attempt = Attempt(self, number, token)
                attempt.pulse.touch()
                with new_file(attempt.file) as file:  # exclusive: a second guard where locks do not work
                    file.write(to_json(asdict(Claimed(number, token, this_process(), time.time(), None))))
        except LockTimeout:
            raise RunIsOwned(self.path, self.owner()) from None
        threading.Thread(target=_keep_beating, args=(attempt.pulse, self.beat), name="heartbeat", daemon=True).start()
        return attempt

    @property
    def _lock(self) -> Path:
        return self.attempts / "lock"

    def _record(self, number: int) -> Claimed | None:
        # written under the lock: a half-written one belongs to a process that died while claiming
        try:
            return read_small(Claimed, self.attempts / f"{number:04d}.json")
        except ValueError:  # damaged
            return None

    def _silent(self, number: int) -> float:
        """Seconds since the last heartbeat, on the file server's clock: clocks of machines differ."""
        now = self.attempts / "now"
        try:
            now.touch()
            return now.stat().st_mtime - (self.attempts / f"{number:04d}.beat").stat().st_mtime
        except FileNotFoundError:
            return float("inf")


def find_run(root: Path, start: str) -> RunFolder:
    """The run whose name starts with `start`. Raises UserError where there is none or several."""
    names = [path.name for path in run_folders(root)]
    matching = [name for name in names if name.startswith(start[:16])]
    if len(matching) != 1:
        what = (
            f"several; {nearest('', matching)}" if matching else f"none; {nearest(start, names)}" if names else "none"
        )
        raise UserError(f"run '{start}' under {root / 'runs'}: {what}")
    return RunFolder(root, matching[0])


def find_trained(run: str, root: Path) -> RunFolder:
    """The run by its directory, or by the start of its name under `root`. Raises UserError unless it is finished."""
    path = Path(run)
    if (path / "identity.json").is_file():
        path = path.resolve()
        folder = RunFolder(path.parent.parent, path.name)
    elif path.is_dir():
        raise UserError(f"{path} is not the directory of a run: it has no identity.json")
    else:
        folder = find_run(root, run)
    if not folder.finished():
        raise UserError(f"{folder.path} is not fully trained: lightning-tfm fit with its configuration resumes it")
    return folder


def experiment_of(folder: RunFolder) -> Experiment:
    """The experiment at its true sizes, as the run recorded it."""
    result = folder.read_result()
    plain = result.experiment if result and result.experiment else json.loads(folder.experiment.read_bytes())
    return from_record(plain)


def run_folders(root: Path) -> list[Path]:
    return sorted(path for path in (root / "runs").glob("[0-9a-f]*") if path.is_dir())


@dataclass(frozen=True)
class Attempt:
    """The right to write into a run. Plain data: it may be handed to the ranks of a run, forked or spawned.

    Every method that writes raises StaleAttempt, and writes nothing, once a newer attempt exists; and OSError where
    the disk is full.
    """

    folder: RunFolder
    number: int
    token: str

    @property
    def file(self) -> Path:
        return self.folder.attempts / f"{self.number:04d}.json"

    @property
    def pulse(self) -> Path:
        return self.folder.attempts / f"{self.number:04d}.beat"

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Hold the run's lock after checking that this attempt is the newest: keep what happens inside short."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.folder.attempts / "lock"))
            except FileNotFoundError:
                raise StaleAttempt(f"{self.folder.path}: the run was removed") from None
            newest = self.folder.newest()
            record = self.folder._record(newest) if newest else None
            if record is None or record.token != self.token:
                raise StaleAttempt(
                    f"{self.folder.path}: attempt {self.number} was replaced by attempt {newest}; this process was "
                    "suspended or silent for too long, and another has resumed the run"
                )
            yield

    def check(self) -> None:
        """Raise StaleAttempt if a newer attempt exists."""
        with self.guard():
            pass

    def why_folder_not_shared(self, here: str, there: str) -> str:
        """Why `here`, a rank or node, cannot take part in the attempt of `there`; empty if it sees the same files."""
        try:
            self.check()
        except (StaleAttempt, OSError):
            return (
                f"{here}: {self.folder.path} is not the folder in which {there} works: all nodes must see the same "
                "files; put --out on a shared file system"
            )
        return ""

    def commit(self, half: Path, path: Path) -> None:
        """Move the finished file `half` (same file system) to `path` in one step, after pushing it to the disk."""
        self.check()  # a newer attempt has removed the half-written file
        sync_file(half)
        with self.guard():
            os.replace(half, path)
        sync_file(path.parent)

    def write(self, path: Path, data: bytes) -> None:
        """Replace `path` by `data`, whole or not at all."""
        self.check()
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, self.guard) as file:
            file.write(data)

    def write_json(self, path: Path, value: Any) -> None:
        """Replace `path` by readable JSON. Raises ValueError for NaN."""
        self.write(path, to_json(value))

    def write_progress(self, step: int, steps: int, tokens_per_second: float, phase: str) -> None:
        """Say how far the run is, for the live view. Atomic, but not pushed to the disk: it may be lost."""
        record = asdict(Progress(step, steps, tokens_per_second, phase, time.time(), self.number))
        half = temporary(self.folder.progress)
        with self.guard():
            half.write_bytes(to_json(record))
            os.replace(half, self.folder.progress)

    def write_outcome(self, outcome: str, reason: str, step: int | None) -> None:
        """Say how this attempt ends: finished, failed, interrupted, out_of_memory, nan_loss or disk_full, and why."""
        self.write_json(self.folder.outcome, asdict(Outcome(outcome, reason, step, self.number)))

    def append_metrics(self, record: dict[str, Any]) -> None:
        """Add one line, which needs a key "step", to metrics.jsonl."""
        line = json.dumps(infinite_as_text(record)) + "\n"
        with self.guard():
            append_whole(self.folder.metrics, line.encode())

    def truncate_metrics(self, step: int) -> int:
        """Drop the records after `step` (the checkpoint that the run resumes from); returns how many.

        A damaged line stays: `restore_curve` replaces it, and where the checkpoint has no curve, a reader names it.
        """
        if not self.folder.metrics.exists():
            return 0
        lines = whole_lines(self.folder.metrics)
        before = [line for line in lines if _step_of(line) <= step]
        self.write(self.folder.metrics, b"".join(before))
        return len(lines) - len(before)

    def read_curve(self) -> str:
        """The text of metrics.jsonl, for a checkpoint."""
        return self.folder.metrics.read_text() if self.folder.metrics.exists() else ""

    def restore_curve(self, text: str) -> None:
        """Restore the text from a checkpoint, whatever happened to the file since."""
        self.write(self.folder.metrics, text.encode())

    def stop_asked(self) -> bool:
        """Whether `RunFolder.ask_to_stop` was called for this attempt."""
        return self.file.with_suffix(".stop").exists()

    def release(self) -> None:
        """End the attempt: the run may be claimed at once, from any machine."""
        self.check()
        record = self.folder._record(self.number)
        assert record is not None, f"{self.file} was checked"
        self.write_json(self.file, asdict(replace(record, ended=time.time())))
        self.pulse.unlink(missing_ok=True)  # which also ends the heartbeat


def _keep_beating(pulse: Path, every: float) -> None:
    while True:
        time.sleep(every)
        try:
            os.utime(pulse)
        except FileNotFoundError:
            return
        except OSError:  # a file server that does not answer: the next beat that gets through is enough
            continue


def read_json(path: Path) -> Any:
    """The content of a JSON file; None if there is none or a crash left part of one."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _step_of(line: bytes) -> float:
    """Of a line of metrics.jsonl; minus infinity where it is damaged."""
    try:
        return float(json.loads(line)["step"])
    except (KeyError, TypeError, ValueError):
        return float("-inf")


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file, except a last one that was cut off; none where there is no file."""
    data = path.read_bytes() if path.is_file() else b""
    return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
