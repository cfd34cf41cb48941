"""Housekeeping over the runs of a results folder: list, retry, remove, and give disk space back."""

import re
import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from lightning_tfm.errors import UserError, nearest
from lightning_tfm.study.files import TEMPORARY
from lightning_tfm.study.folder import RunFolder, read_json
from lightning_tfm.study.owner import Owner

TRASH = ".trash-"
OLD = 3600.0
"""seconds without a write after which something unfinished is taken for left behind"""


@dataclass(frozen=True)
class RunInfo:
    """One line of `runs list`."""

    run: str
    """first 16 hex digits of the training hash"""
    state: str
    """finished, running, interrupted, failed or empty"""
    reason: str
    step: int | None
    steps: int | None
    attempts: int
    cells: list[str]
    """study/row/seed that link to it"""
    bytes: int
    owner: Owner | None


@dataclass(frozen=True)
class Garbage:
    """Something that `gc` would remove."""

    path: Path
    bytes: int
    why: str


def list_runs(root: Path) -> list[RunInfo]:
    """All runs of a results folder, by name."""
    cells = _cells(root)
    return [_info(RunFolder(root, path.name), cells.get(path.name, [])) for path in _run_folders(root)]


def find_run(root: Path, start: str) -> RunFolder:
    """The run whose name starts with `start`. Raises UserError where there is none or several."""
    names = [path.name for path in _run_folders(root)]
    found = [name for name in names if name.startswith(start[:16])]
    if len(found) != 1:
        what = f"several: {', '.join(found)}" if found else f"none; {nearest(start, names)}" if names else "none"
        raise UserError(f"run '{start}' under {root / 'runs'}: {what}")
    return RunFolder(root, found[0])


def retry(root: Path, start: str, storage: str = "") -> int:
    """Queue the failed cells of a run again, in every study of `root` that holds it; returns how many.

    `storage` is the address of the database of studies that were started on one, where the one that they remember will
    not do (it has no password). Raises UserError where a study's queue cannot be opened.
    """
    from lightning_tfm.study.queues import open_queue
    from lightning_tfm.study.storage import in_journal

    name = find_run(root, start).path.name
    found = {path.parents[2]: _hash(path) for path in _links(root) if _hash(path)[:16] == name}
    queued = 0
    for study, training_hash in sorted(found.items()):
        queue = open_queue(root, study.name, "" if in_journal(study) else storage)
        queued += queue.retry(training_hash)
    return queued


def remove(root: Path, start: str) -> Path:
    """Remove a run with everything in it; returns its path. Raises RunIsOwned while a process works on it.

    A study that links to it runs it again when it is started the next time.
    """
    folder = find_run(root, start)
    folder.claim()  # so that a process that was stopped cannot write into it any more
    trash = folder.path.with_name(f"{TRASH}{folder.path.name}-{uuid.uuid4().hex[:8]}")
    folder.path.rename(trash)  # in one step: nobody sees half a run
    shutil.rmtree(trash)
    return folder.path


def gc(root: Path, dry_run: bool = True) -> list[Garbage]:
    """What can go: checkpoints of finished runs, temporary files and folders that a crash left, unused data stores.

    Weights under snapshots/ stay. Removes nothing unless `dry_run` is False.
    """
    garbage = [item for path in _run_folders(root) for item in _run_garbage(RunFolder(root, path.name))]
    garbage += [_item(path, "half removed run") for path in sorted((root / "runs").glob(f"{TRASH}*"))]
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
    if folder.finished():
        checkpoints = sorted(folder.checkpoints.glob("*"))
        keep = 0 if any(folder.snapshots.glob("*")) else 1  # the weights of the last step
        garbage += [_item(path, "checkpoint of a finished run") for path in checkpoints[: len(checkpoints) - keep]]
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
    progress, outcome, owner = folder.read_progress(), folder.read_outcome(), folder.owner()
    reason = ""
    if folder.finished():
        state = "finished"
    elif owner is not None:
        state = "running"
    elif outcome is not None and outcome["outcome"] != "interrupted":
        state, reason = "failed", f"{outcome['outcome']}: {outcome['reason']}"
    else:
        state = "interrupted" if progress else "empty"
    step, steps = (progress["step"], progress["steps"]) if progress else (None, None)
    size = _size(folder.path)
    return RunInfo(folder.path.name, state, reason, step, steps, folder.newest(), cells, size, owner)


def _run_folders(root: Path) -> list[Path]:
    return sorted(path for path in (root / "runs").glob("[0-9a-f]*") if path.is_dir())


def _links(root: Path) -> list[Path]:
    return sorted((root / "studies").glob("*/cells/*/*.json"))


def _hash(link: Path) -> str:
    """Training hash of the run that a cell of a study links to. Raises UserError."""
    found = read_json(link)
    if not isinstance(found, dict) or "training_hash" not in found:
        raise UserError(f"{link}: damaged; remove it: the command that started the study writes it anew")
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
