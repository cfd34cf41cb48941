"""Files that others are writing, read again only when they have changed; the attempts at a run. Nothing here writes."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from lightning_tfm.runs.folder import GRACE
from lightning_tfm.runs.record import Claimed, read_small

Content = TypeVar("Content")
Stamp = tuple[int, int, int] | None
"""What shows that a file has changed: time of its last change in nanoseconds, size, inode; None: no file"""


def stamp(path: Path | str) -> Stamp:
    """The stamp of a file or folder; None if there is none, or none that may be read."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


class Cached(Generic[Content]):
    """What `read` made of a file, until the file changes, `absent` where there is none; for the `most` that were
    requested last."""

    def __init__(self, read: Callable[[Any], Content], absent: Content, most: int = 100_000) -> None:
        self._read, self._absent = lru_cache(most)(lambda path, stamped: read(path)), absent

    def __call__(self, path: Path | str) -> Content:
        now = stamp(path)  # taken first: a file that changes while being read is read again
        return self._absent if now is None else self._read(path, now)


class Lines:
    """A file of JSON objects, one a line, that grows at its end or is replaced: each line is read once.

    A last line that is still being written waits for the next look. One that is not an object, or not `whole`, is
    omitted and counted.
    """

    def __init__(self, path: Path | str, whole: Callable[[list[dict[str, Any]]], bool] = lambda records: True) -> None:
        self._path, self._whole = path, whole
        self._begin()

    def _begin(self) -> None:
        self._stamp: Stamp = None
        self._read = self._count = self._first = 0
        self.records: list[dict[str, Any]] = []
        self.damaged = 0
        """lines that were left out"""

    def look(self) -> None:
        """Read what came since the last look."""
        now = stamp(self._path)
        if now == self._stamp:
            return
        if now is None or self._stamp is None or now[2] != self._stamp[2] or now[1] < self._read:
            self._begin()
        try:
            with open(self._path, "rb", buffering=0) as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return
        self._stamp = now
        data = data[: data.rfind(b"\n") + 1]
        self._read += len(data)
        objects = _at_once(data)
        if objects and self._whole(objects):
            self._count += len(objects)
            self.records += objects
            return
        for line in data.split(b"\n")[:-1]:
            self._take(_object(line))

    def _take(self, record: dict[str, Any] | None) -> None:
        self._count += 1
        if record is not None and self._whole([record]):
            self.records.append(record)
            return
        self.damaged += 1
        self._first = self._first or self._count

    @property
    def words(self) -> str:
        """What is damaged; empty for nothing."""
        if not self.damaged:
            return ""
        lines = "1 damaged line" if self.damaged == 1 else f"{self.damaged} damaged lines"
        return f"{os.path.basename(self._path)}: {lines} left out, the first is line {self._first}"


def _at_once(data: bytes) -> list[dict[str, Any]]:
    """The object of each of these lines, read as one array in a quarter of the time; empty if that does not show each
    by itself.

    Every line holds one opening brace, its first character: equally many objects and lines mean one in each.
    """
    from pydantic_core import from_json  # a third of json's time, and useless to those who read no curve

    count = data.count(b"\n")
    if data[:1] != b"{" or data.count(b"{") != count or data.count(b"\n{") != count - 1:
        return []
    try:
        objects = from_json(b"[%b]" % data[:-1].replace(b"\n", b",\n"))
    except ValueError:
        return []
    return objects if len(objects) == count and all(type(value) is dict for value in objects) else []


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def tail(path: Path, lines: int, most: int = 65_536) -> str:
    """The last lines of a text; empty where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            rest = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(rest[-lines:])


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none or it holds something else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class AttemptView:
    """One of the attempts at a run. Times are seconds since 1970."""

    number: int
    started: float
    ended: float | None
    owner: str
    heard: float | None
    """last heartbeat, while it has not ended"""
    alive: bool
    """by this machine's clock, where `RunFolder.owner` asks the file server's"""
    surely_over: bool
    """it will not come back: it ended, or its process on this machine is gone"""


def read_attempts(folder: Path) -> list[AttemptView]:
    """The attempts at the run in `folder`, oldest first; those whose record is half-written are left out."""
    try:
        files = sorted((folder / "attempts").glob("[0-9]*.json"))
    except OSError:
        return []
    views = [_attempt(file) for file in files]
    return [view for view in views if view is not None]


def _attempt(file: Path) -> AttemptView | None:
    try:
        record = read_small(Claimed, file)
    except ValueError:
        return None
    if record is None:
        return None
    try:
        heard = file.with_suffix(".beat").stat().st_mtime
    except OSError:
        heard = None
    over = record.ended is not None or record.owner.gone()
    silent = heard is None or time.time() - heard > GRACE
    alive = not over and not silent
    return AttemptView(record.number, record.time, record.ended, str(record.owner), heard, alive, over)
