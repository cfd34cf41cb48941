"""The state of a study: its cells, how many are finished, which is best, and when all will be done.

A queue says which cells wait, failed or were stopped for good; the folders of the runs say the rest, and what a folder
says comes first. Without a queue (records that came from elsewhere, the dashboard) the folders say all.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from lightning_tfm.errors import UserError
from lightning_tfm.metrics import METRICS, PPL, Metric, paper_metrics
from lightning_tfm.runs.process.process_id import ProcessId
from lightning_tfm.runs.record import Missing, RunRecord, Score, Seconds
from lightning_tfm.runs.rescored import read_later, under_evaluation, without_other_test
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import Fingerprints
from lightning_tfm.study.search import Search
from lightning_tfm.study.study import Ablation, Study
from lightning_tfm.study.study_file import folder_of
from lightning_tfm.watch.file_cache import Cached
from lightning_tfm.watch.run_state import STATES, Runs, RunState, name_of
from lightning_tfm.watch.time_left import Left, Took, until_the_last

AHEAD = ("waiting", "interrupted")
"""states of cells that nobody is working on, and that will be taken"""
ALWAYS = ("finished", "running", "waiting", "failed")
"""what is counted even if there is none"""
ELSE = ("stopped early", "interrupted", "damaged")
REMOVED = "it was finished, but its folder is gone"
UNKNOWN = ""
"""state of a cell unknown to any queue"""


@dataclass(frozen=True)
class CellState:
    """The state of a cell."""

    cell: Cell
    state: str = UNKNOWN
    """one of run_state.STATES, interrupted or damaged only if a reader also looked at the runs"""
    reason: str = ""
    owner: ProcessId | None = None
    attempt: int = 0
    seconds: float | None = None
    """length of the try that finished or was stopped early"""
    values: tuple[float, ...] = ()
    """of a finished one: a value for each objective"""
    recorded: bool = False
    """whether the storage of its queue holds its records, which need no folder here"""
    again: bool = False
    """whether a failed one will be tried again"""
    run: RunState | None = None
    """that which is being worked on"""


@dataclass(frozen=True)
class Best:
    """The best so far: of a table the row with the best mean over its finished seeds, of a search the trial."""

    row: str
    seed: int | None
    """None where it is the mean of several"""
    name: str
    """of the objective: dev/ppl in a table"""
    value: float


@dataclass(frozen=True)
class StudyState:
    """A study at a moment. Times are seconds since 1970."""

    name: str = ""
    """empty for a single run"""
    kind: str = ""
    """table, search or damaged"""
    words: str = ""
    """why it cannot be read"""
    cells: list[CellState] = field(default_factory=list)
    runs: dict[str, RunState] = field(default_factory=dict)
    """name of a folder -> the run, with its scores by the study's own evaluation"""
    counts: dict[str, int] = field(default_factory=dict)
    """cells by state, in words: those of ALWAYS, others where there are"""
    left: Left | None = None
    best: Best | None = None
    coming: int = 0
    """trials that a search has yet to propose"""
    share: float = 0.0
    """of the predicted work, done"""
    started: float | None = None
    """seconds since 1970"""

    @property
    def running(self) -> list[tuple[CellState, RunState]]:
        """The cells that are being worked on, and which run of them."""
        return [(s, s.run) for s in self.cells if s.run is not None]

    @property
    def total(self) -> int:
        """Cells when everything is done."""
        return len(self.cells) + self.coming

    @property
    def diverged(self) -> int:
        """Runs among the finished ones that diverged."""
        return sum(run.diverged and run.state == "finished" for run in self.runs.values())

    def metrics(self, study: Study) -> list[Metric]:
        """What the translations of its runs are scored by."""
        there = {
            *paper_metrics(study.base.data.translated),
            *(name for run in self.runs.values() for name in run.scores),
        }
        return [metric for name, metric in METRICS.items() if metric.counted and name in there]

    @property
    def counted(self) -> list[str]:
        """How many cells are in each state, and what else is counted, in words."""
        parts = [f"{number} {word}" for word, number in self.counts.items()]
        parts += [f"{self.diverged} diverged"] * bool(self.diverged)
        return parts + [f"{self.coming} to be proposed"] * bool(self.coming)

    @property
    def ended(self) -> int:
        """Cells that will not continue by themselves."""
        ahead = sum(self.counts.get(word, 0) for word in ("running", *AHEAD))
        return len(self.cells) - ahead - sum(s.again for s in self.cells)

    @property
    def state(self) -> str:
        """That of its cells to show first; interrupted where it has begun, more is to come and none runs."""
        if self.words:
            return self.kind
        counts = self.counts | ({"waiting": self.coming} if self.coming else {})
        first = next((word for word in STATES[:-2] if counts.get(word)), "finished")
        begun, again = self.ended or counts.get("interrupted"), any(cell.again for cell in self.cells)
        return "interrupted" if (first == "waiting" and begun) or (first == "failed" and again) else first

    @property
    def changed(self) -> float | None:
        return max((run.changed for run in self.runs.values() if run.changed), default=None)


