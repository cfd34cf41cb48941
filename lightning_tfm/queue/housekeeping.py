"""Housekeeping over the runs of a results folder: list, retry, remove, and free disk space."""

import re
import shutil
import stat
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning_tfm.atomic_io import TEMPORARY
from lightning_tfm.errors import UserError
from lightning_tfm.runs.folder import RunFolder, find_run, read_json, run_folders
from lightning_tfm.study.study_file import folder_of
from lightning_tfm.watch.run_state import RunState

TRASH = ".trash-"
OLD = 3600.0
"""seconds without a write after which something unfinished counts as left behind"""
Garbage = tuple[Path, int, str]
"""what can go, its bytes, and why"""


def list_runs(root: Path) -> list[dict[str, Any]]:
    """All runs of a results folder, the newest last. One whose records are damaged is listed as such."""
    cells = _cells(root)
    runs = [_info(RunFolder(root, path.name), cells.get(path.name, [])) for path in run_folders(root)]
    return sorted(runs, key=lambda run: (run["time"], run["run"]))


def retry(root: Path, start: str, storage: str = "") -> int:
    """Queue the failed cells of a study again, or of a run, in every study of `root` that holds it; returns how many.

    `start`: a study's name, or the start of a run's.

    `storage` is the address of the database of studies that were started on one, where the one that they remember is
    not enough (it has no password). Raises UserError where a study's queue cannot be opened.
    """
    from lightning_tfm.queue.storage import in_journal
    from lightning_tfm.queue.studies import open_queue

    if (folder := folder_of(root, start)).is_dir():
        return open_queue(root, start, "" if in_journal(folder) else storage, write=True).retry()
    name = find_run(root, start).path.name
    by_study = {path.parents[2]: _hash(path) for path in _links(root) if _hash(path)[:16] == name}
    queued = 0
    for study, training_hash in sorted(by_study.items()):
        queue = open_queue(root, study.name, "" if in_journal(study) else storage, write=True)
        queued += queue.retry(training_hash)
    return queued


def remove(root: Path, start: str, force: bool = False) -> Path:
    """Remove a run with everything in it; returns its path. Raises RunIsOwned while a process works on it.

    Raises UserError where a study uses it, unless `force`: the study's table has a gap then, and its command trains the
    run again.
    """
    folder = find_run(root, start)
    users = _cells(root).get(folder.path.name, [])
    if users and not force:
        raise UserError(
            f"{folder.path} is used by {', '.join(users)}: removing it leaves a gap, and it is trained "
            "again the next time the study runs. To remove it anyway, give --force"
        )
    folder.claim()  # so that a stopped process can no longer write into it
    trash = folder.path.with_name(f"{TRASH}{folder.path.name}-{uuid.uuid4().hex[:8]}")
    folder.path.rename(trash)  # in one step: nobody sees half a run
    shutil.rmtree(trash)
    return folder.path


def gc(root: Path, dry_run: bool = True) -> list[Garbage]:
    """What can go: checkpoints of finished runs, temporary files and folders that a crash left, unused data stores.

    Weights under snapshots/ stay, as do checkpoints of a run whose record is damaged, which `list_runs` names. Removes
    nothing unless `dry_run` is False.
    """
    garbage = [item for path in run_folders(root) for item in _run_garbage(RunFolder(root, path.name))]
    garbage += [_item(path, "half-removed run") for path in sorted((root / "runs").glob(f"{TRASH}*"))]
    halves = (root / "studies").rglob(f".*{TEMPORARY}")
    garbage += [_item(path, "half-written file") for path in halves if _old(path)]
    garbage += _data_garbage(root)
    if not dry_run:
        for path, _, _ in garbage:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    return garbage


def _run_garbage(folder: RunFolder) -> list[Garbage]:
    if folder.owner() is not None:
        return []
    garbage = [_item(path, "half-written file") for path in folder.path.rglob(f".*{TEMPORARY}") if _old(path)]
    try:
        finished = folder.finished()
    except UserError:
        finished = False
    if finished:
        checkpoints = sorted(folder.checkpoints.glob("*"))
        whole = [path for path in checkpoints if path.suffix == ".ckpt"]
        needed = [] if any(folder.snapshots.glob("*")) else whole[-1:]  # the weights of the last step
        garbage += [_item(path, "checkpoint of a finished run") for path in checkpoints if path not in needed]
    return garbage


def _data_garbage(root: Path) -> list[Garbage]:
    """Data stores that no run or study mentions, by name or by a hash on the store's card; half-built ones."""
    stores = [path for path in sorted((root / "data").glob("*")) if path.is_dir()]
    records = [*(root / "runs").glob("*/*.json"), *(root / "studies").glob("*/*.json")]
    text = "\n".join(path.read_text() for path in records)
    unused = [path for path in stores if not any(name in text for name in _names_of(path)) and _old(path)]
    return [_item(path, "data store that no run refers to") for path in unused]


def _names_of(store: Path) -> list[str]:
    card = store / "card.json"
    return [store.name, *re.findall(r"\b[0-9a-f]{64}\b", card.read_text() if card.exists() else "")]


def _info(folder: RunFolder, cells: list[str]) -> dict[str, Any]:
    """`cells`: study/row/seed that link to it; row/seed as given to `fit` where no study does."""
    run = RunState.of(folder.path)
    failed = run.outcome if run.state == "failed" else None
    return {
        "run": folder.path.name,
        "state": run.state,
        "reason": f"{failed.outcome}: {failed.reason}" if failed else run.words,
        "step": run.step,
        "steps": run.steps,
        "attempts": folder.newest(),
        "cells": cells or ([f"{run.called.row}/{run.called.seed}"] if run.called else []),
        "bytes": _size(folder.path),
        "owner": run.owner if run.state == "running" else None,
        "time": run.record.ended if run.record and run.record.ended is not None else _last_write(folder),
        "ppl": run.ppl,
        "scores": run.scores,
    }


def _last_write(folder: RunFolder) -> float:
    records = (folder.result, folder.outcome, folder.progress, folder.metrics, folder.path)
    return max(path.stat().st_mtime for path in records if path.exists())


def _links(root: Path) -> list[Path]:
    return sorted((root / "studies").glob("*/cells/*/*.json"))


def _hash(link: Path) -> str:
    """Training hash of the run that a cell of a study links to. Raises UserError."""
    content = read_json(link)
    if not isinstance(content, dict) or not isinstance(content.get("training_hash"), str):
        raise UserError(f"{link}: damaged; remove it: the command that started the study writes it again")
    return content["training_hash"]


def _cells(root: Path) -> dict[str, list[str]]:
    """Name of a run -> the cells that link to it."""
    cells: dict[str, list[str]] = {}
    for path in _links(root):
        cells.setdefault(_hash(path)[:16], []).append(f"{path.parents[2].name}/{path.parent.name}/{path.stem}")
    return cells


def _item(path: Path, why: str) -> Garbage:
    return path, _size(path), why


def _size(path: Path) -> int:
    """Bytes of what is there: a run that trains renames and removes files while they are counted."""
    size = 0
    for file in [path, *path.rglob("*")]:
        with suppress(FileNotFoundError):
            status = file.lstat()
            size += status.st_size * stat.S_ISREG(status.st_mode)
    return size


def _old(path: Path) -> bool:
    """False also where it vanishes while it is looked at."""
    try:
        newest = max(p.stat().st_mtime for p in [path, *path.rglob("*")])
    except FileNotFoundError:
        return False
    return time.time() - newest > OLD
