"""One worker of a study: claim a cell, fork a child that runs it, record how the child ended, repeat.

The child starts warm (torch is already imported) and its memory is freed with it. Only the worker talks to Optuna.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from lightning_tfm.queue.queue import Claim, Queue
from lightning_tfm.queue.resources import Resources
from lightning_tfm.queue.searches.sampling import SearchTrials, trials_of
from lightning_tfm.queue.storages.backends import OUTAGES
from lightning_tfm.queue.storages.open import make_queue
from lightning_tfm.runs.folder import Attempt, RunFolder, read_json
from lightning_tfm.runs.outcome import in_a_line, named
from lightning_tfm.runs.process.attempt import Task, attempted, become_run
from lightning_tfm.runs.process.forking import STOP_SIGNALS, forked, let_come, set_threads
from lightning_tfm.runs.record import Missing, RunRecord
from lightning_tfm.runs.rescored import read_scored
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.study import Study
from lightning_tfm.study.study_file import folder_of, link
from lightning_tfm.watch.run_state import RunState

WATCH = 0.2
"""seconds between two checks of a run's record by a search"""
TICK = 0.02
"""seconds between two checks of the child"""
LOOK = 0.5
"""seconds between two checks of a queue that has nothing for us"""

Answer = TypeVar("Answer")


class Trainer(Protocol):
    """Computes a cell and writes its result.json, or scores one again (queue/training.py: Training)."""

    def train(self, task: Task) -> None: ...

    def score(self, task: Task) -> None: ...


@dataclass(frozen=True)
class Job:
    """What the workers of a study share."""

    study: Study
    root: Path
    training: Trainer
    resources: Resources = field(default_factory=Resources)
    first_validation: int = 1
    """optimizer step of the first dev perplexity of a run"""
    again: bool = False
    """try once more what has failed for a cause that may be gone"""

    @property
    def folder(self) -> Path:
        return folder_of(self.root, self.study.name)

    def open(self, say: Callable[[str], None]) -> Queue:
        """The queue, for the calling process; created if missing."""
        return make_queue(self.study, self.root, self.resources, say)


