"""A results folder at a moment: what the pages show, looked at again when somebody asks, at most once a second."""

import gc
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from lightning_tfm.config import Miniature
from lightning_tfm.dashboard.studies import Outline, Outlines
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import METRICS, chief
from lightning_tfm.watch.file_cache import Cached, tail
from lightning_tfm.watch.run_cache import Memory
from lightning_tfm.watch.run_state import Curve, Runs, RunState, name_of
from lightning_tfm.watch.study_state import StudyState, Watch

EVERY = 1.0
"""seconds within which the folder is not looked at twice"""
COURSES, LOGS, LOG_LINES = 128, 200, 12
"""courses and logs of runs that are kept, and lines of a log that are read"""


@dataclass(frozen=True)
class Home:
    """Where a run belongs."""

    study: str
    row: str
    seed: int
    label: str
    """the row in plain words; empty where the study has none for it"""

    @property
    def called(self) -> str:
        return f"{self.label or self.row}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class Seen:
    """Runs and studies at a moment, and at which version each of them was last different."""

    version: int = 0
    runs: dict[str, RunState] = field(default_factory=dict)
    studies: dict[str, StudyState] = field(default_factory=dict)
    outlines: dict[str, Outline] = field(default_factory=dict)
    homes: dict[str, tuple[Home, ...]] = field(default_factory=dict)
    """name of a run -> the cells that it fills"""
    since: dict[str, int] = field(default_factory=dict)
    """run/NAME or study/NAME -> version"""
    notes: tuple[str, ...] = ()
    """what is wrong with user-defined metrics that runs are scored by"""

    @property
    def views(self) -> Iterator[RunState]:
        """Every run as each of its studies sees it; as it is where it is in none."""
        for study in self.studies.values():
            yield from study.runs.values()
        yield from (run for name, run in self.runs.items() if name not in self.homes)

    @cached_property
    def scored(self) -> list[RunState]:
        """The runs as their studies score them, once for each way; by their own evaluation those of no study."""
        found = []
        for name, run in self.runs.items():
            views = [self.studies[home.study].runs[name] for home in self.homes.get(name, ())]
            found += list({_scoring(view): view for view in reversed(views)}.values())[::-1] or [run]
        return found

    @cached_property
    def chiefs(self) -> list[str]:
        """By what the runs' translations are scored, in words."""
        sets = {tuple(run.scores) for run in self.runs.values()}
        return list(dict.fromkeys(chief(names).label for names in sets if names))

    def places(self, run: RunState) -> list[Home]:
        """The cells that one of `scored` fills."""
        homes = self.homes.get(run.name, ())
        return [home for home in homes if _scoring(self.studies[home.study].runs[run.name]) == _scoring(run)]

    def called(self, name: str) -> str:
        """A run in words: row and seed as its study calls them, or as requested outside one; else its name."""
        if homes := self.homes.get(name):
            return homes[0].called
        asked = self.runs[name].called if name in self.runs else None
        return f"{asked.row}, seed {asked.seed}" if asked else name

    def miniature(self, name: str) -> Miniature:
        """Over which a run is typed, by its study; none for a run outside one."""
        studies = (self.outlines[home.study].study for home in self.homes.get(name, ()))
        return next((study.base.miniature for study in studies if study), Miniature())


