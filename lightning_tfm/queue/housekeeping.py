"""Housekeeping over the runs of a results folder: list, retry, remove, and free disk space."""

import re
import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_tfm.durable import TEMPORARY
from lightning_tfm.errors import UserError
from lightning_tfm.runs.directory import RunFolder, find_run, read_json, run_folders
from lightning_tfm.runs.owner import Owner
from lightning_tfm.runs.record import LastWords, Progress, RunRecord

TRASH = ".trash-"
OLD = 3600.0
"""seconds without a write after which something unfinished counts as left behind"""


@dataclass(frozen=True)
class RunInfo:
    """One line of `runs list`."""

    run: str
    """first 16 hex digits of the training hash"""
    state: str
    """finished, running, interrupted, stopped early, failed, empty, or damaged where a record cannot be read"""
    reason: str
    step: int | None
    steps: int | None
    attempts: int
    cells: list[str]
    """study/row/seed that link to it; row/seed as `fit` was asked for it where no study does"""
    bytes: int
    owner: Owner | None
    time: float
    """when it ended, or was last written to; seconds since 1970"""
    ppl: float | None
    """on the dev set, as is `bleu`"""
    bleu: float | None


@dataclass(frozen=True)
class Garbage:
    """Something that `gc` would remove."""

    path: Path
    bytes: int
    why: str


def list_runs(root: Path) -> list[RunInfo]:
    """All runs of a results folder, the newest last. One whose records are damaged is listed as such."""
    cells = _cells(root)
    found = [_info(RunFolder(root, path.name), cells.get(path.name, [])) for path in run_folders(root)]
    return sorted(found, key=lambda info: (info.time, info.run))


def retry(root: Path, start: str, storage: str = "") -> int:
    """Queue the failed cells of a run again, in every study of `root` that holds it; returns how many.

    `storage` is the address of the database of studies that were started on one, where the one that they remember will
    not do (it has no password). Raises UserError where a study's queue cannot be opened.
    """
    from lightning_tfm.queue.open import open_queue
    from lightning_tfm.queue.storage import in_journal

    name = find_run(root, start).path.name
    found = {path.parents[2]: _hash(path) for path in _links(root) if _hash(path)[:16] == name}
    queued = 0
    for study, training_hash in sorted(found.items()):
        queue = open_queue(root, study.name, "" if in_journal(study) else storage)
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
    folder.claim()  # so that a process that was stopped cannot write into it any more
    trash = folder.path.with_name(f"{TRASH}{folder.path.name}-{uuid.uuid4().hex[:8]}")
    folder.path.rename(trash)  # in one step: nobody sees half a run
    shutil.rmtree(trash)
    return folder.path


def gc(root: Path, dry_run: bool = True) -> list[Garbage]:
    """What can go: checkpoints of finished runs, temporary files and folders that a crash left, unused data stores.

    Weights under snapshots/ stay, and checkpoints of a run whose record is damaged, which `list_runs` names. Removes
    nothing unless `dry_run` is False.
    """
    garbage = [item for path in run_folders(root) for item in _run_garbage(RunFolder(root, path.name))]
    garbage += [_item(path, "half-removed run") for path in sorted((root / "runs").glob(f"{TRASH}*"))]
    garbage += _data_garbage(root)
    if not dry_run:
        for item in garbage:
            if item.path.is_dir():
                shutil.rmtree(item.path)
            else:
                item.path.unlink(missing_ok=True)
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
        kept = [] if any(folder.snapshots.glob("*")) else whole[-1:]  # the weights of the last step
        garbage += [_item(path, "checkpoint of a finished run") for path in checkpoints if path not in kept]
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


def _info(folder: RunFolder, cells: list[str]) -> RunInfo:
    found: dict[str, Any] = dict.fromkeys(("step", "steps", "ppl", "bleu"))
    found |= {"time": _last_write(folder), "owner": folder.owner(), "cells": cells}
    try:
        found |= _read(folder, found["owner"]) | {"cells": cells or _asked(folder)}
    except UserError as error:
        found |= {"state": "damaged", "reason": str(error)}
    except (AttributeError, KeyError, TypeError) as error:
        found |= {"state": "damaged", "reason": f"a record was damaged: {error!r}"}
    return RunInfo(run=folder.path.name, attempts=folder.newest(), bytes=_size(folder.path), **found)


def _read(folder: RunFolder, owner: Owner | None) -> dict[str, Any]:
    """What the records of a run say. Raises UserError or whatever a malformed record causes."""
    progress, outcome, result = folder.read_progress(), folder.read_outcome(), folder.read_result()
    state, reason = _state(result, owner, outcome, progress)
    found: dict[str, Any] = {"state": state, "reason": reason}
    if progress:
        found |= {"step": progress.step, "steps": progress.steps}
    if result and result.ended is not None:
        found["time"] = result.ended
    if result and "dev" in result.scores:
        found |= {"ppl": result.scores["dev"].ppl, "bleu": result.scores["dev"].bleu}
    return found


def _state(
    result: RunRecord | None,
    owner: Owner | None,
    outcome: LastWords | None,
    progress: Progress | None,
) -> tuple[str, str]:
    """State and reason."""
    if result is not None:
        return "finished", ""
    if owner is not None:
        return "running", ""
    if outcome is None or outcome.outcome == "interrupted":
        return "interrupted" if progress else "empty", ""
    if outcome.outcome == "pruned":
        return "stopped early", outcome.reason
    return "failed", f"{outcome.outcome}: {outcome.reason}"


def _asked(folder: RunFolder) -> list[str]:
    """How `fit` was asked for it; nothing for runs of before this was written down."""
    asked = folder.read_called()
    return [f"{asked.row}/{asked.seed}"] if asked else []


def _last_write(folder: RunFolder) -> float:
    records = (folder.result, folder.outcome, folder.progress, folder.metrics, folder.path)
    return max(path.stat().st_mtime for path in records if path.exists())


def _links(root: Path) -> list[Path]:
    return sorted((root / "studies").glob("*/cells/*/*.json"))


def _hash(link: Path) -> str:
    """Training hash of the run that a cell of a study links to. Raises UserError."""
    found = read_json(link)
    if not isinstance(found, dict) or not isinstance(found.get("training_hash"), str):
        raise UserError(f"{link}: damaged; remove it: the command that started the study writes it again")
    return found["training_hash"]


def _cells(root: Path) -> dict[str, list[str]]:
    """Name of a run -> the cells that link to it."""
    cells: dict[str, list[str]] = {}
    for path in _links(root):
        cells.setdefault(_hash(path)[:16], []).append(f"{path.parents[2].name}/{path.parent.name}/{path.stem}")
    return cells


def _item(path: Path, why: str) -> Garbage:
    return Garbage(path, _size(path), why)


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file() and not p.is_symlink()]
    return sum(file.stat().st_size for file in files)


def _old(path: Path) -> bool:
    newest = max(p.stat().st_mtime for p in [path, *path.rglob("*")])
    return time.time() - newest > OLD
