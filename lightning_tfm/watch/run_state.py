"""The state of one run, from the files of its folder, whatever their condition: state, progress, curve, time left.

Every reader of a run (launcher, `fit`, `status`, `runs list`, `plan`, dashboard, exports, W&B, report) asks here.
"""

import math
import os
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from lightning_tfm.metrics import METRICS, Metric, chief, numbers
from lightning_tfm.runs.divergence import Divergence, Undefined, divergence_of
from lightning_tfm.runs.record import CURVES, Called, Outcome, Progress, RunRecord, read_record, read_small
from lightning_tfm.schema import INFINITE
from lightning_tfm.study.cell import Cell
from lightning_tfm.sums import DamagedFile, check_files
from lightning_tfm.watch.file_cache import AttemptView, Lines, Stamp, read_attempts, read_object, stamp
from lightning_tfm.watch.time_left import Left, Took

if TYPE_CHECKING:
    from lightning_tfm.watch.run_cache import Memory

STATES = ("running", "waiting", "interrupted", "failed", "damaged", "stopped early", "finished")
"""in the order in which one wants to see them"""
SCORING = "translate"
"""how the phases begin in which a trained run is scored"""
DEV = "dev_ppl"
"""key of the dev perplexity, in separate lines"""
SPARK = 32
"""points of a small curve"""
RECENT = 20
"""lines whose pace counts as the run's"""
NUMBERS = {int, float}
"""types of JSON's numbers"""
Points = list[tuple[float, float]]
"""(step, value)"""
OF_CURVE = ("words", "diverged", "damaged", "curve", "loss", "best_ppl")
"""fields of RunState that say what a finished run's curve does"""
DECIDING = ("", "/attempts", "/result.json")
"""of a run's folder, what shows whether one that had ended is still as it was"""
MORE = ("/metrics.jsonl", "/cell.json", "/experiment.json")
"""what else a finished run is read from"""


class Curve:
    """What a run writes down during training, from its metrics.jsonl as it grows or is replaced.

    A damaged line is left out and counted. Of validations on several dev texts, in a run that was resumed with another
    one, those on the last remain: two texts do not make a curve. Those on `text`, the first 16 digits of its
    fingerprint, where it is given.
    """

    def __init__(self, path: Path | str, text: str = "") -> None:
        self._file, self._text = Lines(path, _are_records), text
        self.wrong = ""
        """why nothing of a finished run's curve is read"""

    @classmethod
    def of(cls, folder: Path, record: RunRecord | None = None, text: str = "") -> "Curve":
        """Of the run in `folder`, at one look; for a finished one, with its record, only what the run wrote."""
        curve = cls(f"{folder}/metrics.jsonl", text)
        try:
            check_files(folder, record.files if record else {})
        except (DamagedFile, OSError) as error:
            curve.wrong = str(error)
            return curve
        return curve.look()

    def look(self) -> "Curve":
        """Read what came since the last look."""
        self._file.look()
        return self

    @property
    def damaged(self) -> int:
        """Lines that were left out."""
        return self._file.damaged

    @property
    def words(self) -> str:
        """What is damaged; empty for nothing."""
        return self.wrong or self._file.words

    @property
    def lines(self) -> list[dict[str, Any]]:
        """All records, without validations on another dev text; files of older versions do not name it."""
        records = self._file.records
        last = next((line["dev"] for line in reversed(records) if "dev" in line), None)
        text = last and (self._text or last)
        return records if text is None else [line for line in records if DEV not in line or line.get("dev") == text]

    @property
    def keys(self) -> list[str]:
        """The quantities in the lines, apart from their step."""
        return list(dict.fromkeys(key for line in self._file.records for key in line if key != "step"))

    def every(self, key: str) -> Points:
        """Its finite values; a perplexity is above 0."""
        lines = [line for line in self.lines if key in line]
        points = [(float(line["step"]), line[key]) for line in lines if _is_number(line[key])]
        return [(step, float(value)) for step, value in points if math.isfinite(value) and (key != DEV or value > 0)]

    def points(self, key: str, most: int = 400) -> Points:
        """`every`; where that is more than `most`, means over as many neighbours as needed, and the last unchanged."""
        return _fewer(self.every(key), most)

    def last(self, key: str) -> float | None:
        """The last value, infinite ones too; None if there is none."""
        return next((float(line[key]) for line in reversed(self.lines) if _is_number(line.get(key))), None)

    @property
    def validations(self) -> dict[int, float]:
        """step -> dev perplexity, where it is finite."""
        return {int(step): value for step, value in sorted(self.every(DEV))}

    def course(self, V: int | None) -> Divergence | Undefined | None:
        """Whether the training diverged (runs/divergence.py), of a vocabulary of V pieces."""
        return divergence_of(self.lines, V)

    def summary(self, V: int | None) -> dict[str, Any]:
        """OF_CURVE, of a finished run."""
        lines = self.lines
        course = divergence_of(lines, V)
        lost = isinstance(course, Divergence)
        words = self.words or (str(course) if lost else "")
        losses = (line["loss"] for line in reversed(lines) if "loss" in line)
        loss = next((float(value) for value in losses if _is_number(value) and math.isfinite(value)), None)
        validated = self.every(DEV)
        best = min((value for _, value in validated), default=None)
        values = (words, lost, self.damaged, thin_points(_fewer(validated)), loss, best)
        return dict(zip(OF_CURVE, values, strict=True))

    @property
    def per_step(self) -> float | None:
        """Recent seconds of training per step: the median, which a night's pause in one of them does not move."""
        times = [(0.0, 0.0), *self.every("seconds")][-RECENT - 1 :]
        seconds = [(t1 - t0) / (s1 - s0) for (s0, t0), (s1, t1) in pairwise(times) if s1 > s0]
        return median(seconds) if seconds else None