@dataclass
class Watch:
    """Follows a study (None: a single run) below `root`."""

    root: Path
    workers: int = 0
    """at least this many; more if more are at work"""
    study: Study | None = None
    runs: Runs | Mapping[str, RunState] = None  # type: ignore[assignment]
    """by default those below `root`"""
    _evaluations: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """row -> hashes of the evaluations of dev and test scores and of the dev text; empty for another study's row"""
    _most: int = 0
    """trials that a search makes in all"""
    _links: list[Cell] | None = None
    _last: tuple[Any, StudyState] | None = None
    """what the last look was made of, and what it gave"""
    _score: Cached[Score | Missing | None] = field(default_factory=lambda: Cached(lambda p: read_later(Path(p)), None))

    def __post_init__(self) -> None:
        self.runs = self.runs or Runs(self.root, curves=isinstance(self.study, Ablation))
        if isinstance(self.study, Search) and self.study.budget:
            self._most = self.study.most

    @cached_property
    def _folder(self) -> str:
        """Of the runs: ten thousand Paths take longer than all that is read of them."""
        return str(self.root / "runs")

    def look(self, states: Sequence[CellState]) -> StudyState:
        """The study with these cells, and those that its queue has lost, as its runs are now."""
        there = {(s.cell.row, s.cell.seed) for s in states}
        states = [*states, *(CellState(cell) for cell in self._linked_cells() if (cell.row, cell.seed) not in there)]
        runs = {run.training_hash: self._state_under_evaluation(run) for s in states for run in s.cell.runs}
        given = states, runs
        if self._last is not None and self._last[0] == given and not self._last[1].running:
            return self._last[1]
        cells = [_with_runs(s, [runs[run.training_hash] for run in s.cell.runs], self.study) for s in states]
        took = _took(cells, runs)
        runs = {name: run.after(took) for name, run in runs.items()}
        cells = [_running(s, runs, took) if s.state == "running" else s for s in cells]
        counts = Counter(s.state for s in cells)
        named = {word: counts[word] for word in (*ALWAYS, *ELSE) if word in ALWAYS or counts[word]}
        coming = max(0, self._most - len(cells))
        seen = StudyState(
            name=self.study.name if self.study else "",
            kind=self.study.KIND if self.study else "",
            cells=cells,
            runs={name[:16]: run for name, run in runs.items()},
            counts=named,
            left=_left(cells, runs, took, coming, self.workers),
            best=_best(self.study, cells, runs),
            coming=coming,
            share=_share(cells, runs, coming),
            started=_start_time(runs.values(), self._first_link(cells)),
        )
        self._last = given, seen
        return seen

    def _first_link(self, cells: Sequence[CellState]) -> float:
        """When the study took its first cell, seconds since 1970; 0 where its folder does not say so."""
        if self.study is None or not cells:
            return 0.0
        first = cells[0].cell
        path = folder_of(self.root, self.study.name) / "cells" / first.row / f"{first.seed}.json"
        return path.stat().st_mtime if path.is_file() else 0.0

    def _linked_cells(self) -> list[Cell]:
        """Those of a table that its folder links to, which a journal that was cut short may lack."""
        if self._links is None:
            study, folder = self.study, folder_of(self.root, self.study.name) if self.study else self.root
            there = {(path.parent.name, path.stem) for path in folder.glob("cells/*/*.json")}
            cells = study.cells() if isinstance(study, Ablation) and there else []
            self._links = [cell for cell in cells if (cell.row, str(cell.seed)) in there]
        return self._links

    def _state_under_evaluation(self, cell: Cell) -> RunState:
        """A run with the scores of the study's own evaluation, which may have come later than the run; damaged where
        they are."""
        run = self.runs[name_of(cell)]
        if self.study is None or (run.record is None and not run.validated_on):
            return run
        if cell.row not in self._evaluations:  # of a row that somebody else added or dropped: none
            foreign = isinstance(self.study, Ablation) and all(row.name != cell.row for row in self.study.rows)
            texts = Fingerprints("", "") if foreign else self.study.texts(cell, self.root)
            dev, test = map(self.study.evaluation_of_text, (texts.dev, texts.test))
            self._evaluations[cell.row] = dev, test, texts.dev
        evaluation, test, text = self._evaluations[cell.row]
        if not evaluation:
            return run
        if run.record is None:
            other = run.validated_on != text[:16]
            return replace(run, text=text[:16], ppl=None, best_ppl=None, curve=()) if other else run
        if (record := without_other_test(run.record, test)) is not run.record:
            run = replace(run, record=record)
        score = self._score(f"{self._folder}/{run.name}/scores/{evaluation[:16]}/{self.study.base.data.dev}.json")
        scored = under_evaluation(record, score, evaluation)
        if scored is record:
            return run
        if not record.scored_by(evaluation) and record.data.dev not in ("", text):
            run = replace(run, text=text[:16], best_ppl=None, curve=())
        if isinstance(scored, RunRecord):
            return replace(run, record=scored, ppl=scored.scores["dev"].ppl)
        state = "damaged" if scored.damaged else "waiting"
        return replace(run, state=state, words=scored.reason, record=None, ppl=None, kept=run.steps or 0)


