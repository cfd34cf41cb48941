"""Run a study on this machine: fork workers, show their progress, replace the dead, stop in order.

The launcher has imported what the runs need and never computes: OpenMP and CUDA do not survive a fork, imports do.
It must not touch `torch.cuda` before the fork.
"""

import dataclasses
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TextIO

from lightning_tfm.errors import UserError
from lightning_tfm.queue.devices import how_shared
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.resources import Resources
from lightning_tfm.queue.searches.sampling import shown
from lightning_tfm.queue.slurm import Slurm, any_alive, submit
from lightning_tfm.queue.storages.backends import OUTAGES, remember, remembered
from lightning_tfm.queue.storages.open import open_queue
from lightning_tfm.queue.storages.sharing import fetch, publish
from lightning_tfm.queue.view import View, follow
from lightning_tfm.queue.wandb_mirror import mirrored
from lightning_tfm.queue.worker import Job, Worker
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.outcome import EXIT_CODES, MAY_BE_GONE, say
from lightning_tfm.runs.process.forking import (
    STOP_SIGNALS,
    StopSignals,
    adopt_orphans,
    children,
    describe,
    forked,
    held_back,
)
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.command import with_out
from lightning_tfm.study.search import Search
from lightning_tfm.study.study import Study
from lightning_tfm.study.study_file import folder_of, link
from lightning_tfm.training.schedule import EventSchedule
from lightning_tfm.watch.study_state import CellState, Watch

LOOP = 0.05
"""seconds between two checks of the workers"""
CRASHES = 10
"""workers that may end with their own error before the launcher gives up"""
JOBS_EVERY = 15.0
"""seconds between two checks of the jobs of a cluster"""


def work(
    study: Study, cells: Sequence[Cell], root: Path, resources: Resources, start: bool = False, again: bool = True
) -> list[CellState]:
    """Run what the study has left, here or as jobs of a cluster; `start` where this machine has just defined it.

    Then, unless `again` is False, what has failed for a cause that may be gone is tried once more.

    Raises UserError; SystemExit after a stop signal.
    """
    if isinstance(study, Search) and len(study.trial_seeds) > 1:
        raise UserError(f"study '{study.name}' has several seeds per trial: it can be read, and goes no further")
    from lightning_tfm.queue.training import Training  # with torch: once, before any worker is forked

    folder = folder_of(root, study.name)
    storage, hardware = remembered(resources.storage, folder), study.hardware_of(resources.hardware)
    resources = dataclasses.replace(resources, storage=storage, hardware=hardware)
    training = Training(study, resources.hardware, root, resources.devices)
    schedule = EventSchedule.of(resources.hardware, study.base.scaled().training)
    job = Job(study, root, training, resources, schedule.validate_every, start and again)
    remember(resources.storage, folder)
    if resources.slurm is not None:
        return _submit(job, cells, resources.slurm)

    @cache
    def queue() -> Queue:  # opened in the mirror's process, once
        return open_queue(root, study.name, resources.storage, lambda text: None)

    def known() -> list[Cell]:
        try:
            return [run for state in queue().states() for run in state.cell.runs]
        except UserError:  # the launcher has not made it yet
            return []

    if resources.devices is not None and resources.devices.gpu and resources.devices.runs > 1:
        say(how_shared())
    with mirrored(resources.wandb, root, study.name, folder, known, say):
        return run_study(job, cells, start=start)


def run_study(job: Job, cells: Sequence[Cell], stream: TextIO | None = None, start: bool = False) -> list[CellState]:
    """Run every cell that is not finished yet and return how each ended (state "done" or "failed").

    `job.training.train(task)` runs in a separate process for each cell. Studies with a sampler make their trials
    themselves. With `start` the study's definition is put into the storage for those who join.

    On SIGINT or SIGTERM the runs get `resources.patience` seconds to write a checkpoint, return to the queue, and
    SystemExit(130 or 143) is raised; a second signal kills them at once. Raises UserError before anything starts.
    """
    view = View(job.study.name, stream)
    try:
        queue = _fill(job, cells, start, view)
        _Launcher(job, queue, view).run()
        fetch(queue, job.root)
        view.show(Watch(job.root, job.resources.workers, job.study).look(queue.states()))
        for line in what_helps(job, queue):
            view.say(line)
        return queue.states()
    finally:
        view.close()


def _fill(job: Job, cells: Sequence[Cell], start: bool, view: View) -> Queue:
    """The queue of a study with its cells in it."""
    queue = job.open(view.say)
    if start:
        publish(queue, job.folder, job.study.to_plain())
    fetch(queue, job.root)
    if job.again and (found := queue.retry_once()):
        view.say(f"{job.study.name}: failed before, tried once more: {', '.join(found)}")
    shared = job.resources.share_files
    kept = (lambda name: RunFolder(job.root, name).finished()) if shared else (lambda name: True)
    queue.enqueue(cells, kept, shown(job.study))
    for run in (run for state in queue.states() for run in state.cell.runs):
        link(job.folder, run)
    return queue


