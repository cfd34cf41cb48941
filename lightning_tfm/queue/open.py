"""The queue of a study that exists, wherever it is kept."""

import sys
from collections.abc import Callable
from pathlib import Path

from lightning_tfm.errors import UserError
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.storage import JOURNAL, find_storage, remembered
from lightning_tfm.study.definition import check_exists, file_of
from lightning_tfm.study.tune import is_search, load


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def has_queue(root: Path, name: str, storage: str = "") -> bool:
    """Whether study `name` was started: there is a queue to open. Raises UserError for another storage than its own."""
    folder = file_of(root, name).parent
    return bool(remembered(storage, folder)) or (folder / JOURNAL).is_file()


def open_queue(root: Path, name: str, storage: str = "", say: Callable[[str], None] = _to_stderr) -> Queue:
    """The queue of study `name`; `storage` is empty for where the study was started. Creates nothing.

    Raises UserError where there is no such study, or no queue of it.
    """
    folder = file_of(root, name).parent
    if not has_queue(root, name, storage):
        check_exists(root, name)
        raise UserError(f"study '{name}' was defined but not started: {folder} holds no queue (or give --storage)")
    budget = load(root, name).budget if is_search(root, name) else 0
    return Queue(name, find_storage(remembered(storage, folder), folder), say, budget=budget, create=False)