def _with_runs(s: CellState, runs: list[RunState], study: Study | None) -> CellState:
    """A cell's state with what its runs show, whose word is the same where no queue is known: a finished run that was
    removed waits, and one that failed is failed, whether or not a queue will have it tried again."""
    words = [run.state for run in runs]
    records = [run.record for run in runs if run.record]
    if len(records) == len(runs):
        seconds = sum(record.seconds.total for record in records)
        attempt = s.attempt or max(record.attempts or 1 for record in records)
        try:
            values = tuple(_mean([value_of_aim(record, aim) for record in records]) for aim in _aims(study))
        except UserError as error:
            return replace(s, state="damaged", reason=str(error))
        return CellState(s.cell, "finished", "", None, attempt, seconds, values, s.recorded, s.again)
    if s.state in ("failed", "stopped early"):
        return s
    if "damaged" in words and s.state in ("finished", "waiting", UNKNOWN):
        return replace(s, state="damaged", reason=next(run.words for run in runs if run.state == "damaged"))
    if s.state == "finished" and s.recorded:
        return s
    if "running" in words:
        return replace(s, state="running")
    if s.state == "running":
        gone = s.owner is not None and s.owner.gone()
        if gone or any(run.abandoned for run in runs):
            return replace(s, state="interrupted", reason=f"{s.owner or 'its owner'} is gone")
        return s
    first = "failed" if "failed" in words else next(word for word in STATES if word in words)
    first_run = next(run for run in runs if run.state == first)
    if first == "failed" and s.state == "waiting":
        return replace(s, state="failed", reason=f"{first_run.words}; will be tried again", again=True)
    if s.state == "finished":
        s = replace(s, reason=first_run.words or REMOVED, seconds=None, values=())
    if s.state in (UNKNOWN, "finished") or first == "interrupted":
        return replace(s, state="waiting" if first == "finished" else first, reason=s.reason or first_run.words)
    return s


def _mean(values: Sequence[float]) -> float:
    """Of one value itself, at once: the only case where tables have thousands of cells."""
    return values[0] if len(values) == 1 else fmean(values)


def _start_time(runs: Iterable[RunState], linked: float) -> float | None:
    """When a study began that took its first cell at `linked`: with the first of its runs that ended later.

    Those that ended before were trained for another study. Where all did, they may have been copied: their own time.
    """
    begun = [(run.started, run.changed or run.started) for run in runs if run.started]
    own = [max(started, linked) for started, ended in begun if ended >= linked]
    return min(own or (started for started, _ in begun), default=None)


def value_of_aim(record: RunRecord, aim: str) -> float:
    """An objective or a limited quantity of a search: parameters, seconds (of training), dev/ppl, dev/f1, …

    Raises UserError where the record holds none.
    """
    if aim == "parameters":
        return float(record.parameters.total)
    if aim == "seconds":
        return float(record.seconds.train)
    name, score = aim.removeprefix("dev/"), record.scores.get("dev")
    if score is not None and name in score.measures:  # a user's class may not be importable here
        return float(score.measures[name].value)
    value = METRICS[name].of(score) if score is not None and name in METRICS else None
    if value is None:
        raise UserError(f"the run's record holds no {aim}")
    return float(value)


def values_of(study: Study, record: RunRecord) -> tuple[float, ...]:
    """Of a finished run: a value for each objective. Raises UserError where the record lacks one."""
    return tuple(value_of_aim(record, aim) for aim in _aims(study))


def _aims(study: Study | None) -> dict[str, str]:
    """Objective -> its direction."""
    return study.objectives if isinstance(study, Search) else {"dev/ppl": "minimize"}


