"""Stars and notes on runs and studies, in a file of the dashboard's own: the results are only read."""

import json
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lightning_tfm.durable import LockTimeout, locked, write_atomic
from lightning_tfm.errors import UserError
from lightning_tfm.strict import Kept, read_kept
from lightning_tfm.watch.folder import Stamp, stamp

LONGEST = 2_000
"""characters of a note"""


@dataclass(frozen=True)
class Mark(Kept):
    """On a run or study."""

    star: bool = False
    note: str = ""


@dataclass(frozen=True)
class File(Kept):
    """The file: run/NAME or study/NAME -> its mark."""

    marks: dict[str, Mark] = field(default_factory=dict)


class Marks:
    """Those in `file`, which other dashboards of the same results may change, too; without one none can be set."""

    def __init__(self, file: Path | None) -> None:
        self._file, self._lock = file, threading.Lock()
        self._stamp: Stamp = None
        self._found: dict[str, Mark] = {}

    def look(self) -> dict[str, Mark]:
        """As the file is now. Raises UserError where it is damaged: nothing is written over it."""
        if self._file is not None and (now := stamp(self._file)) != self._stamp:
            found = read_kept(File, self._file, "the stars and notes of a dashboard")
            self._found, self._stamp = found.marks if found else {}, now
        return self._found

    def set(self, key: str, star: bool | None = None, note: str | None = None) -> None:
        """Change the mark on run/NAME or study/NAME; None leaves what is there, whoever wrote it. Raises UserError."""
        if self._file is None:
            raise UserError("this dashboard has no file for stars and notes")
        if note and len(note) > LONGEST:
            raise UserError(f"a note has at most {LONGEST:,} characters; this one has {len(note):,}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._lock, locked(self._file.with_suffix(".lock"), timeout=5):
                marks = dict(self.look())
                old = marks.get(key, Mark())
                marks[key] = Mark(old.star if star is None else star, old.note if note is None else note)
                kept = {name: one for name, one in sorted(marks.items()) if one != Mark()}
                write_atomic(self._file, (json.dumps(asdict(File(kept)), indent=1) + "\n").encode())
        except (OSError, LockTimeout) as error:
            raise UserError(f"it cannot be kept: {error}") from error
