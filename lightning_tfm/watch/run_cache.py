"""What is kept of finished runs when thousands are followed: what pages show and filters need, equal parts once.

Also in the reader's own file, outside the results, so that its next start reads no record again.
"""

import hashlib
import os
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lightning_tfm
from lightning_tfm.atomic_io import replacing
from lightning_tfm.runs.record import Called, Machine, Parameters, RunRecord, Texts
from lightning_tfm.schema import Flaw, Kept, as_json, make_from

READERS = ("watch/run_cache.py", "watch/run_state.py", "runs/record.py", "runs/divergence.py")
"""files of the package that decide what is kept: what other versions of these wrote is read again"""


NONE: dict[str, Any] = {}
DROPPED: dict[str, Any] = {"identity": NONE, "versions": NONE, "files": NONE, "inexact": [], "ran": []}
DROPPED |= {"train_seconds": None, "git": None}
"""of a record, what only its run's own page shows"""


@dataclass(frozen=True, slots=True)
class Finished(Kept):
    """A finished run, as its files were when their stamps were `mark`: a line of the file."""

    mark: str
    record: RunRecord
    called: Called | None = None
    words: str = ""
    """what is wrong with its curve, or how the training diverged"""
    diverged: bool = False
    damaged: int = 0
    """lines that were left out"""
    curve: tuple[tuple[float, float], ...] = ()
    """(step, dev perplexity), thinned"""
    loss: float | None = None
    """the last finite one, per target token"""
    best_ppl: float | None = None
    """the lowest finite one"""
    sections: list[int] = field(default_factory=list)
    """in the file the sections of its experiment, by their places in the head"""


OF_CURVE = ("words", "diverged", "damaged", "curve", "loss", "best_ppl")
"""fields that say what its curve does, in run_state.RunState, too"""


@dataclass(frozen=True)
class Head(Kept):
    """The first line of the file."""

    made_by: str
    sections: list[tuple[str, dict[str, Any]]]


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
        self._known: dict[str, Finished] = {}
        self._shared: dict[Hashable, Any] = {}
        self._fresh = False

    def load(self) -> None:
        """Read the file, if there is one."""
        with suppress(OSError, Flaw):
            if self._file is not None:
                self._load(self._file)

    def _load(self, file: Path) -> None:
        with file.open("rb") as lines:
            head = make_from(Head, None, next(lines, b"{}"))
            if head.made_by != _made_by():
                return
            sections = [(name, self._section(name, section)) for name, section in head.sections]
            for line in lines:
                run = make_from(Finished, None, line)
                self._slim(run.record, dict(sections[place] for place in run.sections))
                _set_in_place(run, sections=[])
                self._known[run.record.training_hash[:16]] = run

    def recall(self, name: str, mark: str) -> Finished | None:
        """A finished run, if its files are those of then; once."""
        entry = self._known.pop(name, None)
        return entry if entry is not None and entry.mark == mark else None

    def slim(self, record: RunRecord, experiment: dict[str, Any]) -> RunRecord:
        """A record, and what its run trained, without what only a run's own page shows."""
        self._fresh = True
        return self._slim(record, self.experiment(experiment))

    def _slim(self, record: RunRecord, experiment: dict[str, Any]) -> RunRecord:
        host, total = record.hardware.host, record.parameters.total
        for score in record.scores.values():
            signature, evaluation = (self._once(text, text) for text in (score.signature, score.evaluation_hash))
            _set_in_place(score, signature=signature, evaluation_hash=evaluation, by_length=None, files=NONE)
        _set_in_place(record, experiment=experiment, hardware=self._once(host, Machine(host=host)))
        _set_in_place(record, data=self._once(("dev", record.data.dev), Texts(dev=record.data.dev)))
        _set_in_place(record, parameters=self._once(total, Parameters(total=total)), **DROPPED)
        return record

    def experiment(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The same, sharing equal sections with an earlier run."""
        with suppress(TypeError, AttributeError):  # a damaged file may hold anything
            return {name: self._section(name, section) for name, section in plain.items()}
        return plain

    def _section(self, name: str, section: dict[str, Any]) -> dict[str, Any]:
        return self._once((name, *section.items()), section)

    def _once(self, key: Hashable, value: Any) -> Any:
        return self._shared.setdefault(key, value)

    def save(self, runs: Sequence[Finished]) -> None:
        """Write these to the file, if any of them were read since it was. Raises OSError."""
        if self._file is None or not self._fresh:
            return
        sections: dict[int, tuple[str, dict[str, Any]]] = {}
        for run in runs:
            sections |= {id(section): (name, section) for name, section in run.record.experiment.items()}
        places = {key: place for place, key in enumerate(sections)}
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(self._file) as file:
            file.write(as_json(Head(_made_by(), list(sections.values()))) + b"\n")
            for run in runs:
                own = [places[id(section)] for section in run.record.experiment.values()]
                line = replace(run, record=replace(run.record, experiment={}), sections=own)
                file.write(as_json(line) + b"\n")
        self._fresh = False


def _set_in_place(own: Kept, **values: Any) -> None:
    """Change what nobody else has yet: `replace` takes a third of the time of a start with ten thousand runs."""
    for name, value in values.items():
        object.__setattr__(own, name, value)


def _made_by() -> str:
    package = Path(lightning_tfm.__file__).parent
    return hashlib.sha256(b"".join((package / name).read_bytes() for name in READERS)).hexdigest()