class Board:
    """Follows the results folder `root`. Safe to be asked by several threads."""

    def __init__(self, root: Path, every: float = EVERY, cache: Path | None = None, texts: bool = True) -> None:
        """`cache`: the file in which finished runs are kept for the next one (watch/run_cache.py); `texts=False` leaves
        out every line of the corpus."""
        self.root, self.texts = root, texts
        self.log = Cached(lambda run: tail(run, LOG_LINES), "", LOGS)
        """the end of the log of a path"""
        self._course = lru_cache(COURSES)(lambda name, text: Curve(root / "runs" / name / "metrics.jsonl", text))
        self._every, self._last = every, -every
        self._lock = threading.Lock()
        self._memory = Memory(cache)
        self._runs = Runs(root, memory=self._memory)
        self._watches: dict[str, Watch] = {}
        self._outlines = Outlines(root)
        self._seen = Seen()
        self._given: tuple[Any, ...] = {}, {}, []
        """what the last look was made of: studies, and runs as shown only by their folders"""

    def look(self) -> Seen:
        """The newest state, or that of a moment ago."""
        with self._lock:
            if time.monotonic() - self._last >= self._every:
                if self._seen.version == 0:
                    self._look_first()
                else:
                    self._look()
                self._last = time.monotonic()
            return self._seen

    def course(self, name: str, text: str = "") -> Curve:
        """A run's course so far; `text`: see Curve."""
        return self._course(name, text).look()

    def keep(self) -> None:
        """Write down what finished runs are for the next start, once all were read. Raises OSError."""
        if self._seen.version == 0:
            return
        with self._lock:
            kept = self._runs.kept
        self._memory.save(kept)

    @property
    def seen(self) -> Seen:
        """What the last look saw, without another one."""
        return self._seen

    def _look_first(self) -> None:
        gc.disable()  # nothing of it is garbage, and looking for some takes a quarter of the time
        try:
            self._memory.load()
            self._look()
        finally:
            gc.freeze()
            gc.enable()

    def _look(self) -> None:
        old = self._seen
        runs, outlines = self._runs.all(), {outline.name: outline for outline in self._outlines.look()}
        given = outlines, dict(runs), self._runs.stamps  # a new score leaves a run as it was
        if given == self._given:
            return
        self._given, notes = given, _lost_metrics(runs)
        here = _Here(runs)
        studies = {name: self._viewed(outline, here) for name, outline in outlines.items()}
        homes = old.homes if outlines == old.outlines else _homes(outlines)
        for name, (home, *_) in homes.items():  # as its study knows it: with what comes after its steps
            if name in runs and runs[name].left != (left := studies[home.study].runs[name].left):
                runs[name] = replace(runs[name], left=left)
        version = old.version + 1
        since = {}
        for kind, views, before in (("run", runs, old.runs), ("study", studies, old.studies)):
            for name, view in views.items():
                key = f"{kind}/{name}"
                same = before.get(name) == view and (kind == "study" or homes.get(name) == old.homes.get(name))
                since[key] = old.since[key] if same else version
        self._seen = Seen(version, runs, studies, outlines, homes, since, notes)

    def _viewed(self, outline: Outline, here: "_Here") -> StudyState:
        if outline.study is None:
            return StudyState(outline.name, "damaged", outline.why_not)
        watch = self._watches.get(outline.name)
        if watch is None or watch.study is not outline.study:
            watch = self._watches[outline.name] = Watch(self.root, study=outline.study)
        watch.runs = here
        return watch.look(outline.cells)


def _scoring(run: RunState) -> tuple[str, ...]:
    """The same of a run that two studies score alike."""
    scores = run.record.scores if run.record else {}
    return run.text, *(scores[name].evaluation_hash if name in scores else "" for name in ("dev", "test"))


class _Here(dict[str, RunState]):
    """The runs that were seen; one that nobody has started waits."""

    def __missing__(self, name: str) -> RunState:
        return RunState(name=name, state="waiting")


def _lost_metrics(runs: dict[str, RunState]) -> tuple[str, ...]:
    """Makes METRICS know the user-defined ones that runs are scored by; why it cannot, of each that is gone."""
    scores = (score for run in runs.values() if run.record for score in run.record.scores.values())
    names = {name for score in scores for name in score.measures if ":" in name}
    lost = []
    for name in sorted(names):
        try:
            METRICS[name]
        except Exception as error:  # it imports a module of the user's, which may do anything
            why = str(error) if isinstance(error, UserError) else f"metric '{name}': {type(error).__name__}: {error}"
            lost.append(f"{why}; it is a column by its class's name")
    return tuple(lost)


def _homes(outlines: dict[str, Outline]) -> dict[str, tuple[Home, ...]]:
    found: dict[str, list[Home]] = {}
    for outline in outlines.values():
        labels = outline.labels
        for run in outline.runs:
            found.setdefault(name_of(run), []).append(Home(outline.name, run.row, run.seed, labels.get(run.row, "")))
    return {name: tuple(homes) for name, homes in found.items()}
