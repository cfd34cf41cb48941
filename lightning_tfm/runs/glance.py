"""The attempts at a run as others see them; nothing is written, as it is where a process asks in order to claim it."""

import time
from dataclasses import dataclass
from pathlib import Path

from lightning_tfm.runs.directory import GRACE
from lightning_tfm.runs.record import Claimed, read_small


@dataclass(frozen=True)
class AttemptView:
    """One of the attempts. Times are seconds since 1970."""

    number: int
    started: float
    ended: float | None
    owner: str
    heard: float | None
    """last heartbeat, while it has not ended"""
    alive: bool
    """by this machine's clock, where `RunFolder.owner` asks the file server's"""
    surely_over: bool
    """it will not come back to life: it ended, or its process on this machine is gone"""


def read_attempts(folder: Path) -> list[AttemptView]:
    """The attempts at the run in `folder`, oldest first; those whose record is half-written are left out."""
    try:
        files = sorted((folder / "attempts").glob("[0-9]*.json"))
    except OSError:
        return []
    found = [_attempt(file) for file in files]
    return [one for one in found if one is not None]


def is_alive(folder: Path) -> bool:
    """Whether a living process works on the run."""
    attempts = read_attempts(folder)
    return bool(attempts) and attempts[-1].alive


def is_left_behind(folder: Path) -> bool:
    """Whether the newest attempt at the run did not end, and nobody works on it."""
    attempts = read_attempts(folder)
    return bool(attempts) and attempts[-1].ended is None and not attempts[-1].alive


def _attempt(file: Path) -> AttemptView | None:
    try:
        found = read_small(Claimed, file)
    except ValueError:
        return None
    if found is None:
        return None
    try:
        heard = file.with_suffix(".beat").stat().st_mtime
    except OSError:
        heard = None
    over = found.ended is not None or found.owner.gone()
    silent = heard is None or time.time() - heard > GRACE
    alive = not over and not silent
    return AttemptView(found.number, found.time, found.ended, str(found.owner), heard, alive, over)
