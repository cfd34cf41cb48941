"""A row is hidden from a study's table, or shown again. Runs do not know the names of rows, so all of them stay."""

import shutil
from pathlib import Path

from lightning_tfm.atomic_io import to_json, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.queue.studies import has_queue, open_queue
from lightning_tfm.runs.folder import RunFolder, read_json
from lightning_tfm.study.row_tuning import FILE
from lightning_tfm.study.rows import find_row
from lightning_tfm.study.study import LOOKS, Ablation, Study, own_name
from lightning_tfm.study.study_file import amend, folder_of, link, load


def hide(root: Path, name: str, row: str, storage: str = "") -> str:
    """Hide a row of a study; returns the name that it has among the hidden ones. The same call finishes an interrupted
    one. Raises UserError where the study has no such row, must keep it, or works on it.
    """
    ablation = _ablation(load(root, name))
    apart = ablation.hiding(row).hidden[-1].name  # refused before anything is written
    folder = folder_of(root, name)
    if (folder / LOOKS).is_file():
        raise UserError(f"study '{name}': its rows are fixed, as its p-values are corrected for looking at all of them")
    queue = open_queue(root, name, storage, write=True) if has_queue(root, name, storage) else None
    if queue is not None:
        queue.hide(row)
    shutil.rmtree(folder / "cells" / row, ignore_errors=True)
    _rename_tuned(folder, row, apart)
    study = amend(root, name, lambda study: _ablation(study).hiding(row))
    if queue is not None and queue.note_of("definition") is not None:
        queue.note("definition", study.to_plain())
    return apart


def show(root: Path, name: str, row: str, storage: str = "") -> str:
    """Show a hidden row again; returns its name. Its finished runs are there, others are trained by the next sweep.

    Raises UserError where it is not hidden, or its name is taken.
    """
    before = _ablation(load(root, name))
    after = before.showing(row)
    [hidden] = [row for row in before.hidden if row not in after.hidden]
    study = amend(root, name, lambda study: _ablation(study).showing(row))
    back = find_row({row.name: row for row in study.rows}, own_name(hidden))
    folder = folder_of(root, name)
    _rename_tuned(folder, hidden.name, back.name)
    for seed in study.seeds:
        if RunFolder(root, (cell := study.cell(back, seed)).training_hash).finished():
            link(folder, cell)
    queue = open_queue(root, name, storage, write=True) if has_queue(root, name, storage) else None
    if queue is not None and queue.note_of("definition") is not None:
        queue.note("definition", study.to_plain())
    return back.name


def _ablation(study: Study) -> Ablation:
    if not isinstance(study, Ablation):
        raise UserError(f"study '{study.name}' is a search: it has trials, no rows")
    return study


def _rename_tuned(folder: Path, row: str, to: str) -> None:
    """What the value of a row was chosen by counts in every test, hidden or not."""
    if tuning := read_json(folder / FILE):
        rows = [choice | {"row": to} if choice["row"] == row else choice for choice in tuning["rows"]]
        write_atomic(folder / FILE, to_json(tuning | {"rows": rows}))
