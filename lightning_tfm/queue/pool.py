"""Run a study on this machine: claim cells, fork a child for each, record how it ended, stop in order.

One process deals, forks and watches. It has imported what the runs need and never computes: OpenMP and CUDA do not
survive a fork, imports do; it must not touch `torch.cuda` before the fork. A child starts warm, its memory is freed
with it, and it dies with this process. Only this process talks to Optuna.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from lightning_tfm.config import Hardware
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.fingerprint_check import prepare_same
from lightning_tfm.errors import UserError
from lightning_tfm.queue.queue import Claim, Queue
from lightning_tfm.queue.resources import Resources
from lightning_tfm.queue.sampling import SearchTrials
from lightning_tfm.queue.storage import OUTAGES
from lightning_tfm.queue.view import View
from lightning_tfm.runs.folder import REMEDY, Attempt, RunFolder, read_json
from lightning_tfm.runs.outcome import ending_of, in_a_line, outcome_of
from lightning_tfm.runs.process.attempt import become_run, run_attempt
from lightning_tfm.runs.process.forking import (
    STOP_SIGNALS,
    StopSignals,
    adopt_orphans,
    block_signals,
    children,
    fork,
    set_threads,
)
from lightning_tfm.runs.record import Missing, RunRecord, read_record
from lightning_tfm.runs.rescored import read_later, with_score
from lightning_tfm.study.cell import Cell, Plan
from lightning_tfm.study.search import Search
from lightning_tfm.study.study import Study
from lightning_tfm.study.study_file import folder_of, link
from lightning_tfm.watch.run_state import RunState
from lightning_tfm.watch.study_state import Watch, values_of

TICK = 0.02
"""seconds between two checks of the children"""
WATCH = 0.2
"""seconds between two checks of a run's record by a search"""
LOOK = 0.5
"""seconds between two checks of a queue that has nothing for us; an eighth of those of one that does not answer"""


@dataclass(frozen=True)
class Job:
    """What a machine is to do of a study, and how a process that is forked for a run does it."""

    study: Study
    root: Path
    resources: Resources = field(default_factory=Resources)
    first_validation: int = 1
    """optimizer step of the first dev perplexity of a run"""
    again: bool = False
    """try once more what has failed for a cause that may be gone"""

    @property
    def folder(self) -> Path:
        return folder_of(self.root, self.study.name)

    def train(self, cell: Cell, attempt: Attempt, slot: int) -> None:
        """Train and score a cell, on the devices of its slot. Raises UserError where the text is not the study's."""
        from lightning_tfm.runs.train import train_cell  # with torch: launch.py imports it before any run is forked

        plan, prepared = self._plan_and_text(cell)
        if self.resources.devices is not None:
            self.resources.devices.assign(slot)
        train_cell(plan, cell, self._hardware, attempt, prepared.folder)

    def score(self, cell: Cell, attempt: Attempt) -> None:
        """Score a finished run by the study's evaluation. Raises UserError."""
        from lightning_tfm.runs.evaluation import score_anew
        from lightning_tfm.runs.trainer import prepare_process

        prepare_process(self._hardware)
        plan, prepared = self._plan_and_text(cell)
        score_anew(attempt, plan[0], prepared)

    @property
    def _hardware(self) -> Hardware:
        return replace(self.resources.hardware, threads=self.resources.threads or self.resources.hardware.threads)

    def _plan_and_text(self, cell: Cell) -> tuple[Plan, Prepared]:
        plan = self.study.plan(cell, self.root)
        return plan, prepare_same(plan[0].data, self.root, self.study.texts(cell, self.root).known())


@dataclass
class Work:
    """A claim on a slot of this machine, and the child that runs it."""

    slot: int
    claim: Claim
    folder: RunFolder
    pid: int = 0
    """of the child; 0 if there is none"""
    beat_at: float = 0.0
    """when the storage was last told that the claim is alive"""
    watched_at: float = 0.0
    """when the run's record was last looked at"""
    sign: tuple[float, float] = (0.0, 0.0)
    """the run's newest heartbeat, and since when it is the newest"""
    stopped_at: float | None = None
    """when the child was told to stop"""
    killed_for: str = ""
    record: RunRecord | None = None
    """of a finished run"""
    ending: tuple[str, str] | None = None
    """outcome and reason, until the storage has them"""


