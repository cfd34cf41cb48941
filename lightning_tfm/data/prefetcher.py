"""Optimizer steps made ahead of time, by a thread, so that a GPU never waits for text."""

from collections.abc import Iterator
from dataclasses import replace
from queue import Full, Queue
from threading import Event, Thread, main_thread
from typing import Protocol

from lightning_tfm.data.batch import Step
from lightning_tfm.data.batch_plan import Plan

STEPS = 3
"""made ahead at most"""
LOOK = 0.1
"""seconds after which a thread that waits looks whether it is still wanted"""


class Steps(Protocol):
    """A loader of endless steps (data/module.py:StepLoader)."""

    plan: Plan

    def __iter__(self) -> Iterator[Step]: ...


class Prefetcher:
    """The steps of `loader`, the same ones in the same order, each micro-batch in one buffer (`pinned`: one that a GPU
    fetches by itself). The order of the next epoch is drawn while this one runs. The interpreter waits for both threads
    as it ends: one that it overtakes within torch aborts the process."""

    def __init__(self, loader: Steps, pinned: bool):
        self.loader, self.pinned = loader, pinned

    def __iter__(self) -> Iterator[Step]:
        ready: Queue[Step | BaseException] = Queue(STEPS)
        unwanted = Event()
        Thread(target=self._make, args=(ready, unwanted), name="steps ahead").start()
        try:
            while True:
                step = ready.get()
                if isinstance(step, BaseException):
                    raise step
                yield step
        finally:
            unwanted.set()

    def _make(self, made: Queue[Step | BaseException], unwanted: Event) -> None:
        plan, epoch = self.loader.plan, -1
        try:
            for step in self.loader:
                if epoch != step.step // plan.steps_per_epoch:
                    epoch = step.step // plan.steps_per_epoch
                    next_one = (epoch + 1) * plan.steps_per_epoch
                    Thread(target=plan.global_batch, args=(next_one,), name="next epoch").start()
                if not _put(replace(step, micro=[b.with_buffer(self.pinned) for b in step.micro]), made, unwanted):
                    return
        except BaseException as error:  # whoever asks for the next step is to hear of it
            _put(error, made, unwanted)


def _put(item: Step | BaseException, made: Queue[Step | BaseException], unwanted: Event) -> bool:
    """False if nobody wants it any longer."""
    while main_thread().is_alive() and not unwanted.is_set():
        try:
            made.put(item, timeout=LOOK)
            return True
        except Full:
            continue
    return False
