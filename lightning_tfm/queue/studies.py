"""The studies of a results folder: the queue of each, wherever it is kept, how far all of them are, their rows."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning_tfm.atomic_io import to_json, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.resources import Resources
from lightning_tfm.queue.storage import JOURNAL, address_of_queue, find_storage
from lightning_tfm.runs.folder import RunFolder, read_json
from lightning_tfm.runs.outcome import say
from lightning_tfm.study.row_tuning import FILE
from lightning_tfm.study.rows import find_row
from lightning_tfm.study.sequential import planned_cells
from lightning_tfm.study.study import LOOKS, Ablation, Study, own_name
from lightning_tfm.study.study_file import amend, check_exists, file_of, folder_of, from_plain, link, load, load_as
from lightning_tfm.watch.run_state import Runs
from lightning_tfm.watch.study_state import CellState, StudyState, Watch


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
    queue = Queue(name, find_storage(address_of_queue(storage, folder), folder, write), say, create=False)
    if file_of(root, name).is_file() or queue.note_of("definition") is not None:
        queue.budget = study_of(queue, root).budget
    return queue


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


def state_without_queue(study: Study, root: Path, runs: Runs) -> StudyState | None:
    """A table that came without a queue, as shown by its `runs`; None where none of them is finished."""
    cells = planned_cells(study, root) if isinstance(study, Ablation) else []
    state = Watch(root, study=study, runs=runs).look([CellState(cell) for cell in cells])
    return state if state.counts["finished"] else None


def list_studies(root: Path) -> list[dict[str, Any]]:
    """All studies below `root`, the newest last, as `status --json` shows them. One that cannot be read says why."""
    runs = Runs(root, curves=False)  # whose curves no line shows
    studies = [_info(root, path.parent.name, runs) for path in (root / "studies").glob("*/study.json")]
    return sorted(studies, key=lambda study: (study["time"], study["name"]))


def _info(root: Path, name: str, runs: Runs) -> dict[str, Any]:
    """`whole`: cells of a table, trials that a search makes; `time`: when any of it was last written."""
    folder = folder_of(root, name)
    kind, counts, whole, trouble, state = "", dict[str, int](), 0, "", "waiting"
    try:
        study = load(root, name)
        kind, whole = study.KIND, study.budget or len(planned_cells(study, root))
        if has_queue(root, name):
            states = open_queue(root, name, say=lambda text: None).states()
            looked = Watch(root, study=study, runs=runs).look(states) if states else None
        else:
            looked = state_without_queue(study, root, runs)
        if looked is not None:
            counts = {word: number for word, number in looked.counts.items() if number}
            whole = looked.total if study.budget else max(whole, len(looked.cells))
            state = "interrupted" if looked.state == "finished" and looked.ended < whole else looked.state
    except UserError as error:
        trouble, state = str(error), "unknown"
    except Exception as error:  # a database that is away, a journal of another program: the other studies are listed
        trouble, state = f"{type(error).__name__}: {error}", "unknown"
    written = max(path.stat().st_mtime for path in folder.iterdir() if path.is_file())
    said = {"name": name, "kind": kind, "counts": counts, "whole": whole}
    return said | {"time": written, "trouble": trouble, "state": state}


# --- a row is hidden from a table, or shown again: runs do not know the names of rows, so all of them stay ---


def hide(root: Path, name: str, row: str, storage: str = "") -> str:
    """Hide a row of a study; returns the name that it has among the hidden ones. The same call finishes an interrupted
    one. Raises UserError where the study has no such row, must keep it, or works on it.
    """
    apart = load_as(Ablation, root, name).hiding(row).hidden[-1].name  # refused before anything is written
    folder = folder_of(root, name)
    if (folder / LOOKS).is_file():
        raise UserError(f"study '{name}': its rows are fixed, as its p-values are corrected for looking at all of them")
    queue = open_queue(root, name, storage, write=True) if has_queue(root, name, storage) else None
    if queue is not None:
        queue.hide(row)
    shutil.rmtree(folder / "cells" / row, ignore_errors=True)
    _rename_tuned(folder, row, apart)
    _redefine(queue, amend(Ablation, root, name, lambda study: study.hiding(row)))
    return apart


def show(root: Path, name: str, row: str, storage: str = "") -> str:
    """Show a hidden row again; returns its name. Its finished runs are there, others are trained by the next sweep.

    Raises UserError where it is not hidden, or its name is taken.
    """
    before = load_as(Ablation, root, name)
    after = before.showing(row)
    [hidden] = [row for row in before.hidden if row not in after.hidden]
    study = amend(Ablation, root, name, lambda study: study.showing(row))
    back = find_row({row.name: row for row in study.rows}, own_name(hidden))
    folder = folder_of(root, name)
    _rename_tuned(folder, hidden.name, back.name)
    for seed in study.seeds:
        if RunFolder(root, (cell := study.cell(back, seed)).training_hash).finished():
            link(folder, cell)
    _redefine(open_queue(root, name, storage, write=True) if has_queue(root, name, storage) else None, study)
    return back.name


def _redefine(queue: Queue | None, study: Study) -> None:
    """Where the storage holds the study's definition, let it hold this one."""
    if queue is not None and queue.note_of("definition") is not None:
        queue.note("definition", study.to_plain())


def _rename_tuned(folder: Path, row: str, to: str) -> None:
    """What the value of a row was chosen by counts in every test, hidden or not."""
    if tuning := read_json(folder / FILE):
        rows = [choice | {"row": to} if choice["row"] == row else choice for choice in tuning["rows"]]
        write_atomic(folder / FILE, to_json(tuning | {"rows": rows}))
