"""Where a study's queue is kept: a journal file, or PostgreSQL for several machines. SQLite is refused."""

import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import BaseJournalBackend
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from lightning_tfm.atomic_io import locked, write_all, write_atomic
from lightning_tfm.errors import UserError


class StorageUnreachable(UserError):
    """The database does not answer: wrong address at the start of a study, an outage later."""


JOURNAL = "journal.log"
"""file in a study's folder with its queue, unless that is kept elsewhere"""
MEMORY = "storage"
"""file in a study's folder with the address of its database"""
OUTAGES = (StorageUnreachable, StorageInternalError, SQLAlchemyError)
"""What a call on a storage raises while its database is away"""


class JournalStore:
    """Optuna's journal in the file `path`: for processes that share a file system with working locks.

    Unless `write`, it is read while others write it, and no file is opened for writing.
    """

    def __init__(self, path: Path, write: bool = True) -> None:
        self._path, self._write = path, write

    def open(self, say: Callable[[str], None]) -> BaseStorage:
        """Optuna's storage for the calling process. Raises UserError where it cannot be used."""
        return open_journal(self._path, say if self._write else None)

    def check(self) -> None:
        """Raise UserError where it cannot be used, without writing anything."""
        if self._path.exists():
            check_journal(self._path)
        elif self._path.parent.exists() and not os.access(self._path.parent, os.W_OK):
            raise UserError(f"{self._path}: the folder cannot be written to")

    @contextmanager
    def exclusive(self, study: str) -> Iterator[None]:
        """Lock only the study of that name, for several writes; freed when the holder dies. Not reentrant."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._path.with_name(f"{self._path.name}.{study}.exclusive")):
            yield


class PostgresStore:
    """A PostgreSQL database. No connection outlives a transaction, so that none crosses a fork."""

    def __init__(self, url: str) -> None:
        self._url = url

    def open(self, say: Callable[[str], None]) -> BaseStorage:
        del say  # nothing is repaired here
        with self._holding(b"lightning_tfm"):  # it creates Optuna's tables if missing
            return RDBStorage(self._url, engine_kwargs={"poolclass": NullPool})

    def check(self) -> None:
        self._connect().close()

    def _connect(self) -> sqlalchemy.Connection:
        try:
            return sqlalchemy.create_engine(self._url, poolclass=NullPool).connect()
        except (SQLAlchemyError, ImportError) as error:
            where = sqlalchemy.make_url(self._url).render_as_string(hide_password=True)
            raise StorageUnreachable(f"storage {where} cannot be reached: {error}") from None

    def exclusive(self, study: str) -> AbstractContextManager[None]:
        return self._holding(b"lightning_tfm study " + study.encode())

    @contextmanager
    def _holding(self, what: bytes) -> Iterator[None]:
        """Hold the advisory lock of the database for `what`."""
        key = int.from_bytes(hashlib.sha256(what).digest()[:7])
        with self._connect() as connection:
            connection.execute(sqlalchemy.text("SELECT pg_advisory_lock(:key)"), {"key": key})
            yield


Storage = JournalStore | PostgresStore
"""a place for the trials of studies, and a lock over each study"""


def address_of_queue(address: str, study_folder: Path) -> str:
    """The storage of a study: `address`, or the one it was started on if that is empty.

    Raises UserError where the two differ: the runs of one study have one queue.
    """
    path = study_folder / MEMORY
    remembered = path.read_text().strip() if path.is_file() else ""
    journal = str(study_folder / JOURNAL) if (study_folder / JOURNAL).is_file() else ""
    without_password = plain(address)
    if without_password and (remembered or journal) and without_password not in (remembered, journal):
        raise UserError(
            f"--storage={without_password}: this study was started on {remembered or journal}, where its queue is; "
            "leave --storage out, or choose another name with --name"
        )
    return address or remembered


def in_journal(study_folder: Path) -> bool:
    """Whether the queue of a study is the journal in its folder."""
    return (study_folder / JOURNAL).is_file() and not (study_folder / MEMORY).is_file()


def remember(address: str, study_folder: Path) -> None:
    """Keep the address of a database, without its password, for those who join or look later."""
    if "://" in address and not (study_folder / MEMORY).is_file():
        study_folder.mkdir(parents=True, exist_ok=True)
        write_atomic(study_folder / MEMORY, (plain(address) + "\n").encode())


def plain(address: str) -> str:
    """An address without its password. Raises UserError."""
    if "://" not in address:
        return address
    scheme, _, rest = address.partition("://")
    try:
        url = sqlalchemy.make_url("postgresql://" + rest if scheme.startswith("postgresql") else address)
    except SQLAlchemyError as error:
        raise UserError(f"storage {scheme}://…: not a database address ({error})") from None
    bare = sqlalchemy.URL.create(url.drivername, url.username, None, url.host, url.port, url.database, url.query)
    return bare.render_as_string(hide_password=False)


def find_storage(address: str, study_folder: Path, write: bool = True) -> Storage:
    """The storage that `address` names: empty for the study's own journal, a path, or a postgresql URL.

    Raises UserError for anything else, SQLite included: workers claim a trial twice there.
    """
    if "://" not in address:
        return JournalStore(Path(address) if address else study_folder / JOURNAL, write)
    scheme = address.partition("://")[0]
    if scheme in ("postgresql", "postgresql+psycopg"):
        return PostgresStore("postgresql+psycopg://" + address.partition("://")[2])
    if scheme.startswith("sqlite"):
        raise UserError(
            f"storage {address}: SQLite has no row locks, so several workers would take the same run (Optuna claims a "
            "trial twice there); use the journal file (the default), or postgresql+psycopg://… for several machines"
        )
    raise UserError(f"storage {scheme}://…: valid: the path of a journal file, or postgresql+psycopg://…")


# --- the journal, safe against a cut-off last line and against writers that die holding the lock ---


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
