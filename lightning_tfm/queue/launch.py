"""Run a study on this machine: fork workers, show how far they are, replace the dead, stop in order.

The launcher has imported what the runs need and never computes: OpenMP and CUDA do not survive a fork, imports do.
It must not touch `torch.cuda` before the fork.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from lightning_tfm.errors import UserError
from lightning_tfm.queue.progress import View, Watch
from lightning_tfm.queue.queue import CellState, Queue, link
from lightning_tfm.queue.sampling import Searcher, grid_distributions
from lightning_tfm.queue.sharing import fetch, publish
from lightning_tfm.queue.storage import OUTAGES, Storage, find_storage
from lightning_tfm.queue.worker import Worker
from lightning_tfm.runs.attempt import Train
from lightning_tfm.runs.directory import GRACE, RunFolder
from lightning_tfm.runs.outcome import EXIT_CODES
from lightning_tfm.runs.processes import STOP_SIGNALS, StopSignals, adopt_orphans, children, describe, forked, held_back
from lightning_tfm.runs.record import RunRecord
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.tune import Search

LOOP = 0.05
"""seconds between two looks at the workers"""
CRASHES = 10
"""workers that may end with an error of their own before the launcher gives up"""


def dev_ppl(record: RunRecord) -> float:
    """What Optuna is told of a finished run."""
    return float(record.scores["dev"].ppl)


@dataclass(frozen=True)
class Study:
    """What the workers of a study share."""

    name: str
    root: Path
    storage: Storage
    train: Train
    value: Callable[[RunRecord], float]
    threads: int
    grace: float
    patience: float
    search: Search | None = None
    first_validation: int = 1
    carry: bool = False

    @property
    def folder(self) -> Path:
        return self.root / "studies" / self.name

    def open(self, say: Callable[[str], None]) -> Queue:
        """The queue, for the calling process."""
        directions = self.search.directions if self.search else ("minimize",)
        return Queue(self.name, self.storage, say, self.grace, directions, self.search.budget if self.search else 0)


def run_study(
    name: str,
    cells: list[Cell],
    root: Path,
    train: Train,
    workers: int = 1,
    threads: int = 1,
    storage: str = "",
    value: Callable[[RunRecord], float] = dev_ppl,
    grace: float = GRACE,
    patience: float = 60.0,
    stream: TextIO | None = None,
    search: Search | None = None,
    first_validation: int = 1,
    carry: bool = False,
    definition: dict[str, Any] | None = None,
) -> list[CellState]:
    """Run every cell that is not finished yet and return how each ended (state "done" or "failed").

    `train(task)` runs in a process of its own for each cell. `storage` is empty for the study's journal file, or what
    `find_storage` takes. A `search` makes its trials itself; its runs validate first at step `first_validation`. With
    `carry` the records of finished runs travel through the storage, to machines that do not share `root`. `definition`
    is left in the storage for those who join.

    On SIGINT or SIGTERM the runs get `patience` seconds to write a checkpoint, are handed back, and SystemExit(130 or
    143) is raised; a second signal kills them at once. Raises UserError before anything starts.
    """
    store = find_storage(storage, root / "studies" / name)
    study = Study(name, root, store, train, value, threads, grace, patience, search, first_validation, carry)
    view = View(name, stream)
    try:
        queue = _fill(study, cells, definition, view.say)
        _Launcher(study, queue, view, workers).run()
        fetch(queue, root)
        view.show(Watch(root, workers).look(queue.states()))
        return queue.states()
    finally:
        view.close()


def prepare_queue(
    name: str, cells: Sequence[Cell], root: Path, storage: str, definition: dict[str, Any], search: Search | None
) -> Queue:
    """The queue of a study with its cells in it, for workers that others start."""
    store = find_storage(storage, root / "studies" / name)
    study = Study(name, root, store, lambda task: None, dev_ppl, 0, GRACE, 0.0, search)
    return _fill(study, list(cells), definition, print)


def _fill(study: Study, cells: list[Cell], definition: dict[str, Any] | None, say: Callable[[str], None]) -> Queue:
    queue, root, search = study.open(say), study.root, study.search
    if definition is not None:
        publish(queue, study.folder, definition)
    fetch(queue, root)
    kept = (lambda name: True) if study.carry else lambda name: RunFolder(root, name).finished()
    queue.enqueue(cells, kept, grid_distributions(search) if search and not search.budget else None)
    for state in queue.states():
        link(study.folder, state.cell)
    return queue


@dataclass
class _Launcher:
    study: Study
    queue: Queue
    view: View
    workers: int
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
            self._relay()
            os.close(self._inbox)
            os.close(self._outbox)
        if self._signals:
            raise SystemExit(128 + self._signals[0])

    def _run(self, before: set[int]) -> None:
        watch = Watch(self.study.root, self.workers)
        wanted = set(range(self.workers))
        forwarded = 0
        while True:
            self._relay()
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
            except OUTAGES:  # the workers say it
                pass
            time.sleep(LOOP)

    def _pass_on(self, times: int) -> None:
        number = self._signals[0] if times == 1 else signal.SIGKILL
        if times == 1:
            self.view.say("stopping: the runs write a checkpoint and are handed back (once more to kill them at once)")
        for pid in self._slots:
            os.kill(pid, number)

    def _reap_workers(self, before: set[int]) -> set[int]:
        """Collect dead workers, and the orphans that they left; returns the slots that died before their time."""
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
                self._relay()
                raise UserError(f"study '{self.study.name}' cannot go on, see above")
            lost.add(slot)
            self.view.say(f"worker {slot} (process {pid}): {describe(code)}; another one takes its place")
            self._crashes += code > 0
            if self._crashes > CRASHES:
                raise UserError(f"study '{self.study.name}': {self._crashes} workers ended with an error, see above")
        return lost

    def _relay(self) -> None:
        """Show what the workers had to say."""
        try:
            for text in os.read(self._inbox, 1 << 16).decode(errors="replace").splitlines():
                self.view.say(text)
        except BlockingIOError:
            pass

    def _fork(self, slot: int) -> None:
        with held_back():  # until it is among those that a signal is passed on to
            self._slots[forked(lambda: self._be_worker(slot))] = slot

    def _be_worker(self, slot: int) -> int:
        def say(text: str) -> None:
            os.write(self._outbox, f"{text[:2000]}\n".encode())

        os.setpgid(0, 0)  # Ctrl-C on the terminal reaches the launcher alone, which passes it on in order
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # the launcher's object draws on a terminal
        study = self.study
        try:
            queue = study.open(say)
            searcher = Searcher(study.search, queue, study.first_validation) if study.search else None
            return Worker(
                queue,
                study.root,
                study.train,
                study.value,
                study.threads,
                slot,
                study.grace,
                study.patience,
                say,
                searcher,
                study.carry,
            ).work()
        except UserError as error:
            say(f"worker {slot}: {error}")
            return EXIT_CODES["refused"]
