"""A row leaves a study, or is renamed in it. Runs do not know the names of rows, so all of them stay."""

import shutil
from pathlib import Path

from lightning_tfm.durable import to_json, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.queue.open import has_queue, open_queue
from lightning_tfm.runs.directory import read_json
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.study import LOOKS, Ablation, Study, amend, file_of, folder_of, link, load, load_as
from lightning_tfm.study.tuned import FILE


def move(root: Path, name: str, row: str, to: str | None, storage: str = "") -> None:
    """Rename a row of a study to `to`, or take it out where that is None; the same call finishes an interrupted one.

    Raises UserError where the study has no such row, must keep it, or works on it.
    """
    if to is not None and (to != Path(to).name or to.startswith(".")):
        raise UserError(f"'{to}' is not a valid name of a row: it is also the name of a folder")

    def change(study: Study) -> Ablation:
        if not isinstance(study, Ablation):
            raise UserError(f"study '{name}' is a search: it has trials, no rows")
        return study.renamed(row, to)

    change(load(root, name))  # refused before anything is written
    folder = folder_of(root, name)
    looks, tuning = read_json(folder / LOOKS), read_json(folder / FILE)
    parts = [*looks["looks"], looks["asked"] or {}] if looks else []
    if looks and (to is None or any(to in part for part in parts)):
        raise UserError(f"study '{name}': its rows are fixed, as its p-values are corrected for looking at all of them")
    if tuning:
        tried = load_as(Ablation, root, tuning["study"]).rows if file_of(root, tuning["study"]).is_file() else []
        for one in tried:
            own, comma, value = one.name.rpartition(", ")
            if own == row:
                move(root, tuning["study"], one.name, None if to is None else to + comma + value, storage)
        rows = [one | {"row": to} if one["row"] == row else one for one in tuning["rows"]]
        write_atomic(folder / FILE, to_json(tuning | {"rows": [one for one in rows if one["row"] is not None]}))
    queue = open_queue(root, name, storage) if has_queue(root, name, storage) else None
    if queue is not None:
        queue.move(row, to)
    for path in sorted((folder / "cells" / row).glob("*.json")):
        if to is not None and (found := read_json(path)):
            link(folder, Cell(to, found["seed"], found["training_hash"], 0.0))
    shutil.rmtree(folder / "cells" / row, ignore_errors=True)
    if looks:
        *before, asked = [{to if name == row else name: seeds for name, seeds in part.items()} for part in parts]
        write_atomic(folder / LOOKS, to_json(looks | {"looks": before, "asked": looks["asked"] and asked}))
    study = amend(root, name, change)
    if queue is not None and queue.noted("definition") is not None:
        queue.note("definition", study.to_plain())
