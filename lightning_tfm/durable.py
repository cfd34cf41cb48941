"""Files that survive a crash: whole or not at all, and a lock that dies with its holder."""

import errno
import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp"
"""Suffix of half-written files; `runs gc` removes those that a crash left behind."""


class LockTimeout(Exception):
    """Another process held the lock for the whole time."""


@contextmanager
def locked(path: Path, timeout: float | None = None) -> Iterator[int]:
    """Hold the exclusive lock on `path` (made if missing); the kernel frees it when the holder dies, however it dies.

    `timeout` in seconds, None to wait for ever. Yields the open descriptor. Raises LockTimeout.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _flock(fd, path, timeout)
        yield fd
    finally:
        os.close(fd)


def _flock(fd: int, path: Path, timeout: float | None) -> None:
    if timeout is None:
        fcntl.flock(fd, fcntl.LOCK_EX)
        return
    end = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise LockTimeout(f"{path}: locked by another process for {timeout:g} s") from None
            time.sleep(0.005)


def temporary(path: Path) -> Path:
    """A fresh name beside `path`, on the same file system, that `runs gc` recognises."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{TEMPORARY}")


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file and push it to the disk; a file that could not be written whole is removed. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    whole = False
    try:
        write_all(fd, data)
        os.fsync(fd)
        whole = True
    finally:
        os.close(fd)
        if not whole:
            path.unlink()


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


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data`: readers and crashes see the old file or the new one, never a part. Raises OSError."""
    half = temporary(path)
    write_durably(half, data)
    os.replace(half, path)
    sync_file(path.parent)


def to_json(value: Any) -> bytes:
    """Readable JSON with a newline at the end; NaN is refused (ValueError), it is no JSON."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
