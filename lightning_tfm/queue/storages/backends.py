"""Where a study's queue is kept: a journal file, or PostgreSQL for several machines. SQLite is refused."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from lightning_tfm.atomic_io import locked, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.queue.storages.journal import check_journal, open_journal


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
