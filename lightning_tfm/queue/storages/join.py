"""Joining a study that was started elsewhere, and what its launcher announces to those who have joined."""

import sys
import time
from pathlib import Path

from lightning_tfm.errors import UserError
from lightning_tfm.queue.launch import work
from lightning_tfm.queue.prepare_data_rows import on_this_machine
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.resources import Resources
from lightning_tfm.queue.storages.backends import OUTAGES
from lightning_tfm.queue.storages.open import make_queue, open_queue, study_of
from lightning_tfm.queue.storages.sharing import check_shared
from lightning_tfm.study.study import Study
from lightning_tfm.study.study_file import check_exists, folder_of
from lightning_tfm.watch.study_state import CellState

MORE = "more runs to come"
"""note in a study's storage: those who have joined should wait when nothing is left to run"""
MORE_EVERY = 2.0
"""seconds between two checks of it"""


def join(name: str, root: Path, resources: Resources) -> list[CellState]:
    """Work on an existing study. Raises UserError where this machine does not see the files it must see."""
    if resources.share_files:
        check_exists(root, name)
    queue = open_queue(root, name, resources.storage, print)
    if resources.share_files:
        check_shared(queue, folder_of(root, name))
    study = study_of(queue, root)
    study.hardware_of(resources.hardware)  # refused before the data are read
    here = on_this_machine(study, root)
    if study.prints.differing(here.prints) or getattr(study, "data", None) != getattr(here, "data", None):
        where = root / "data" / here.store
        raise UserError(f"study '{name}': the text or the tokenizer here is not the study's; compare {where}")
    while (states := work(study, [], root, resources)) is not None and _awaits_more(queue):
        pass
    return states or []


def _awaits_more(queue: Queue) -> bool:
    """Wait while more runs may come; returns whether they came."""
    told = False
    while True:
        try:
            if not queue.done():
                return True
            if not queue.note_of(MORE):
                return False
        except OUTAGES as error:
            print(f"{queue.name}: {error}; trying again", file=sys.stderr)
        if not told:
            print(f"{queue.name}: waiting for the runs of the next interim analysis; Ctrl-C leaves", file=sys.stderr)
            told = True
        time.sleep(MORE_EVERY)


def announce(study: Study, root: Path, resources: Resources, more: bool) -> list[CellState]:
    """Tell those who join the study whether more runs may come when all are done; states of its cells so far.

    The jobs of a cluster get no note: they leave, and every look submits its own.
    """
    queue = make_queue(study, root, resources, print)
    if resources.cluster is None:
        queue.note(MORE, more)
    return queue.states()