def _fewer(points: Points, most: int = 400) -> Points:
    """See Curve.points."""
    if len(points) <= most:
        return points
    *before, last = points
    size = -(-len(before) // (most - 1))
    parts = [before[i : i + size] for i in range(0, len(before), size)]
    return [*((round(fmean(x for x, _ in part), 1), fmean(y for _, y in part)) for part in parts), last]


def _is_number(value: Any) -> bool:
    return type(value) in NUMBERS


def _are_records(lines: list[dict[str, Any]]) -> bool:
    """Whether each has a whole step, and numbers where the program writes them; INFINITE becomes one."""
    for line in lines:
        if not NUMBERS.issuperset(map(type, line.values())):
            for key in CURVES:
                value = line.get(key, 0)
                if type(value) not in NUMBERS:
                    if value != INFINITE:
                        return False
                    line[key] = math.inf
    steps = [line.get("step", -1) for line in lines]
    return all(type(step) is int for step in steps) and min(steps) >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run at a moment. Times are seconds since 1970; None: unknown."""

    name: str
    """of its folder: the first digits of its training hash"""
    called: Called | None = None
    """row and seed as which it was last requested"""
    state: str
    """one of STATES"""
    phase: str = ""
    """what a running one does"""
    step: int | None = None
    steps: int | None = None
    tokens_per_second: float | None = None
    """None while nothing is trained"""
    kept: int = 0
    """step of the newest checkpoint of one that nobody is working on"""
    per_step: float | None = None
    """recent seconds of training per step"""
    left: Left | None = None
    """of a running one"""
    loss: float | None = None
    """per target token, as last written down"""
    text: str = ""
    """first 16 digits of the fingerprint of the dev text it is scored on, where a study has another than its curve"""
    validated_on: str = ""
    """those of its curve, while it trains; empty in files of older versions"""
    ppl: float | None = None
    """of the dev text: final, or the last one so far"""
    best_ppl: float | None = None
    """the lowest so far"""
    aims: dict[str, float] = field(default_factory=dict, repr=False)
    """objective -> value, of a search's run whose record is not here"""
    started: float | None = None
    changed: float | None = None
    """when it ended, or was last heard of"""
    written: float | None = None
    """when its curve was"""
    seconds: float | None = None
    """of work, all attempts"""
    train: float | None = None
    """seconds of training among them"""
    parameters: int | None = None
    attempts: int = 0
    owner: str = ""
    """the process working on it"""
    abandoned: bool = False
    """whether its last attempt did not end, and nobody is working on it"""
    words: str = ""
    """why it ended, or what is wrong with its files"""
    outcome: Outcome | None = None
    """how its last attempt ended, if it is not finished"""
    damaged: int = 0
    """lines of its curve that were left out"""
    diverged: bool = False
    """whether its training, which has ended, diverged (runs/divergence.py); False where its curve was not read"""
    curve: tuple[tuple[float, float], ...] = ()
    """(step, dev perplexity), thinned"""
    record: RunRecord | None = field(default=None, repr=False)
    """of a finished one"""
    experiment: dict[str, Any] = field(default_factory=dict, repr=False)
    """what is trained, at its true sizes; empty where a Memory does not keep it"""

    @classmethod
    def of(cls, folder: Path) -> "RunState":
        """Of the run in `folder`, at one look."""
        return Reader(folder).look()

    @property
    def trained(self) -> float:
        """The share of its steps that need not be trained again."""
        if self.record is not None:
            return 1.0
        return min(1.0, ((self.step or 0) if self.state == "running" else self.kept) / (self.steps or 1))

    @property
    def scoring(self) -> bool:
        """Whether it is trained, and its text is translated."""
        return self.phase.startswith(SCORING)

    def score(self, metric: Metric) -> float | None:
        """Of the dev text, of a finished one."""
        dev = self.record.scores.get("dev") if self.record else None
        return metric.of(dev) if dev else self.aims.get(f"dev/{metric.name}")

    @property
    def scores(self) -> dict[str, float]:
        """Metric -> score of the translations of its dev text."""
        dev = self.record.scores.get("dev") if self.record else None
        values = numbers(dev) if dev else {aim.removeprefix("dev/"): value for aim, value in self.aims.items()}
        return {name: score for name, score in values.items() if name in METRICS and METRICS[name].counted}

    @property
    def metric(self) -> Metric:
        """The one of them that is shown where there is room for one."""
        return chief(self.scores)

    def after(self, took: Took) -> "RunState":
        """With the time left, by what finished runs took."""
        if self.state != "running":
            return self
        if self.scoring:
            return replace(self, left=took.scoring_left(self.written) if self.written is not None else None)
        if self.step is None or self.steps is None:
            return replace(self, left=None)
        return replace(self, left=took.training(self.steps - self.step, self.per_step))


class Reader:
    """Follows one run's folder. Once it has ended, a look costs three calls of stat."""

    def __init__(self, folder: Path | str, curves: bool = True, memory: "Memory | None" = None) -> None:
        """Without `curves`, those of finished runs are not read. With a `memory`, no more is kept than it keeps."""
        self._path, self._curves, self._memory = str(folder), curves, memory
        self.name = self._path.rpartition("/")[2]
        self._deciding = [f"{folder}{part}" for part in DECIDING]
        self.stamps: list[Stamp] = []
        self._settled = False
        self._curve: Curve | None = None
        self._state: RunState | None = None
        self._mark = ""
        """of its files when it was read"""
        self._experiment: dict[str, Any] = {}

    @cached_property
    def folder(self) -> Path:
        """Made when a file of it is read: a Path takes longer than a call of stat."""
        return Path(self._path)

    def look(self) -> RunState:
        """The run as it is now."""
        stamps = [stamp(path) for path in self._deciding]
        if self._state is None or not self._settled or stamps != self.stamps:
            self.stamps = stamps
            more = [stamp(f"{self._path}{part}") for part in MORE]
            if self._memory:
                self._mark = self._memory.mark(self.name, stamps, more)
            if self._memory and self._state is None and (kept := self._memory.recall(self._mark)):
                self._settled, state = True, recorded_state(self.name, **kept)
            else:
                state = self._read(named=more[1] is not None)
            self._state = self._state if state == self._state else state
        return self._state

    @property
    def kept(self) -> dict[str, dict[str, Any]]:
        """What a Memory keeps of a finished run, by the mark of its files."""
        state = self._state
        if state is None or state.record is None:
            return {}
        curve = {name: getattr(state, name) for name in OF_CURVE}
        return {self._mark: {"record": state.record, "called": state.called, "curve": curve}}

    def _read(self, named: bool) -> RunState:
        """`named`: whether there is a file that says what it was last requested as."""
        state = self._as_it_is()
        if not named:
            return state
        called, wrong = _small(Called, self.folder / "cell.json")
        return replace(state, called=called, words=state.words or wrong) if called or wrong else state

    def _as_it_is(self) -> RunState:
        record = read_record(self.folder / "result.json")
        if isinstance(record, RunRecord):
            self._settled, self._curve = True, None
            curve = Curve.of(self.folder, record).summary(record.V) if self._curves else {}
            if self._memory:
                record = self._memory.slim(record, record.experiment or self._trains())
            return recorded_state(self.name, record, curve)
        attempts = read_attempts(self.folder)
        last = attempts[-1] if attempts else None
        alive = last is not None and last.alive
        self._settled = not alive and (last is None or last.surely_over)
        state = self._on_the_way(attempts)
        if record.damaged:
            return replace(state, state="damaged", words=f"result.json: {record.reason}")
        if alive:
            return replace(state, state="running").after(Took())
        return self._state_at_end(state)

    def _trains(self) -> dict[str, Any]:
        """What it trains, according to its folder."""
        if self._memory and not self._experiment:
            self._experiment = self._memory.experiment(read_object(self.folder / "experiment.json"))
        return self._experiment

    def _on_the_way(self, attempts: list[AttemptView]) -> RunState:
        curve = self._curve = (self._curve or Curve(self.folder / "metrics.jsonl")).look()
        progress, wrong = _small(Progress, self.folder / "progress.json")
        last = attempts[-1] if attempts else None
        heard = [t for t in (progress.time if progress else None, *((last.heard, last.ended) if last else ())) if t]
        written = stamp(self.folder / "metrics.jsonl")
        # files of an earlier attempt say how far the run is, but not what it is doing now
        current = progress is not None and (last is None or progress.attempt in (0, last.number))
        phase = progress.phase if progress and current else "starting"
        rate = progress.tokens_per_second if progress and current and not phase.startswith(SCORING) else None
        validated = [float(line[DEV]) for line in curve.lines if DEV in line]
        return RunState(
            name=self.name,
            state="waiting",
            step=progress.step if progress else None,
            steps=progress.steps if progress else None,
            phase=phase,
            tokens_per_second=rate or None,
            per_step=curve.per_step,
            loss=curve.last("loss"),
            ppl=validated[-1] if validated else None,
            best_ppl=min(validated, default=None),
            validated_on=next((line["dev"] for line in reversed(curve.lines) if "dev" in line), ""),
            started=attempts[0].started if attempts else None,
            changed=max(heard, default=None),
            written=written[0] / 1e9 if written else None,
            seconds=curve.last("seconds"),
            attempts=last.number if last else 0,
            owner=last.owner if last else "",
            abandoned=last is not None and last.ended is None and not last.alive,
            words=wrong or curve.words,
            damaged=curve.damaged,
            curve=thin_points(curve.points(DEV)),
            experiment=self._trains(),
        )

    def _state_at_end(self, state: RunState) -> RunState:
        names = (re.fullmatch(r"step-(\d+)\.ckpt", path.name) for path in self.folder.glob("checkpoints/*"))
        kept = max((int(name[1]) for name in names if name), default=0)
        state = replace(state, phase="", tokens_per_second=None, kept=kept)
        last, wrong = _small(Outcome, self.folder / "outcome.json")
        if wrong:
            return replace(state, state="damaged", words=wrong)
        if last is None or (last.attempt or state.attempts) < state.attempts:  # an earlier attempt said that
            gone = f"{state.owner} ended without a message" if state.owner else ""
            return replace(state, state="interrupted" if state.attempts else "waiting", words=state.words or gone)
        name = {"pruned": "stopped early", "interrupted": "interrupted"}.get(last.outcome, "failed")
        reason = last.reason if name != "failed" else f"{last.outcome.replace('_', ' ')}: {last.reason}"
        words = "; ".join(filter(None, (reason, state.words)))
        step = state.step if last.step is None else last.step
        lost = last.outcome == "nan_loss"
        return replace(state, state=name, words=words, outcome=last, step=step, diverged=lost)


def _small(kind: Any, path: Path) -> tuple[Any, str]:
    try:
        return read_small(kind, path), ""
    except ValueError as error:
        return None, f"{path.name}: {error}"


def recorded_state(name: str, record: RunRecord, curve: dict[str, Any], called: Called | None = None) -> RunState:
    """What a record says about its run."""
    dev = record.scores.get("dev")
    lost = {"diverged": True} if dev is not None and math.isinf(dev.ppl) else {}
    return RunState(
        name=name,
        called=called,
        state="finished",
        step=record.steps,
        steps=record.steps,
        ppl=dev.ppl if dev else None,
        started=record.started,
        changed=record.ended,
        seconds=record.seconds.total,
        train=record.seconds.train,
        parameters=record.parameters.total,
        attempts=record.attempts or 0,
        tokens_per_second=record.tokens_per_second,
        record=record,
        experiment=record.experiment,
        **(curve | lost),
    )


def name_of(cell: Cell) -> str:
    """Of the folder of its run."""
    return cell.training_hash[:16]


def thin_points(points: Points, most: int = SPARK) -> tuple[tuple[float, float], ...]:
    """About `most` points, the last one among them; of two curves at the same steps the same ones, or every second."""
    every = 1
    while len(points) > most * every:
        every *= 2
    kept = points[every - 1 :: every]
    return tuple(kept if not points or kept[-1] == points[-1] else [*kept, points[-1]])


class Runs:
    """The runs of a results folder, each read again if it may have changed; finished ones are kept."""

    def __init__(self, root: Path, curves: bool = True, memory: "Memory | None" = None) -> None:
        """As Reader's."""
        self._root, self._curves, self._memory = root / "runs", curves, memory
        self._readers: dict[str, Reader] = {}

    def __getitem__(self, training_hash: str) -> RunState:
        """Of one run, by its hash or the name of its folder."""
        name = training_hash[:16]
        if name not in self._readers:
            self._readers[name] = Reader(f"{self._root}/{name}", self._curves, self._memory)
        return self._readers[name].look()

    @property
    def stamps(self) -> list[list[Stamp]]:
        """Of all that were looked at: others where somebody worked on one, if only to score it anew."""
        return [reader.stamps for reader in self._readers.values()]

    def all(self) -> dict[str, RunState]:
        """Of all with a folder, by name."""
        try:
            with os.scandir(self._root) as entries:
                present = sorted(entry.name for entry in entries if entry.is_dir())
        except OSError:
            present = []
        names = [name for name in present if not name.startswith(".")]
        there = set(names)
        self._readers = {name: reader for name, reader in self._readers.items() if name in there}
        return {name: self[name] for name in names}

    @property
    def kept(self) -> dict[str, dict[str, Any]]:
        """Finished runs, for Memory.save."""
        return {mark: run for reader in self._readers.values() for mark, run in reader.kept.items()}
