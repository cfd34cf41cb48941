"""What the index says of a run, from the files of its folder: whatever state they are in, and without writing."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning_tfm.dashboard.course import DEV, Course, Points, dev_curve
from lightning_tfm.dashboard.files import Stamp, stamp
from lightning_tfm.runs.glance import AttemptView, read_attempts
from lightning_tfm.runs.record import Called, LastWords, Progress, RunRecord, read, read_small

STATES = ("running", "waiting", "interrupted", "failed", "damaged", "stopped early", "finished")
"""in the order in which one wants to see them"""
SPARK = 32
"""points of the small curve in the index"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run at a moment. Times are seconds since 1970; None is not known."""

    name: str
    """of its folder: the first digits of its training hash"""
    called: str = ""
    """row and seed as which it was last asked for"""
    state: str
    """one of STATES"""
    phase: str = ""
    """what a running one does"""
    step: int | None = None
    steps: int | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    """of training"""
    ppl: float | None = None
    """of the dev text: final, or the last one so far"""
    bleu: float | None = None
    started: float | None = None
    changed: float | None = None
    """when it ended, or was last heard of"""
    seconds: float | None = None
    """of work, all attempts"""
    train: float | None = None
    """seconds of training among them, as is `decode` of scoring"""
    decode: float | None = None
    parameters: int | None = None
    attempts: int = 0
    owner: str = ""
    """the process that works on it"""
    words: str = ""
    """why it ended, or what is wrong with its files"""
    curve: tuple[tuple[float, float], ...] = ()
    """(step, dev perplexity), thinned"""


@dataclass
class Reader:
    """Follows one run's folder; `view` is what was seen last."""

    folder: Path
    view: RunView | None = None
    _stamps: tuple[Stamp, Stamp] = (None, None)
    _settled: bool = False
    _course: Course | None = None

    def look(self) -> bool:
        """Look again; whether anything is different. A run that has ended costs two calls of stat."""
        stamps = stamp(self.folder), stamp(self.folder / "attempts")
        if self._settled and stamps == self._stamps:
            return False
        self._stamps = stamps
        view, (called, wrong) = self._read(), _small(Called, self.folder / "cell.json")
        view = replace(view, called=f"{called.row}, seed {called.seed}" if called else "", words=view.words or wrong)
        changed, self.view = view != self.view, view
        return changed

    def _read(self) -> RunView:
        record = read(self.folder / "result.json")
        if isinstance(record, RunRecord):
            self._settled, self._course = True, None
            return finished(self.folder.name, record, dev_curve(self.folder / "metrics.jsonl"))
        attempts = read_attempts(self.folder)
        last = attempts[-1] if attempts else None
        alive = last is not None and last.alive
        self._settled = not alive and not record.damaged and (last is None or last.surely_over)
        view = self._on_the_way(attempts)
        if record.damaged:
            return replace(view, state="damaged", words=f"result.json: {record.reason}")
        if alive:
            return self._running(view)
        return self._ended(view)

    def _on_the_way(self, attempts: list[AttemptView]) -> RunView:
        course = self._course = self._course or Course(self.folder / "metrics.jsonl")
        course.look()
        progress, wrong = _small(Progress, self.folder / "progress.json")
        heard = [t for t in (progress.time if progress else None, attempts[-1].heard if attempts else None) if t]
        return RunView(
            name=self.folder.name,
            state="waiting",
            step=progress.step if progress else None,
            steps=progress.steps if progress else None,
            phase=progress.phase if progress else "starting",
            tokens_per_second=progress.tokens_per_second if progress else None,
            ppl=course.last(DEV),
            started=attempts[0].started if attempts else None,
            changed=max(heard, default=None),
            seconds=course.last("seconds"),
            attempts=attempts[-1].number if attempts else 0,
            owner=attempts[-1].owner if attempts else "",
            words=wrong or (f"metrics.jsonl: {course.damaged} damaged lines" if course.damaged else ""),
            curve=thinned(course.of(DEV).points()),
        )

    def _running(self, view: RunView) -> RunView:
        per_step = self._course.seconds_per_step() if self._course else None
        left = None
        if per_step is not None and view.step is not None and view.steps is not None:
            left = (view.steps - view.step) * per_step
        return replace(view, state="running", seconds_left=left)

    def _ended(self, view: RunView) -> RunView:
        view = replace(view, phase="", tokens_per_second=None)
        last, wrong = _small(LastWords, self.folder / "outcome.json")
        if wrong:
            return replace(view, state="damaged", words=wrong)
        if last is None:
            gone = f"{view.owner} ended without a word" if view.owner else ""
            return replace(view, state="interrupted" if view.attempts else "waiting", words=view.words or gone)
        state = {"pruned": "stopped early", "interrupted": "interrupted"}.get(last.outcome, "failed")
        said = last.reason if state != "failed" else f"{last.outcome.replace('_', ' ')}: {last.reason}"
        return replace(view, state=state, words=said, step=view.step if last.step is None else last.step)


def finished(name: str, record: RunRecord, curve: Points) -> RunView:
    """What a record says of its run."""
    dev = record.scores.get("dev")
    return RunView(
        name=name,
        state="finished",
        step=record.steps,
        steps=record.steps,
        ppl=dev.ppl if dev else None,
        bleu=dev.bleu if dev else None,
        started=record.started,
        changed=record.ended,
        seconds=record.seconds.total,
        train=record.seconds.train,
        decode=record.seconds.decode,
        parameters=record.parameters.total,
        attempts=record.attempts or 0,
        tokens_per_second=record.tokens_per_second,
        curve=thinned(curve),
    )


def thinned(points: Points, most: int = SPARK) -> tuple[tuple[float, float], ...]:
    """About `most` points, the last one among them; of two curves at the same steps the same ones, or every second."""
    every = 1
    while len(points) > most * every:
        every *= 2
    kept = points[every - 1 :: every]
    return tuple(kept if not points or kept[-1] == points[-1] else [*kept, points[-1]])


def _small(kind: Any, path: Path) -> tuple[Any, str]:
    try:
        return read_small(kind, path), ""
    except ValueError as error:
        return None, f"{path.name}: {error}"
