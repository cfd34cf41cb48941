"""A study while it runs, from its records: which runs are where, how good and how fast, and when all will be done."""

import heapq
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from lightning_tfm.queue.queue import CellState
from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.runs.record import Progress, Seconds
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.study import Ablation, Search, Study

SAID = {"done": "finished", "pruned": "stopped early"}
"""state of a cell -> the word for it, where that is another one; the same in all outputs"""
AHEAD = ("waiting", "interrupted")
"""states of cells that nobody works on, and that will be taken"""
SCORING = "translate"
"""how the phases begin in which a trained run is scored"""


def said(state: str) -> str:
    """The word for a cell's state."""
    return SAID.get(state, state)


@dataclass(frozen=True)
class Left:
    """Seconds to come; `at_least` where something of them, such as scoring, is not known yet."""

    seconds: float
    at_least: bool = False


@dataclass(frozen=True)
class Running:
    """A run that is being worked on; None where it has not reported anything yet."""

    row: str
    seed: int
    step: int | None
    steps: int | None
    tokens_per_second: float | None
    """None while nothing is trained, too"""
    phase: str
    left: Left | None
    loss: float | None = None
    """per target token, as last written down"""
    ppl: float | None = None
    """the last dev perplexity"""
    best_ppl: float | None = None
    """the lowest so far"""
    change: dict[str, Any] = field(default_factory=dict)
    """of a trial: its parameters"""


@dataclass(frozen=True)
class Best:
    """The best finished run so far."""

    row: str
    seed: int | None
    """None of a trial of several seeds, whose mean it is"""
    name: str
    """of the objective: dev/ppl in a table"""
    value: float


@dataclass(frozen=True)
class Overview:
    """A study at a moment."""

    running: list[Running]
    counts: dict[str, int]
    """cells by state, in words: finished, running, waiting, failed; stopped early, interrupted, gone where there are"""
    left: Left | None
    failed: list[tuple[str, int, str]]
    """row, seed, reason"""
    best: Best | None
    coming: int
    """trials that a search has yet to propose"""
    share: float
    """of the predicted work, done"""


@dataclass
class _Curve:
    """The end of a run's metrics.jsonl, of which only what is new is read."""

    path: Path
    _place: tuple[int, int] = (0, 0)
    """inode, and bytes read: a file that was cut back for a resumed run is another one"""
    loss: float | None = None
    ppl: float | None = None
    best_ppl: float | None = None
    seconds: float | None = None
    """of training up to `step`"""
    step: int = 0
    damaged: int = 0
    """lines that could not be read: the view does without them, and training is not its business"""

    def look(self) -> "_Curve":
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return self
        inode, read = self._place
        if inode != found.st_ino or found.st_size < read:
            read, self.loss, self.ppl, self.best_ppl, self.seconds, self.step = 0, None, None, None, None, 0
        with self.path.open("rb") as file:
            file.seek(read)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._place = (found.st_ino, read + len(whole))
        for line in whole.splitlines():
            try:
                self._take(json.loads(line))
            except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
                self.damaged += 1
                print(f"lightning-tfm: {self.path}: damaged line left out: {line[:60]!r}", file=sys.stderr)
        return self

    def _take(self, record: dict[str, Any]) -> None:
        self.loss = record.get("loss", self.loss)
        if "dev_ppl" in record:
            self.ppl = float(record["dev_ppl"])
            self.best_ppl = self.ppl if self.best_ppl is None else min(self.ppl, self.best_ppl)
        if "seconds" in record:
            self.seconds, self.step = record["seconds"], record["step"]


def seconds_at(cost: float, known: Sequence[tuple[float, float]]) -> float:
    """Seconds of a run of that predicted cost, from (cost, seconds) of some: in proportion, or on a line where three of
    unequal cost are known.

    The smaller a model, and the shorter a run, the more of its time is no arithmetic.
    """
    x, y = mean(c for c, _ in known), mean(s for _, s in known)
    spread = sum((c - x) ** 2 for c, _ in known)
    slope = sum((c - x) * (s - y) for c, s in known) / spread if spread else 0.0
    if len(known) > 2 and slope > 0 and y >= slope * x:
        return y + slope * (cost - x)
    return cost * y / x if x else y


