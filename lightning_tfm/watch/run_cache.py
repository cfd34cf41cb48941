"""What is kept of finished runs when thousands are followed: what pages show and filters need, equal parts once.

Also in the reader's own file, outside the results, so that its next start reads no record again.
"""

import hashlib
import math
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

import lightning_tfm
from lightning_tfm.atomic_io import replacing
from lightning_tfm.runs.record import Called, Machine, Measure, Parameters, RunRecord, Score, Seconds, Texts
from lightning_tfm.schema import INFINITE, Kept, as_json

READERS = ("watch/run_cache.py", "watch/run_state.py", "runs/record.py", "runs/divergence.py")
"""files of the package that decide what is kept: what other versions of these wrote is read again"""


NONE: dict[str, Any] = {}
DROPPED: dict[str, Any] = {"identity": NONE, "versions": NONE, "files": NONE, "inexact": [], "ran": []}
DROPPED |= {"train_seconds": None, "git": None}
"""of a record, what only its run's own page shows"""


def cache_file(root: Path) -> Path:
    """The user's file for the results folder `root`, the same for all ways to write it; it may be lost at any time."""
    whole, here = root.resolve(), os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = f"{whole.name}-{hashlib.blake2b(bytes(whole), digest_size=6).hexdigest()}.jsonl"
    return Path(here) / "lightning_tfm" / name


class Memory:
    """Of the runs of one results folder. Without a `file` nothing is kept for another start; one that is damaged, or
    from another version, counts as none."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._known: dict[str, tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]] = {}
        """mark of a run's files -> its record, what it was called, and what its curve says, as JSON has them"""
        self._fresh = False

    def load(self) -> None:
        """Read the file, if there is one."""
        with suppress(OSError):
            signature, _, content = self._file.read_bytes().partition(b"\n") if self._file else (b"", b"", b"")
            if signature == _signature(content):
                parts, runs, records = (from_json(line) for line in content.split(b"\n"))
                sections = [_shared(*part) for part in parts]
                for (mark, places, called, curve), record in zip(runs, records, strict=True):
                    record["experiment"] = dict(sections[place] for place in places)
                    self._known[mark] = record, called, curve

    @staticmethod
    def mark(*stamps: Any) -> str:
        """Of a run's files."""
        return hashlib.blake2b(to_json(stamps), digest_size=8).hexdigest()

    def recall(self, mark: str) -> dict[str, Any] | None:
        """What `save` was given of the finished run whose files have this mark; once."""
        if mark not in self._known:
            return None
        plain, called, curve = self._known.pop(mark)
        host, dev = plain.get("hardware", NONE).get("host", ""), plain.get("data", NONE).get("dev", "")
        own = {"scores": {name: _score(score) for name, score in plain["scores"].items()}}
        own |= {"seconds": Seconds(**plain["seconds"])} | _slim_parts(host, dev, plain["parameters"]["total"])
        curve["curve"] = tuple(map(tuple, curve["curve"]))
        return {"record": RunRecord(**plain | own), "called": called and Called(**called), "curve": curve}

    def slim(self, record: RunRecord, experiment: dict[str, Any]) -> RunRecord:
        """A record, and what its run trained, without what only a run's own page shows."""
        self._fresh = True
        for score in record.scores.values():
            signature, evaluation = map(sys.intern, (score.signature, score.evaluation_hash))
            _set_in_place(score, signature=signature, evaluation_hash=evaluation, by_length=None, files=NONE)
        parts = _slim_parts(record.hardware.host, record.data.dev, record.parameters.total)
        _set_in_place(record, experiment=self.experiment(experiment), **parts)
        return record

    @staticmethod
    def experiment(plain: dict[str, Any]) -> dict[str, Any]:
        """The same, sharing equal sections with an earlier run."""
        return dict(_shared(*part) for part in plain.items())

    def save(self, runs: Mapping[str, Mapping[str, Any]]) -> None:
        """Write these to the file, by the marks of their files, if any were read since it was. Raises OSError.

        Of each its `record`, what it was `called`, and what its `curve` says.
        """
        if self._file is None or not self._fresh:
            return
        sections: dict[int, tuple[str, dict[str, Any]]] = {}
        for run in runs.values():
            sections |= {id(section): (name, section) for name, section in run["record"].experiment.items()}
        places = {key: place for place, key in enumerate(sections)}
        lines = [
            (mark, [places[id(section)] for section in run["record"].experiment.values()], run["called"], run["curve"])
            for mark, run in runs.items()
        ]
        records = b",".join(as_json(run["record"], without="experiment") for run in runs.values())
        content = b"\n".join((to_json(list(sections.values())), to_json(lines), b"[%b]" % records))
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(self._file) as file:
            file.writelines((_signature(content), b"\n", content))
        self._fresh = False


def _shared(name: str, section: Any) -> tuple[str, Any]:
    """A section of an experiment, with its name; of equal ones the first."""
    try:
        return _section(name, *section.items())
    except (TypeError, AttributeError):  # a damaged file may hold anything
        return name, section


@cache
def _section(name: str, *items: tuple[str, Any]) -> tuple[str, dict[str, Any]]:
    return name, dict(items)


def _score(plain: dict[str, Any]) -> Score:
    plain["measures"] = {name: Measure(**measure) for name, measure in plain.get("measures", {}).items()}
    plain["ppl"] = math.inf if plain["ppl"] == INFINITE else plain["ppl"]
    plain["evaluation_hash"] = sys.intern(plain["evaluation_hash"])
    return Score(**plain, files=NONE)


_machine = cache(lambda host: Machine(host=host))
_texts = cache(lambda dev: Texts(dev=dev))
_parameters = cache(lambda total: Parameters(total=total))


def _slim_parts(host: str, dev: str, total: int) -> dict[str, Any]:
    """Of a record, as they are kept: equal ones once."""
    return DROPPED | {"hardware": _machine(host), "data": _texts(dev), "parameters": _parameters(total)}


def _set_in_place(own: Kept, **values: Any) -> None:
    """Change what nobody else has yet: `replace` takes a third of the time of a start with ten thousand runs."""
    for name, value in values.items():
        object.__setattr__(own, name, value)


def _signature(content: bytes) -> bytes:
    """Of what this version keeps of runs."""
    package = Path(lightning_tfm.__file__).parent
    made = hashlib.sha256(b"".join((package / name).read_bytes() for name in READERS))
    made.update(content)
    return made.hexdigest().encode()
