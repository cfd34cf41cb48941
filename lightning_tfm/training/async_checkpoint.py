"""Weights are written beside the training: copied in memory between two steps, and put on the disk by a thread.

One file at a time, in order, so that a checkpoint never exists before the snapshots that it needs, and no more than
one copy is in memory. What a kill loses is what came after the last whole checkpoint.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from lightning_tfm.atomic_io import temporary
from lightning_tfm.training.weight_files import owner_of, seal, serialise, write_weights

KEPT_CHECKPOINTS = 2
"""if the newest is torn or damaged, the one before it exists"""


class Record(Protocol):
    """Where a run writes; every method may refuse with an exception. Only rank 0 writes."""

    def append_metrics(self, record: dict[str, Any]) -> None: ...
    def read_curve(self) -> str: ...
    def restore_curve(self, text: str) -> None: ...
    def write_progress(self, step: int, steps: int, tokens_per_second: float, phase: str) -> None: ...
    def commit(self, half: Path, path: Path) -> None: ...
    def stop_asked(self) -> bool: ...


class CheckpointWriter:
    """Writes the weights of the run `run` (its training hash) into its folder `path`, through `record`."""

    def __init__(self, record: Record, path: Path, run: str) -> None:
        self.record, self._path, self._run = record, path, run
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def snapshot(self, weights: dict[str, Any], step: int) -> None:
        """Write weights; they may change when this returns. Raises what writing the file before raised."""
        self._write(weights, snapshot_file(self._path / "snapshots", step), lambda: None)

    def checkpoint(self, state: dict[str, Any], name: Path) -> None:
        """Write a checkpoint and, when it is on the disk, remove all but the newest ones. Raises as `snapshot`."""
        folder = self._path / "checkpoints"
        self._write(state, folder / name.name, lambda: _forget(folder))

    def wait(self) -> None:
        """Wait until all is on the disk. Raises what writing raised: StaleAttempt, OSError."""
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self.check()

    def check(self) -> None:
        """Raise, once, what writing has raised."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _write(self, value: Any, path: Path, then: Callable[[], None]) -> None:
        self.wait()  # one copy in memory
        copy = serialise(value)

        def work() -> None:
            half = temporary(path)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_weights(seal(copy, owner_of(path, self._run)), half)
                self.record.commit(half, path)
                then()
            except BaseException as error:  # for the thread that trains
                half.unlink(missing_ok=True)
                self._error = error

        self._thread = threading.Thread(target=work, name=f"write {path.name}", daemon=True)
        self._thread.start()


def _forget(folder: Path) -> None:
    for old in checkpoint_files(folder)[:-KEPT_CHECKPOINTS]:
        old.unlink()


def checkpoint_files(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    return sorted(folder.glob("step-*.ckpt"))


def step_of(path: Path) -> int:
    """The optimizer step after which a checkpoint or snapshot was written."""
    return int(path.stem.removeprefix("step-"))


def snapshot_file(folder: Path, step: int) -> Path:
    """The weights after optimizer step `step`."""
    return folder / f"step-{step:08d}.pt"


def checkpoint_file(folder: Path, step: int) -> Path:
    """All that training needs to resume after optimizer step `step`."""
    return folder / f"step-{step:08d}.ckpt"