@dataclass
class Pool:
    """The slots of this machine, from the first claim to the last."""

    job: Job
    queue: Queue
    view: View
    watch: Watch
    trials: SearchTrials | None = None
    """of a search"""
    _works: dict[int, Work] = field(default_factory=dict)
    """by slot"""
    _stop: StopSignals = field(default_factory=StopSignals)
    _passed_on: int = 0
    _deal_at: float = 0.0
    _silent_until: float = 0.0
    """the storage did not answer, and is not asked before this time; 0: it answered"""

    def run(self) -> None:
        """Until nothing is left, here or elsewhere, or a stop signal arrives: then SystemExit. Raises UserError."""
        if isinstance(self.job.study, Search):
            self.trials = SearchTrials(self.job.study, self.queue, self.job.first_validation)
        before = children()
        handlers = {number: signal.signal(number, self._stop) for number in STOP_SIGNALS}
        adopt_orphans(True)
        try:
            while not self._over():
                self._pass_on_signals()
                for work in [*self._works.values()]:
                    with self._blame(work):
                        self._tend(work)
                with suppress(*OUTAGES):
                    if self.view.due():
                        self.view.show(self.watch.look(self.queue.states()))
                time.sleep(TICK)
                self._reap_orphans(before)
        finally:
            self._give_up()
            adopt_orphans(False)
            self._reap_orphans(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self._stop.numbers:
            raise SystemExit(128 + self._stop.numbers[0])

    def _over(self) -> bool:
        """Give every free slot a cell; whether all is done, or stopped."""
        if self._stop.numbers:
            return not self._works
        if time.monotonic() < self._deal_at or len(self._works) == self.job.resources.workers:
            return False
        self._deal_at = time.monotonic() + LOOK
        return self._ask(self._deal)

    def _deal(self) -> bool:
        self.queue.reap()
        for slot in set(range(self.job.resources.workers)) - self._works.keys():
            claim = self.queue.claim(skip=lambda run: self._folder(run).owner() is not None)
            if claim is None and self.trials is not None and (claim := self.trials.propose()) is not None:
                link(self.job.folder, claim.cell)
            if claim is None:
                return not self._works and self.queue.done()
            self._works[slot] = Work(slot, claim, self._folder(claim.cell.training_hash))
            self._start(self._works[slot])
        return False

    def _ask(self, question: Callable[[], bool]) -> bool:
        """The storage's answer; False while it does not answer, which is said once."""
        if time.monotonic() < self._silent_until:
            return False
        try:
            answer = question()
        except OUTAGES as error:
            if not self._silent_until:
                cause = in_a_line(error.__cause__ or error).splitlines()[0]
                self.view.say(f"the storage does not answer, waiting for it ({cause})")
            self._silent_until = time.monotonic() + 4 * LOOK
            return False
        self._silent_until = 0.0
        return answer

    def _pass_on_signals(self) -> None:
        while len(self._stop.numbers) > self._passed_on:
            self._passed_on += 1
            first = self._passed_on == 1
            if first:
                self.view.say(
                    "stopping: the runs write a checkpoint and return to the queue (interrupt again to kill them at "
                    "once)"
                )
            for work in self._works.values():
                work.stopped_at = work.stopped_at or time.monotonic()
                if work.pid:
                    os.kill(work.pid, self._stop.numbers[0] if first else signal.SIGKILL)

    def _give_up(self) -> None:
        """Kill what still runs, after an error of our own, and hand its cells back."""
        for work in self._works.values():
            if work.pid:
                os.kill(work.pid, signal.SIGKILL)
                os.waitpid(work.pid, 0)
        for work in self._works.values():
            with suppress(*OUTAGES, UserError, OSError):  # the error that ends the pool says more
                self.queue.fail(work.claim, "interrupted", "stopped")

    def _reap_orphans(self, before: set[int]) -> None:
        """Collect processes that a dead child left to us."""
        for pid in children() - before - {work.pid for work in self._works.values()}:
            os.waitpid(pid, os.WNOHANG)

    @contextmanager
    def _blame(self, work: Work) -> Iterator[None]:
        """Where what a run left cannot be read its cell fails, and the others go on."""
        try:
            yield
        except (UserError, OSError) as error:
            if work.ending not in (None, ("finished", "")):
                raise  # even that it failed cannot be recorded: this is not the run's doing
            if work.pid:
                os.kill(work.pid, signal.SIGKILL)
                os.waitpid(work.pid, 0)
                work.pid = 0
            ending = ending_of(error)
            work.ending = (ending.outcome, ending.message)

    def _start(self, work: Work) -> None:
        """Fork the run of a claim, unless this study has scored it already: then the claim is finished."""
        cell, folder = work.claim.cell, work.folder
        with self._blame(work):
            record = self._read_record(work)
            if isinstance(record, RunRecord) and record.scored_by(self._evaluation(work)):
                work.ending, work.record = ("finished", ""), record
        if work.ending is not None:
            return
        alone = not self.job.resources.share_files
        if alone and work.claim.attempt > 1 and not any(folder.checkpoints.glob("*")):
            self.view.say(f"{cell.row} seed {cell.seed}: starts over, since its checkpoints are on another machine")
        work.beat_at = work.watched_at = now = time.monotonic()
        work.sign = (_heartbeat(folder), now)
        with block_signals():  # until it is among those that a signal is passed on to
            work.pid = fork(lambda: self._be_run(work))

    def _be_run(self, work: Work) -> int:
        """Body of a run's process; returns its exit code."""
        os.setpgid(0, 0)  # Ctrl-C on the terminal reaches only the pool, which passes it on in order
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        become_run(work.folder)
        set_threads(self.job.resources.threads)
        cell, slot = work.claim.cell, work.slot
        return run_attempt(
            work.folder,
            lambda attempt: self.job.train(cell, attempt, slot),
            lambda attempt: self.job.score(cell, attempt),
        )

    def _tend(self, work: Work) -> None:
        """Look after a claim: its child, then what the storage must know of its end."""
        if work.pid:
            done, status = os.waitpid(work.pid, os.WNOHANG)
            if not done:
                self._watch(work)
                return
            work.pid = 0
            work.ending = self._ending(os.waitstatus_to_exitcode(status), work)
        assert work.ending is not None
        told = self._ask(lambda: self._record(work))
        if told or work.stopped_at is not None:  # a stopped pool waits for no storage: others see that it is gone
            del self._works[work.slot]
            self._deal_at = time.monotonic() + (LOOK if work.ending[0] == "owned" else 0.0)

    def _watch(self, work: Work) -> None:
        """Keep the claim of a living child alive, and end a child that is silent, or does not stop."""
        now, grace, patience = time.monotonic(), self.job.resources.grace, self.job.resources.patience
        if work.stopped_at is not None and now - work.stopped_at > patience:
            _kill(work, f"wrote no checkpoint within {patience:g} s of the stop signal")
        if self.trials is not None and now - work.watched_at > WATCH:
            with suppress(*OUTAGES, OSError):  # the next look shows what this one could not
                self.trials.watch(work.claim, work.folder, work.pid)
            work.watched_at = time.monotonic()
        if now - work.beat_at > grace / 4:
            work.beat_at = now
            with suppress(*OUTAGES):  # the run needs no database; the next beat may get through
                self.queue.beat(work.claim)
            newest = _heartbeat(work.folder)
            if newest != work.sign[0]:
                work.sign = (newest, now)
            elif now - work.sign[1] > grace:
                _kill(work, f"gave no sign of life for {grace:g} s")

    def _folder(self, training_hash: str) -> RunFolder:
        grace = self.job.resources.grace
        return RunFolder(self.job.root, training_hash, grace, grace / 12)

    def _evaluation(self, work: Work) -> str:
        return self.job.study.evaluation(work.claim.cell, self.job.root)

    def _read_record(self, work: Work) -> RunRecord | Missing:
        """What the run left, with the dev score of the study's evaluation if one was made later."""
        record = self.watch.runs[work.claim.cell.training_hash].record  # as the view shows it: read once for both
        later = read_later(work.folder.scores(self._evaluation(work)) / f"{self.job.study.base.data.dev}.json")
        return read_record(work.folder.result) if record is None else with_score(record, later)

    def _ending(self, status: int, work: Work) -> tuple[str, str]:
        """Outcome and reason of a child, from its exit code (negative: signal) and the record or outcome.json.

        Raises UserError where the record of a finished run cannot be read.
        """
        if status == 0:
            record = self._read_record(work)
            if isinstance(record, RunRecord):
                work.record = record
                return "finished", ""
            later = work.folder.scores(self._evaluation(work)) / f"{self.job.study.base.data.dev}.json"
            file = later if later.is_file() else work.folder.result
            raise UserError(f"{file}: {record.reason}; {REMEDY}")
        run = RunState.of(work.folder.path)
        where = "" if run.step is None else f" at step {run.step}"
        if status < 0:
            why = work.killed_for
            if work.stopped_at is not None:
                return "interrupted", why or "stopped"
            hint = " (out of memory?)" if status == -signal.SIGKILL and not why else ""
            return "killed", f"killed by {signal.Signals(-status).name}{where}{hint}{why and ': '}{why}"
        unknown = f"exit code {status}{where}, see the log"
        unknown = f"{work.folder.path}/{run.words}; {REMEDY}" if run.state == "damaged" else unknown
        return outcome_of(status), run.outcome.reason if run.outcome else unknown

    def _record(self, work: Work) -> bool:
        """Tell the queue how a claim ended; True once it has it."""
        assert work.ending is not None
        (outcome, reason), claim, folder = work.ending, work.claim, work.folder
        name = f"{claim.cell.row} seed {claim.cell.seed}"
        if outcome == "finished":
            record = work.record
            assert record is not None, "it was read when the run ended"
            if not self.job.resources.share_files:
                self.queue.mark(claim, "record", read_json(folder.result))
            if self.trials is not None:
                self.trials.finish(claim, folder, record)
            if not self.queue.finish(claim, *values_of(self.job.study, record)):
                self.view.say(f"{name}: finished, but the claim had passed to another machine, which will record it")
        elif outcome == "pruned" and self.trials is not None:
            self.queue.prune(claim, self.trials.pruned_reason(claim, RunState.of(folder.path).outcome))
        else:
            again = self.queue.fail(claim, outcome, reason)
            if outcome not in ("owned", "interrupted"):
                then = "queued again" if again else "given up"
                self.view.say(f"{name}: {outcome}: {reason}; {then} (log: {folder.log})")
        return True


def _kill(work: Work, why: str) -> None:
    if not work.killed_for:
        work.killed_for = why
        os.kill(work.pid, signal.SIGKILL)


def _heartbeat(folder: RunFolder) -> float:
    """Time of the newest heartbeat of the run, 0 without one."""
    try:
        return max((beat.stat().st_mtime for beat in folder.attempts.glob("*.beat")), default=0.0)
    except OSError:  # released at this moment, or a file server that does not answer
        return 0.0
