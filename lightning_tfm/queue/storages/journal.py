"""Optuna's journal file, made safe against a cut-off last line and against writers that die holding the lock."""

import json
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend

from lightning_tfm.atomic_io import locked, write_all
from lightning_tfm.errors import UserError


class Journal(BaseJournalBackend):
    """Appends a line whole or not at all, and removes what another writer left unfinished.

    Optuna's own backend appends behind a cut-off line, after which no process can read the journal. `say` gets a line
    for each repair; without it the journal is only read while others write it, and what a crash cut off is skipped.
    """

    def __init__(self, path: Path, say: Callable[[str], None] | None) -> None:
        self._path, self._say = path, say
        self._read = (0, 0)
        """lines that were read, and where the next one begins: no writer moves a whole line"""

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Records from the given number on, as the file has them now."""
        before, position = self._read if self._read[0] <= log_number_from else (0, 0)
        with open(self._path, "rb") as file:
            file.seek(position)
            data = file.read()
        for number, line in enumerate(_lines(data), before + 1):
            position += len(line)
            if number > log_number_from:
                whole = line if _is_record(line) else line[max(line.rfind(RECORD), 0) :]
                if not _is_record(whole):
                    raise UserError(_damage_message(self._path, number))
                self._read = (number, position)
                yield json.loads(whole)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append records. Raises OSError where the disk is full, and leaves the journal as it was."""
        if self._say is None:
            raise PermissionError(f"a journal opened for reading should have taken {len(logs)} records")
        data = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        with _opened(self._path) as fd:
            with locked(_lock(self._path)):
                size = _mend_tail(self._path, fd, self._say)
                try:
                    write_all(fd, data)
                except OSError:
                    os.ftruncate(fd, size)
                    raise
            os.fsync(fd)  # outside the lock: it covers everything before, and a stopped writer blocks nobody


def open_journal(path: Path, say: Callable[[str], None] | None) -> JournalStorage:
    """The storage in `path`, repaired where a crash cut off a line; without `say` as it is now, untouched.

    Raises UserError naming the line where the journal cannot be read.
    """
    if say is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _opened(path) as fd, locked(_lock(path)):
            _mend_tail(path, fd, say)
            _mend_middle(path, say)
    try:
        return JournalStorage(Journal(path, say))
    except (OSError, KeyError, TypeError, ValueError, AssertionError) as error:
        raise UserError(f"{path}: not a journal of Optuna ({type(error).__name__}: {error})") from None


def check_journal(path: Path) -> None:
    """Raise UserError naming the line of a journal that cannot be repaired; writes nothing."""
    for number, line in enumerate(_lines(path.read_bytes()), 1):
        if not _is_record(line) and not _is_mendable(line):
            raise UserError(_damage_message(path, number))


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Its descriptor, for appending; the file is made if missing."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield fd
    finally:
        os.close(fd)


def _lock(path: Path) -> Path:
    return path.with_name(path.name + ".flock")


def _mend_tail(path: Path, fd: int, say: Callable[[str], None]) -> int:
    """Cut the unfinished last line off; returns the size in bytes. The caller holds the lock."""
    size = os.fstat(fd).st_size
    if not size or os.pread(fd, 1, size - 1) == b"\n":
        return size
    torn = b""
    while b"\n" not in torn and len(torn) < size:
        torn = os.pread(fd, min(size, len(torn) + 65536), max(0, size - len(torn) - 65536))
    whole = size - (len(torn) - torn.rfind(b"\n") - 1)
    os.ftruncate(fd, whole)
    say(f"{path}: removed an unfinished last line of {size - whole} bytes (a crash or a full disk); the rest is intact")
    return whole


def _mend_middle(path: Path, say: Callable[[str], None]) -> None:
    """Blank out unfinished lines that others appended to: blanks before JSON are still JSON, and no offset moves.

    The caller holds the lock. Reads the whole journal: 20 ms per MB.
    """
    with open(path, "r+b") as file:
        position = 0
        for number, line in enumerate(_lines(file.read()), 1):
            if not _is_record(line):
                if not _is_mendable(line):
                    raise UserError(_damage_message(path, number))
                start = line.rfind(RECORD)
                file.seek(position)
                file.write(b" " * start)
                say(f"{path}: line {number}: blanked out {start} bytes of an unfinished record")
            position += len(line)


RECORD = b'{"op_code":'
"""how a line of Optuna's journal begins"""


def _is_mendable(line: bytes) -> bool:
    """Whether a whole record follows an unfinished one."""
    start = line.rfind(RECORD)
    return start > 0 and _is_record(line[start:])


def _damage_message(path: Path, number: int) -> str:
    return (
        f"{path}: line {number} is damaged and cannot be repaired; move the file away (finished runs are kept and "
        "found again) or restore it from a copy"
    )


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _lines(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n")[:-1]]