def _submit(job: Job, cells: Sequence[Cell], slurm: Slurm) -> list[CellState]:
    """Queue the cells, submit the workers, and watch until nothing is left or no job is alive."""
    name, resources, view = job.study.name, job.resources, View(job.study.name)
    queue = _fill(job, cells, True, view)
    jobs = submit(slurm, name, job_arguments(job.root, resources), job.folder)
    ids = ", ".join(one.job_id for one in jobs)
    again = with_out(f"lightning-tfm status {name}", job.root)
    print(f"{name}: jobs {ids}; Ctrl-C ends this view, not the jobs: {again}", file=sys.stderr)
    asked = time.monotonic()

    def check() -> None:
        nonlocal asked
        if time.monotonic() - asked > JOBS_EVERY:
            asked = time.monotonic()
            if not any_alive(jobs) and not queue.done():
                raise UserError(f"study '{name}': all jobs ended before the study did, see {job.folder / 'slurm'}")

    follow(queue, Watch(job.root, resources.workers * slurm.jobs, job.study), view, 1.0, check)
    for line in what_helps(job, queue):
        view.say(line)
    return queue.states()


def what_helps(job: Job, queue: Queue) -> list[str]:
    """Lines that name the cells that failed, by what has to be done before they train again."""
    name = job.study.name
    again = "the same command" if job.again else with_out(f"lightning-tfm resume {shlex.quote(name)}", job.root)
    retry = with_out(f"lightning-tfm runs retry {shlex.quote(name)}", job.root)
    helps = dict.fromkeys(MAY_BE_GONE, f"when the cause is gone, {again} tries once more")
    helps |= {"failed": f"when the cause is mended: {retry}, then {again}"}
    helps |= {"nan_loss": "the same run gives the same again"}
    failed: dict[str, list[str]] = {}
    for outcome, cell in queue.failures():
        failed.setdefault(outcome, []).append(f"{cell.row}/{cell.seed}")
    return [f"{name}: {outcome}: {', '.join(cells)}; {helps[outcome]}" for outcome, cells in failed.items()]


def job_arguments(root: Path, resources: Resources) -> list[str]:
    """The arguments of a job's `lightning-tfm work STUDY`: all that the launcher was given."""
    arguments = ["--out", str(root.resolve()), "--workers", str(resources.workers), "--wandb", resources.wandb]
    arguments += ["--storage", resources.storage] if resources.storage else []
    arguments += ["--runs-per-device", str(resources.runs_per_device)] if resources.runs_per_device else []
    return arguments + [f"--trainer.{key}={value}" for key, value in dataclasses.asdict(resources.hardware).items()]


@dataclass
class _Launcher:
    job: Job
    queue: Queue
    view: View
    _slots: dict[int, int] = field(default_factory=dict)
    """pid of each living worker -> its slot"""
    _crashes: int = 0
    _stop: StopSignals = field(default_factory=StopSignals)

    @property
    def _signals(self) -> list[int]:
        return self._stop.numbers

    def run(self) -> None:
        before = children()
        self._inbox, self._outbox = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(self._outbox, True)
        handlers = {number: signal.signal(number, self._stop) for number in STOP_SIGNALS}
        adopt_orphans(True)
        try:
            self._run(before)
        finally:
            for pid in self._slots:
                os.kill(pid, signal.SIGKILL)
            while self._slots:
                self._reap_workers(before)
                time.sleep(LOOP)
            self._reap_workers(before)
            adopt_orphans(False)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self.view.relay(self._inbox)
            os.close(self._inbox)
            os.close(self._outbox)
        if self._signals:
            raise SystemExit(128 + self._signals[0])

    def _run(self, before: set[int]) -> None:
        watch = Watch(self.job.root, self.job.resources.workers, self.job.study)
        wanted = set(range(self.job.resources.workers))
        forwarded = 0
        while True:
            self.view.relay(self._inbox)
            wanted |= self._reap_workers(before)
            while len(self._signals) > forwarded:
                forwarded += 1
                self._pass_on(forwarded)
            try:
                if not self._signals and wanted and not self.queue.done():
                    for slot in sorted(wanted):
                        self._fork(slot)
                    wanted = set()
                elif not self._slots:
                    return
                if self.view.due():
                    self.view.show(watch.look(self.queue.states()))
            except OUTAGES:  # the workers report it
                pass
            time.sleep(LOOP)

    def _pass_on(self, times: int) -> None:
        number = self._signals[0] if times == 1 else signal.SIGKILL
        if times == 1:
            self.view.say(
                "stopping: the runs write a checkpoint and return to the queue (interrupt again to kill them at once)"
            )
        for pid in self._slots:
            os.kill(pid, number)

    def _reap_workers(self, before: set[int]) -> set[int]:
        """Collect dead workers, and the orphans that they left; returns the slots that died early."""
        lost = set()
        for pid in children() - before:
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done or pid not in self._slots:
                continue
            slot = self._slots.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            if code == 0 or self._signals:
                continue
            if code == EXIT_CODES["refused"]:
                self.view.relay(self._inbox)
                raise UserError(f"study '{self.queue.name}' cannot continue, see above")
            lost.add(slot)
            self.view.say(f"worker {slot} (process {pid}): {describe(code)}; a new one takes its place")
            self._crashes += code > 0
            if self._crashes > CRASHES:
                raise UserError(f"study '{self.queue.name}': {self._crashes} workers ended with an error, see above")
        return lost

    def _fork(self, slot: int) -> None:
        with held_back():  # until it is among those that a signal is passed on to
            self._slots[forked(lambda: self._be_worker(slot))] = slot

    def _be_worker(self, slot: int) -> int:
        def say(text: str) -> None:
            os.write(self._outbox, f"{text[:2000]}\n".encode())

        os.setpgid(0, 0)  # Ctrl-C on the terminal reaches only the launcher, which passes it on in order
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # the launcher's object draws on a terminal
        try:
            return Worker(self.job, slot, say).work()
        except UserError as error:
            say(f"worker {slot}: {error}")
            return EXIT_CODES["refused"]
