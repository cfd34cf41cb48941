"""Files that others are writing, read again only when they have changed. Nothing here writes."""

import json
import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

Found = TypeVar("Found")
Stamp = tuple[int, int, int] | None
"""What tells a file from what it was before: time of its last change in nanoseconds, size, inode; None: no file"""


def stamp(path: Path | str) -> Stamp:
    """The stamp of a file or folder; None where there is none, or none that may be looked at."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class Kept(Generic[Found]):
    """What `read` made of a file, until the file is another one; of the `most` that were asked for last."""

    def __init__(self, read: Callable[[Path], Found], most: int = 100_000) -> None:
        self._read, self._most = read, most
        self._known: OrderedDict[Path, tuple[Stamp, Found]] = OrderedDict()

    def __call__(self, path: Path) -> Found:
        # the stamp comes first: what changes while it is read is read once more
        now = stamp(path)
        known = self._known.get(path)
        if known is None or known[0] != now:
            known = self._known[path] = (now, self._read(path))
        self._known.move_to_end(path)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return known[1]


class Lines:
    """A file of JSON lines that grows at its end or is replaced: each line is read once.

    A last line that is still being written is left for the next time, one that is no JSON object is counted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0
        self._stamp: Stamp = None
        self._read = 0

    def fresh(self) -> tuple[bool, list[dict[str, Any]]]:
        """(whether the file began anew, the lines that came since the last call). Raises OSError."""
        now = stamp(self.path)
        anew = (now is None or self._stamp is None) or now[2] != self._stamp[2] or now[1] < self._read
        if anew:
            self._read, self.damaged = 0, 0
        elif now == self._stamp:
            return False, []
        self._stamp = now
        if now is None:
            return True, []
        with open(self.path, "rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return anew, [record for line in whole.splitlines() if (record := self.record(line)) is not None]

    def record(self, line: bytes) -> dict[str, Any] | None:
        """The object in a line; None, and one more damaged, where there is none."""
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.damaged += 1
            return None
        return found


def tail(path: Path, lines: int, most: int = 65_536) -> str:
    """The last lines of a text; empty where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            found = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(found[-lines:])


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none or it holds something else."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
