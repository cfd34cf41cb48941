"""What a run does with a cell: check that the text is the study's, take its devices, train or score."""

from dataclasses import dataclass, replace
from pathlib import Path

from lightning_tfm.config import Hardware
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.fingerprint_check import prepare_same
from lightning_tfm.queue.resources import Devices
from lightning_tfm.runs.evaluation import score_anew
from lightning_tfm.runs.process.attempt import Task
from lightning_tfm.runs.train import train_cell
from lightning_tfm.runs.trainer import prepare_process
from lightning_tfm.study.cell import Plan
from lightning_tfm.study.study import Study


@dataclass(frozen=True)
class Training:
    """Trains the cells of a study on this machine, each in a process forked for it."""

    study: Study
    hardware: Hardware
    root: Path
    devices: Devices | None = None

    def train(self, task: Task) -> None:
        plan, prepared = self._plan_and_text(task)
        if self.devices is not None:
            self.devices.assign(task.slot)
        train_cell(plan, task.cell, self._hardware(task), task.attempt, prepared.folder)

    def score(self, task: Task) -> None:
        """Score a finished run by the study's evaluation. Raises UserError."""
        prepare_process(self._hardware(task))
        plan, prepared = self._plan_and_text(task)
        score_anew(task.attempt, plan[0], prepared)

    def _hardware(self, task: Task) -> Hardware:
        return replace(self.hardware, threads=task.threads or self.hardware.threads)

    def _plan_and_text(self, task: Task) -> tuple[Plan, Prepared]:
        """What to train, and its text once checked to be the study's. Raises UserError."""
        plan = self.study.plan(task.cell, self.root)
        return plan, prepare_same(plan[0].data, self.root, self.study.texts(task.cell, self.root).known())
