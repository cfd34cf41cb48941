"""Files that survive a crash: whole or not at all, and a lock that dies with its holder."""

import csv
import errno
import fcntl
import io
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

TEMPORARY = ".tmp"
"""Suffix of half-written files; `runs gc` removes those that a crash left behind."""


class LockTimeout(Exception):
    """Another process held the lock for the whole time."""


_LOCK_FILES: dict[tuple[int, str], io.FileIO] = {}
"""by thread and path; not a dictionary of weak references, whose callbacks would swallow a signal's exception"""


@contextmanager
def locked(path: Path, timeout: float | None = None, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the exclusive lock on `path` (made if missing); the kernel frees it when the holder dies, however it dies.

    `timeout` in seconds, None to wait forever; `waiting` is called once where another process holds it. Raises
    LockTimeout. What an exception of a signal's handler left locked, between the lock and its `with` block, is
    unlocked by the same thread's next lock on the path.
    """
    key = (threading.get_ident(), os.path.abspath(path))
    if (left := _LOCK_FILES.get(key)) is not None:
        left.close()
    with open(path, "ab", buffering=0) as file:
        _LOCK_FILES[key] = file
        try:
            if not lock(file.fileno(), timeout, waiting):
                raise LockTimeout(f"{path}: still locked by another process after {timeout:g} s")
            yield
        finally:
            if _LOCK_FILES.get(key) is file:
                del _LOCK_FILES[key]


def lock(fd: int, timeout: float | None = None, waiting: Callable[[], None] | None = None) -> bool:
    """Lock an open file or folder, as `locked` does; False after `timeout`. Raises OSError where locking fails."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if waiting is not None:
                waiting()
                waiting = None
        if end is None:
            fcntl.flock(fd, fcntl.LOCK_EX)
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.005)


def temporary(path: Path) -> Path:
    """A fresh name beside `path`, on the same file system, that `runs gc` recognises."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{TEMPORARY}")


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A new file to write, on the disk when the block ends; removed where it could not be written whole.

    Raises FileExistsError, OSError.
    """
    with path.open("xb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
        except BaseException:  # Ctrl-C must not leave half of it either; it is raised again
            path.unlink(missing_ok=True)
            raise


@contextmanager
def replacing(path: Path, guard: Callable[[], AbstractContextManager[None]] = nullcontext) -> Iterator[BinaryIO]:
    """A file to write that replaces `path` when the block ends, under `guard`; not where either raises.

    Readers and crashes see the old file or the new one, never part of one. Raises OSError.
    """
    half = temporary(path)
    with new_file(half) as file:
        yield file
    try:
        with guard():
            os.replace(half, path)
    except BaseException:  # as in new_file
        half.unlink(missing_ok=True)
        raise
    sync_file(path.parent)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, whole or not at all. Raises OSError."""
    with replacing(path) as file:
        file.write(data)


def write_all(fd: int, data: bytes) -> None:
    """`os.write` until everything is written. A write that stops short raises OSError (the disk is full)."""
    view = memoryview(data)
    while view:
        written = os.write(fd, view)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]


def append_whole(path: Path, data: bytes) -> None:
    """Append `data` or nothing; the caller holds a lock. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        size = os.fstat(fd).st_size
        try:
            write_all(fd, data)
        except OSError:
            os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    """Push a file, or the names in a folder, to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def to_json(value: Any) -> bytes:
    """Readable JSON with a newline at the end; NaN and infinity are refused (ValueError): they are not JSON."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def to_csv(lines: Sequence[Mapping[str, object]]) -> str:
    """CSV with a line for each, under the heads in the order in which they come up."""
    heads = list(dict.fromkeys(head for line in lines for head in line))
    out = io.StringIO()
    writer = csv.DictWriter(out, heads, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()