def _best(study: Study | None, cells: list[CellState], runs: dict[str, RunState]) -> Best | None:
    """None for several aims, and where rows have their own pieces, which perplexities are per. A row of a table
    with a seed that diverged has no mean."""
    aims = _aims(study)
    done = [s for s in cells if s.state == "finished" and s.values]
    if len(aims) > 1 or not done or (isinstance(study, Ablation) and study.data):
        return None
    ((name, direction),) = aims.items()
    rows: dict[str, list[CellState]] = {}
    for s in done:
        rows.setdefault(s.cell.row, []).append(s)
    for s in cells:
        if any(runs[run.training_hash].diverged for run in s.cell.runs):
            rows.pop(s.cell.row, None)
    if not rows:
        return None
    values = {row: [s.values[0] for s in states] for row, states in rows.items()}
    # PPL.mean, exact, takes 20 times as long: only the best row's is shown
    means = {row: of[0] if len(of) == 1 else math.exp(fmean(map(PPL.transform, of))) for row, of in values.items()}
    row = (min if direction == "minimize" else max)(means, key=lambda candidate: means[candidate])
    (first, *more) = rows[row]
    return Best(row, None if more or first.cell.more else first.cell.seed, name, PPL.mean(values[row]))


def _took(cells: list[CellState], runs: dict[str, RunState]) -> Took:
    whole: dict[str, tuple[float, float]] = {}  # a run of two rows counts once
    parts: dict[str, Seconds] = {}
    for s in cells:
        for run in s.cell.runs if s.state == "finished" else ():
            record = runs[run.training_hash].record
            seconds = record.seconds.total if record else (s.seconds or 0.0) / len(s.cell.runs)
            whole |= {run.training_hash: (run.cost, seconds)} if seconds else {}
            parts |= {run.training_hash: record.seconds} if record else {}
    trials = [s.seconds for s in cells if s.state in ("finished", "stopped early") and s.seconds]
    return Took(list(whole.values()), trials, list(parts.values()))


def _running(s: CellState, runs: dict[str, RunState], took: Took) -> CellState:
    cell = next((run for run in s.cell.runs if runs[run.training_hash].state == "running"), s.cell)
    run = runs[cell.training_hash]
    if run.step is None and (least := took.of(cell.cost)) is not None:
        run = replace(run, left=Left(least))
    run = replace(run, phase=run.phase or "starting")
    if run.state == "interrupted":  # its next attempt has not begun yet
        run = replace(run, words="")
    return replace(s, run=run)


def _left(cells: list[CellState], runs: dict[str, RunState], took: Took, coming: int, workers: int) -> Left | None:
    """Until the last run ends; None where nothing is known, or nobody works."""
    running = [(s.cell, s.run) for s in cells if s.run is not None]
    waiting = [s.cell for s in cells if s.state in AHEAD]
    at_least = any(run.left is None or run.left.at_least for _, run in running)
    if not took.whole:  # what the running ones will have taken just for training
        took = Took([(cell.cost, run.per_step * run.steps) for cell, run in running if run.per_step and run.steps])
    workers = max(workers, len(running))
    if not took.whole or not workers or not (waiting or coming or running):
        return None

    unknown = [0.0 if run.scoring else _rest(cell, run, took) for cell, run in running]
    busy = [run.left.seconds if run.left else whole for (_, run), whole in zip(running, unknown, strict=True)]
    rest = [_rest(cell, runs[cell.training_hash], took) for cell in waiting]
    each = fmean(took.trials or [seconds for _, seconds in took.whole])
    end = until_the_last(busy, [*rest, *[each] * coming], workers)
    return None if at_least and end < 1 else Left(end, at_least)


def _rest(cell: Cell, run: RunState, took: Took) -> float:
    """Seconds of what is left of a run, by what others took: its scoring at least."""
    return max((took.of(cell.cost) or 0.0) * (1 - run.trained), took.scoring or 0.0)


def _share(cells: list[CellState], runs: dict[str, RunState], coming: int) -> float:
    """Of the predicted work, checkpoints of runs that will resume included; a trial still to come counts as the
    mean of the known ones."""
    if not cells:
        return 0.0
    whole = sum(s.cell.cost for s in cells)
    whole += coming * whole / len(cells)
    done = sum(s.cell.cost for s in cells if s.state != "running" and s.state not in AHEAD)
    begun = (run for s in cells if s.state == "running" or s.state in AHEAD for run in s.cell.runs)
    done += sum(run.cost * runs[run.training_hash].trained for run in begun)
    return done / whole if whole else 0.0