@dataclass
class Worker:
    """The life of one worker process, from the fork to the last cell."""

    job: Job
    slot: int
    say: Callable[[str], None]
    stop: int = 0
    """the stop signal that arrived, 0 for none"""

    def __post_init__(self) -> None:
        self.queue = self.job.open(self.say)
        self.trials = trials_of(self.job.study, self.queue, self.job.first_validation)

    def work(self) -> int:
        """Run cells until none is left or a stop signal arrives; returns the exit code."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        let_come()
        stopped: tuple[Claim | None, bool] = (None, False)
        while not self.stop:
            claim, done = self._ask(self._next, stopped)
            if claim is not None:
                self._run(claim)
            elif done:
                return 0
            else:
                self._pause(LOOK)
        return 128 + self.stop

    def _next(self) -> tuple[Claim | None, bool]:
        self.queue.reap()
        claim = self.queue.claim(skip=self._busy)
        if claim is None:
            claim = self.trials.propose()
            if claim is not None:
                link(self.job.folder, claim.cell)
        return claim, claim is None and self.queue.done()

    def _ask(self, question: Callable[[], Answer], if_stopped: Answer) -> Answer:
        """The storage's answer; during an outage it is asked again until it answers or a stop signal arrives."""
        warned = False
        while True:
            try:
                return question()
            except OUTAGES as error:
                if self.stop:
                    return if_stopped
                if not warned:
                    cause = in_a_line(error.__cause__ or error).splitlines()[0]
                    self.say(f"worker {self.slot}: the storage does not answer, waiting for it ({cause})")
                warned = True
                self._pause(4 * LOOK)

    def _on_signal(self, number: int, frame: object) -> None:
        self.stop = self.stop or number

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.stop and time.monotonic() < end:
            time.sleep(TICK)

    def _busy(self, training_hash: str) -> bool:
        """Somebody else, outside this study, is working on the run: leave the cell until that is over."""
        return self._folder(training_hash).owner() is not None

    def _folder(self, training_hash: str) -> RunFolder:
        grace = self.job.resources.grace
        return RunFolder(self.job.root, training_hash, grace, grace / 12)

    def _run(self, claim: Claim) -> None:
        cell, folder = claim.cell, self._folder(claim.cell.training_hash)
        if not self._scored(cell):
            alone = not self.job.resources.share_files
            if alone and claim.attempt > 1 and not any(folder.checkpoints.glob("*")):
                self.say(f"{cell.row} seed {cell.seed}: starts over, since its checkpoints are on another machine")
            pid = forked(partial(self._be_run, cell, folder))
            outcome, reason = self._wait(pid, claim, folder)
            if outcome != "finished":
                self._record(claim, outcome, reason)
                return
        self._record(claim, "finished", "")

    def _be_run(self, cell: Cell, folder: RunFolder) -> int:
        """Body of a run's process; returns its exit code."""
        become_run(folder)
        set_threads(self.job.resources.threads)
        training = self.job.training
        return attempted(
            folder,
            lambda attempt: training.train(self._task(cell, attempt)),
            lambda attempt: training.score(self._task(cell, attempt)),
        )

    def _record_of(self, cell: Cell) -> RunRecord | Missing:
        study, folder = self.job.study, self._folder(cell.training_hash)
        return read_scored(folder, study.evaluation(cell, self.job.root), study.base.data.dev)

    def _scored(self, cell: Cell) -> bool:
        """Whether the run exists and is scored as the study scores."""
        if not self._folder(cell.training_hash).finished():
            return False
        found = self._record_of(cell)
        return isinstance(found, RunRecord) and found.scored_by(self.job.study.evaluation(cell, self.job.root))

    def _task(self, cell: Cell, attempt: Attempt) -> Task:
        return Task(cell, attempt, self.job.resources.threads, self.slot)

    def _wait(self, pid: int, claim: Claim, folder: RunFolder) -> tuple[str, str]:
        """Wait for the child, keeping the claim alive; (outcome, reason)."""
        grace, patience = self.job.resources.grace, self.job.resources.patience
        last_beat = last_sign = last_watch = time.monotonic()
        stopped_at: float | None = None
        heartbeat = _heartbeat(folder)
        killed_for = ""
        claimed = True
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            now = time.monotonic()
            if self.stop and stopped_at is None:
                os.kill(pid, self.stop)
                stopped_at = now
            if stopped_at is not None and now - stopped_at > patience and not killed_for:
                killed_for = f"wrote no checkpoint within {patience:g} s of the stop signal"
                os.kill(pid, signal.SIGKILL)
            if now - last_watch > WATCH:
                with suppress(*OUTAGES):  # the next look shows what this one could not
                    self.trials.watch(claim, folder, pid)
                last_watch = time.monotonic()
            if now - last_beat > grace / 4:
                claimed = claimed and self._beat(claim)
                last_beat = now
                if _heartbeat(folder) != heartbeat:
                    heartbeat, last_sign = _heartbeat(folder), now
                elif now - last_sign > grace and not killed_for:
                    killed_for = f"gave no sign of life for {grace:g} s"
                    os.kill(pid, signal.SIGKILL)
            time.sleep(TICK)
        return _outcome(os.waitstatus_to_exitcode(status), folder, killed_for, stopped_at is not None)

    def _beat(self, claim: Claim) -> bool:
        try:
            return self.queue.beat(claim)
        except OUTAGES:  # the run needs no database; the next beat may get through
            return True

    def _finish(self, claim: Claim) -> bool:
        folder, record = self._folder(claim.cell.training_hash), self._record_of(claim.cell)
        assert isinstance(record, RunRecord), "finished() was seen"
        if not self.job.resources.share_files:
            self.queue.mark(claim, "record", read_json(folder.result))
        self.trials.finish(claim, folder, record)
        return self.queue.finish(claim, *self.trials.values(record))

    def _record(self, claim: Claim, outcome: str, reason: str) -> None:
        """Tell the queue how the claim ended."""
        cell = claim.cell
        name, folder = f"{cell.row} seed {cell.seed}", self._folder(cell.training_hash)
        if outcome == "finished":
            if not self._ask(lambda: self._finish(claim), True):
                self.say(f"{name}: finished, but the claim had passed to another worker, which will record it")
            return
        if outcome == "pruned" and isinstance(self.trials, SearchTrials):
            reason = self.trials.pruned_reason(claim, RunState.of(folder.path).outcome)
            self._ask(lambda: self.queue.prune(claim, reason), True)
            return
        again = self._ask(lambda: self.queue.fail(claim, outcome, reason), True)
        if outcome == "owned":
            self._pause(LOOK)
        elif outcome != "interrupted":
            self.say(f"{name}: {outcome}: {reason}; {'queued again' if again else 'given up'} (log: {folder.log})")


def _heartbeat(folder: RunFolder) -> float:
    """Time of the newest heartbeat of the run, 0 without one."""
    try:
        return max((beat.stat().st_mtime for beat in folder.attempts.glob("*.beat")), default=0.0)
    except FileNotFoundError:  # released at this moment
        return 0.0


def _outcome(status: int, folder: RunFolder, killed_for: str, stopped: bool) -> tuple[str, str]:
    """Outcome and reason of a child, from its exit code (negative: signal) and outcome.json."""
    if status == 0 and folder.finished():
        return "finished", ""
    run = RunState.of(folder.path)
    where = "" if run.step is None else f" at step {run.step}"
    if status < 0:
        if stopped:
            return "interrupted", killed_for or "stopped"
        hint = " (out of memory?)" if status == -signal.SIGKILL and not killed_for else ""
        return "killed", f"killed by {signal.Signals(-status).name}{where}{hint}{killed_for and ': '}{killed_for}"
    reason = run.outcome.reason if run.outcome else f"exit code {status}{where}, see the log"
    return named(status), reason
