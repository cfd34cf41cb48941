"""Where a study's queue is kept: a journal file, or PostgreSQL for several machines. SQLite is refused."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from lightning_tfm.errors import UserError
from lightning_tfm.study.files import locked
from lightning_tfm.study.journal import open_journal


class StorageUnreachable(UserError):
    """The database does not answer: wrong address at the start of a study, an outage later."""


OUTAGES = (StorageUnreachable, StorageInternalError, SQLAlchemyError)
"""What a call on a storage raises while its database is away"""


class Storage(ABC):
    """A place for the trials, and a lock over it for what takes several writes."""

    @abstractmethod
    def open(self, say: Callable[[str], None]) -> BaseStorage:
        """Optuna's storage for the calling process. Raises UserError where it cannot be used."""

    @abstractmethod
    def exclusive(self) -> AbstractContextManager[None]:
        """Hold the storage alone; freed when the holder dies. Not reentrant."""


class JournalStore(Storage):
    """Optuna's journal in the file `path`: for processes that share a file system with working locks."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, say: Callable[[str], None]) -> BaseStorage:
        return open_journal(self._path, say)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._path.with_name(self._path.name + ".exclusive")):
            yield


class PostgresStore(Storage):
    """A PostgreSQL database. No connection outlives a transaction, so that none crosses a fork."""

    def __init__(self, url: str) -> None:
        self._url = url

    def open(self, say: Callable[[str], None]) -> BaseStorage:
        return RDBStorage(self._url, engine_kwargs={"poolclass": NullPool})

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        key = int.from_bytes(hashlib.sha256(b"lightning_tfm").digest()[:7])
        try:
            connection = sqlalchemy.create_engine(self._url, poolclass=NullPool).connect()
        except (SQLAlchemyError, ImportError) as error:
            where = sqlalchemy.make_url(self._url).render_as_string(hide_password=True)
            raise StorageUnreachable(f"storage {where} cannot be reached: {error}") from None
        with connection:
            connection.execute(sqlalchemy.text("SELECT pg_advisory_lock(:key)"), {"key": key})
            yield


def find_storage(address: str, study_folder: Path) -> Storage:
    """The storage that `address` names: empty for the study's own journal, a path, or a postgresql URL.

    Raises UserError for anything else, SQLite included: workers claim a trial twice there.
    """
    if "://" not in address:
        return JournalStore(Path(address) if address else study_folder / "journal.log")
    scheme = address.partition("://")[0]
    if scheme in ("postgresql", "postgresql+psycopg"):
        return PostgresStore("postgresql+psycopg://" + address.partition("://")[2])
    if scheme.startswith("sqlite"):
        raise UserError(
            f"storage {address}: SQLite has no row locks, so several workers take the same run (Optuna claims a trial "
            "twice there); use the journal file (the default), or postgresql+psycopg://… for several machines"
        )
    raise UserError(f"storage {scheme}://…: valid are a path of a journal file and postgresql+psycopg://…")
