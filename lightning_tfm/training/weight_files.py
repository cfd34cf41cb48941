"""Files of weights: what they hold, whose they are, and that not a bit of them has changed.

A checkpoint or snapshot is what `torch.save` writes, a zip archive; its comment says `run=<name of the run>/<name of
the file>` and the sha256 of everything before these digits. So every program that reads torch's files reads them,
and here one that was damaged, cut short, or put in another's place is recognised.
"""

import hashlib
import io
import lzma
import re
import threading
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

from lightning_tfm.atomic_io import temporary
from lightning_tfm.sums import DamagedFile

COMMENT = re.compile(rb"lightning_tfm run=(\S+) sha256=([0-9a-f]{64})")
LONGEST = 400
"""bytes in which a comment is looked for, from the end of the file"""
END = b"PK\x05\x06"
"""begins the last 22 bytes of a zip archive without a comment"""


def serialise(value: Any) -> io.BytesIO:
    """What `torch.save` writes, in memory: a copy of all tensors in `value`."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer


def seal(buffer: io.BytesIO, owner: str) -> memoryview:
    """The content of a file that names itself `owner`, "<run>/<name of the file>", and carries its checksum."""
    data = buffer.getbuffer()
    assert data[-22:-18] == END and data[-2:] == b"\0\0", "torch.save ends with a zip archive's end"
    start = f"lightning_tfm run={owner} sha256=".encode()
    data[-2:] = (len(start) + 64).to_bytes(2, "little")
    data.release()
    buffer.seek(0, io.SEEK_END)
    buffer.write(start)
    digest = hashlib.sha256(buffer.getbuffer()).hexdigest()
    buffer.write(digest.encode())
    return buffer.getbuffer()


def write(value: Any, path: Path) -> None:
    """`torch.save` by way of memory. Raises OSError and leaves nothing where the disk is full."""
    write_weights(serialise(value).getbuffer(), path)


def write_weights(data: memoryview, path: Path) -> None:
    """Raises OSError and leaves nothing where the disk is full."""
    try:
        path.write_bytes(data)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def owner_of(path: Path, run: str) -> str:
    """What a file of weights says about itself. `run`: training hash."""
    return f"{run[:16]}/{path.name}"


def verify(path: Path, run: str) -> bool:
    """Whether the file carries a checksum; False for one from an earlier version that is an intact zip.

    Raises DamagedFile if it is missing, damaged, cut short, or another's.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(max(0, size - LONGEST))
            comment = re.search(COMMENT.pattern + rb"\Z", file.read())
            if comment is None:
                return _whole_zip(path)
            file.seek(0)
            ours = _hash_of(file, size - 64)
    except OSError as error:
        raise DamagedFile(f"{path}: {error.strerror}") from None
    if ours != comment[2].decode():
        raise DamagedFile(f"{path}: damaged: its checksum does not match its content")
    if comment[1].decode() != owner_of(path, run):
        raise DamagedFile(f"{path}: another run's or another step's file: it calls itself {comment[1].decode()}")
    return True


def load(path: Path, run: str) -> Any:
    """The content of a file of weights, on the CPU, verified. Raises DamagedFile."""
    verify(path, run)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, EOFError, KeyError) as error:
        raise DamagedFile(f"{path}: damaged: {str(error).splitlines()[0]}") from error


def _whole_zip(path: Path) -> bool:
    """False; raises DamagedFile unless every part of the archive has the CRC-32 that it was written with."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, RuntimeError) as error:
        raise DamagedFile(f"{path}: damaged or cut short ({error})") from None
    if broken is not None:
        raise DamagedFile(f"{path}: damaged: {broken} has another checksum")
    return False


def _hash_of(file: io.BufferedReader, count: int) -> str:
    """sha256 of the next `count` bytes."""
    digest, block = hashlib.sha256(), memoryview(bytearray(1 << 20))
    while count and (read := file.readinto(block[: min(count, len(block))])):
        digest.update(block[:read])
        count -= read
    return digest.hexdigest()


# --- written beside the training: copied in memory between two steps, and put on the disk by a thread ---
#
# One file at a time, in order, so that a checkpoint never exists before the snapshots that it needs, and no more than
# one copy is in memory. What a kill loses is what came after the last whole checkpoint.

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
