"""The queue of a study that exists, wherever it is kept, and the study itself."""

from collections.abc import Callable
from pathlib import Path

from lightning_tfm.errors import UserError
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.resources import Resources
from lightning_tfm.queue.storages.backends import JOURNAL, ReadOnly, address_of_queue, find_storage
from lightning_tfm.runs.outcome import say
from lightning_tfm.study.study import Study
from lightning_tfm.study.study_file import check_exists, file_of, folder_of, from_plain, load


def has_queue(root: Path, name: str, storage: str = "") -> bool:
    """Whether study `name` was started: there is a queue to open. Raises UserError for a storage other than its own."""
    folder = folder_of(root, name)
    return bool(address_of_queue(storage, folder)) or (folder / JOURNAL).is_file()


def open_queue(
    root: Path, name: str, storage: str = "", say: Callable[[str], None] = say, *, write: bool = False
) -> Queue:
    """The queue of study `name`; `storage` is empty for where the study was started. Creates nothing.

    Unless `write`, no file is opened for writing: a journal is read as it is, neither locked nor repaired.

    Raises UserError if there is no such study, or no queue of it.
    """
    folder = folder_of(root, name)
    if not has_queue(root, name, storage):
        check_exists(root, name)
        raise UserError(f"study '{name}' was defined but not started: {folder} holds no queue (or give --storage)")
    store = find_storage(address_of_queue(storage, folder), folder)
    queue = Queue(name, store if write else store.to_read(), say, create=False)
    if file_of(root, name).is_file() or queue.note_of("definition") is not None:
        queue.budget = study_of(queue, root).budget
    return queue


def open_to_read(root: Path, name: str) -> Queue:
    """The queue of study `name` on its own journal, for reading: nothing is created, locked or repaired.

    Raises UserError where the study has no journal here, or a damaged one.
    """
    path = folder_of(root, name) / JOURNAL
    if not path.is_file():
        raise UserError(f"study '{name}': {path} does not exist: its queue is elsewhere, or it was not started")
    return Queue(name, ReadOnly(path), lambda text: None, create=False)


def make_queue(study: Study, root: Path, resources: Resources, say: Callable[[str], None]) -> Queue:
    """The queue of `study`, for the calling process; created if missing. Raises UserError."""
    folder = folder_of(root, study.name)
    store = find_storage(address_of_queue(resources.storage, folder), folder)
    return Queue(study.name, store, say, resources.grace, study.directions, study.budget)


def study_of(queue: Queue, root: Path) -> Study:
    """The study of a queue, from study.json below `root`, else as the storage holds it. Raises UserError."""
    if file_of(root, queue.name).is_file():
        return load(root, queue.name)
    plain = queue.note_of("definition")
    if plain is None:
        raise UserError(f"the storage holds no definition of study '{queue.name}': start it with --storage first")
    return from_plain(plain, f"study '{queue.name}' in the storage")