@dataclass(frozen=True)
class _Took:
    """What finished runs of the study took, and so what others will take."""

    whole: list[tuple[float, float]]
    """predicted cost and seconds of each run that came to its end"""
    trials: list[float]
    """seconds of each trial that ended, those that were stopped early too"""
    parts: list[Seconds]

    def of(self, cost: float) -> float | None:
        """Seconds of a run of that cost; None where nothing is known."""
        return seconds_at(cost, self.whole) if self.whole else None

    def all(self, runs: Sequence[Cell]) -> float | None:
        """Seconds of these runs, one after the other."""
        found = [self.of(run.cost) for run in runs]
        return None if None in found else sum(seconds or 0.0 for seconds in found)

    @property
    def scoring(self) -> float | None:
        """Seconds of scoring a trained run."""
        return median(p.decode or 0.0 for p in self.parts) if self.parts else None

    @property
    def beside(self) -> float:
        """Seconds of validation and checkpoints for each second of training."""
        pairs = [((p.validate or 0.0) + (p.checkpoint or 0.0), p.train + (p.data or 0.0)) for p in self.parts]
        spent = [beside / trained for beside, trained in pairs if trained]
        return median(spent) if spent else 0.0


@dataclass
class Watch:
    """Follows a study from outside, through the records in its run folders. `study` is None for a run alone."""

    root: Path
    workers: int
    """at least so many; more where more were seen at work"""
    study: Study | None = None
    _first: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)
    """run and attempt -> step and time of our first look"""
    _scored_since: dict[str, float] = field(default_factory=dict)
    _curves: dict[str, _Curve] = field(default_factory=dict)
    _parts: dict[str, Seconds | None] = field(default_factory=dict)
    """finished run -> what it took; None where its record is elsewhere"""
    _points: int | None = None
    """points of a space that can be listed, with base"""

    def __post_init__(self) -> None:
        if isinstance(self.study, Search) and (points := self.study.finite()) is not None:
            self._points = len(points) + self.study.based

    def look(self, states: list[CellState]) -> Overview:
        """The study as its records show it now."""
        took = self._took(states)
        open_cells = [state for state in states if state.state == "running"]
        running = [self._running(state, took) for state in open_cells]
        self.workers = max(self.workers, len(running))
        counts = Counter(state.state for state in states)
        named = {said(name): counts[name] for name in ("done", "running", "waiting", "failed")}
        named |= {said(name): counts[name] for name in ("pruned", "interrupted", "gone") if counts[name]}
        failed = [(s.cell.row, s.cell.seed, s.reason) for s in states if s.state == "failed"]
        coming, waiting = self._coming(states), [s for s in states if s.state in AHEAD]
        share = _share(states, dict(zip((id(s) for s in open_cells), running, strict=True)), coming)
        left = self._left([s.cell for s in waiting], coming, list(zip(running, open_cells, strict=True)), took)
        return Overview(running, named, left, failed, self._best(states), coming, share)

    def _coming(self, states: list[CellState]) -> int:
        budget = self.study.budget if self.study else 0
        most = budget if self._points is None else min(budget, self._points)
        return max(0, most - len(states)) if budget else 0

    def _best(self, states: list[CellState]) -> Best | None:
        aims = self.study.objectives if isinstance(self.study, Search) else {"dev/ppl": "minimize"}
        done = [s for s in states if s.state == "done" and s.values]
        apart = isinstance(self.study, Ablation) and bool(self.study.data)  # perplexities per different pieces
        if len(aims) > 1 or not done or apart:  # of several aims none is the best
            return None
        ((name, direction),) = aims.items()
        found = (min if direction == "minimize" else max)(done, key=lambda s: s.values[0])
        return Best(found.cell.row, None if found.cell.more else found.cell.seed, name, found.values[0])

    # --- one run ---

    def _running(self, state: CellState, took: _Took) -> Running:
        runs = state.cell.runs
        ahead = [run for run in runs if not RunFolder(self.root, run.training_hash).result.exists()] or runs[-1:]
        cell = ahead[0]
        key, folder = cell.training_hash, RunFolder(self.root, cell.training_hash)
        record = folder.read_progress()
        if record is None:
            left = _and_then(None if (least := took.of(cell.cost)) is None else Left(least), ahead[1:], took)
            return Running(cell.row, cell.seed, None, None, None, "starting", left, change=cell.change)
        curve = self._curves.setdefault(key, _Curve(folder.metrics)).look()
        if record.attempt not in (0, folder.newest()):  # left by an earlier one, with its clock and its phase
            record = replace(record, phase="starting", tokens_per_second=0.0, time=time.time())
        training = not record.phase.startswith(SCORING)
        return Running(
            row=cell.row,
            seed=cell.seed,
            step=record.step,
            steps=record.steps,
            tokens_per_second=record.tokens_per_second if training and record.tokens_per_second else None,
            phase=record.phase,
            left=_and_then(
                self._training_left(key, record, curve, took) if training else self._scoring_left(key, record, took),
                ahead[1:],
                took,
            ),
            loss=curve.loss,
            ppl=curve.ppl,
            best_ppl=curve.best_ppl,
            change=cell.change,
        )

    def _training_left(self, key: str, record: Progress, curve: _Curve, took: _Took) -> Left | None:
        """Its own speed says how long the rest of its steps takes, finished runs what comes beside and after them."""
        step, at = self._first.setdefault((key, record.attempt), (record.step, record.time))
        beside = 1.0  # the clock has seen validations, too
        if record.step > step:
            per_step = (record.time - at) / (record.step - step)
        elif curve.seconds is not None and curve.step:
            per_step, beside = curve.seconds / curve.step, 1 + took.beside
        else:
            return None
        ahead = max(0.0, (record.steps - record.step) * per_step * beside - (time.time() - record.time))
        return Left(ahead, at_least=True) if took.scoring is None else Left(ahead + took.scoring)

    def _scoring_left(self, key: str, record: Progress, took: _Took) -> Left | None:
        since = self._scored_since.setdefault(key, record.time)
        left = (took.scoring or 0.0) - (time.time() - since)
        return Left(left) if left > 0 else None

    # --- all of them ---

    def _took(self, states: list[CellState]) -> _Took:
        whole, trials, parts = {}, [], {}
        for s in states:
            runs = s.cell.runs if s.state == "done" else []
            took = [s.seconds / len(runs)] * len(runs) if runs and s.seconds else [0.0] * len(runs)
            for i, run in enumerate(runs):
                key = run.training_hash
                if key not in self._parts:
                    record = RunFolder(self.root, key).read_result()
                    self._parts[key] = record.seconds if record else None
                if (found := self._parts[key]) is not None:
                    parts[key], took[i] = found, found.total  # of all attempts, whichever study they were made for
                if took[i]:
                    whole[key] = (run.cost, took[i])
            seconds = sum(took) if runs else s.seconds
            if s.state in ("done", "pruned") and seconds:
                trials.append(seconds)
        return _Took(list(whole.values()), trials, list(parts.values()))

    def _left(
        self, waiting: Sequence[Cell], coming: int, begun: list[tuple[Running, CellState]], took: _Took
    ) -> Left | None:
        """Until the last run ends, if each free worker takes the longest that waits; None where nothing is known."""
        at_least = any(r.left is None or r.left.at_least for r, _ in begun)
        if not took.whole:
            took = self._so_far(begun)
        if not took.whole or not (waiting or coming or begun):
            return None
        busy = []
        for r, state in begun:
            unknown = 0.0 if r.phase.startswith(SCORING) else took.all(state.cell.runs) or 0.0
            busy.append(unknown if r.left is None else r.left.seconds)
        busy += [0.0] * (self.workers - len(busy))
        ahead = sorted((took.all(cell.runs) or 0.0 for cell in waiting), reverse=True)
        each = len(self.study.trial_seeds) if isinstance(self.study, Search) else 1
        ahead += [mean(took.trials)] * coming if took.trials else [each * mean(s for _, s in took.whole)] * coming
        heapq.heapify(busy)
        for seconds in ahead:
            heapq.heappush(busy, heapq.heappop(busy) + seconds)
        return None if at_least and max(busy) < 1 else Left(max(busy), at_least)

    def _so_far(self, begun: list[tuple[Running, CellState]]) -> _Took:
        """Before a run has finished: what those that run will have taken for training alone."""
        whole = []
        for r, state in begun:
            run = next((run for run in state.cell.runs if run.seed == r.seed), state.cell)
            curve = self._curves.get(run.training_hash)
            if curve is not None and curve.seconds and r.steps:
                whole.append((run.cost, curve.seconds * r.steps / curve.step))
        return _Took(whole, [], [])


def _and_then(left: Left | None, runs: Sequence[Cell], took: _Took) -> Left | None:
    """With the further seeds of a trial, after the one that `left` is of."""
    if left is None or not runs:
        return left
    more = took.all(runs)
    return Left(left.seconds, at_least=True) if more is None else Left(left.seconds + more, left.at_least)


def _share(states: list[CellState], running: dict[int, Running], coming: int) -> float:
    """Of the predicted work; a trial that is still to come counts as the mean of those that are known."""
    if not states:
        return 0.0
    whole = sum(s.cell.cost for s in states)
    whole += coming * whole / len(states)
    done = 0.0
    for s in states:
        if s.state == "running":
            r, seeds = running[id(s)], [run.seed for run in s.cell.runs]
            done += s.cell.cost * (seeds.index(r.seed) + (r.step or 0) / (r.steps or 1)) / len(seeds)
        elif s.state not in AHEAD:
            done += s.cell.cost
    return done / whole if whole else 0.0
