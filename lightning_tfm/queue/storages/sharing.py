"""Studies whose workers share no files: what a machine needs to know about the others goes through the storage."""

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

from lightning_tfm.atomic_io import write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.queue.queue import Queue
from lightning_tfm.runs.folder import Attempt, RunFolder, RunIsOwned

PROOF = "shared"
"""file in a study's folder with a token that the storage holds too"""


def publish(queue: Queue, folder: Path, definition: dict[str, Any]) -> None:
    """Put the definition into the storage, and a token into the folder by which others see that they share it."""
    if queue.note_of("definition") != definition:
        queue.note("definition", definition)
    if queue.note_of(PROOF) is None:
        queue.note(PROOF, uuid.uuid4().hex)
    if not (folder / PROOF).exists():
        write_atomic(folder / PROOF, queue.note_of(PROOF).encode())


def shares_files(queue: Queue, folder: Path) -> bool:
    """Whether this machine sees the folder of the study's first launcher."""
    word = queue.note_of(PROOF)
    return word is not None and (folder / PROOF).is_file() and (folder / PROOF).read_text() == word


def check_shared(queue: Queue, folder: Path) -> None:
    """Raise UserError unless this machine sees the study's folder."""
    if not shares_files(queue, folder):
        raise UserError(
            f"{folder} is not the folder in which the study '{queue.name}' was started: give that one with --out, or "
            "work without it (--no-shared-files: a run lost elsewhere then starts over here)"
        )


def fetch(queue: Queue, root: Path) -> int:
    """Write the records that came from machines with other files below `root`; returns how many."""
    count = 0
    for name, record in queue.shared_records():
        folder = RunFolder(root, name)
        if folder.finished():
            continue
        try:
            attempt = folder.claim()
        except RunIsOwned:
            continue
        _clear(attempt)
        attempt.write_json(folder.identity, record["identity"])
        attempt.write_json(folder.experiment, record["experiment"])
        attempt.write_json(folder.result, json.loads(json.dumps(record)))
        attempt.release()
        count += 1
    return count


def _clear(attempt: Attempt) -> None:
    """Drop the curve and the weights of a try that was lost here: the incoming record is not theirs."""
    with attempt.guard():
        attempt.folder.metrics.unlink(missing_ok=True)
        (attempt.folder.path / "samples.jsonl").unlink(missing_ok=True)
    for part in (attempt.folder.checkpoints, attempt.folder.snapshots):
        if part.exists():
            with attempt.guard():
                shutil.rmtree(part)
