"""A study whose runs are made by a function of the test's own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from lightning_tfm.config import Experiment
from lightning_tfm.queue.launch import run_study
from lightning_tfm.queue.pool import Job
from lightning_tfm.queue.resources import Resources
from lightning_tfm.runs.folder import Attempt, RunFolder
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import Fingerprints, Paper, Row
from lightning_tfm.study.study import Ablation, Study
from lightning_tfm.watch.study_state import CellState
from tests.helpers.studies import DEV


class Task(NamedTuple):
    """What a test's function gets to make of a run."""

    cell: Cell
    attempt: Attempt
    threads: int
    slot: int

    @property
    def folder(self) -> RunFolder:
        return self.attempt.folder


Train = Callable[[Task], None]


@dataclass(frozen=True)
class ByHand(Job):
    """Whose runs are made by a function of the test's."""

    make: Train = print

    def train(self, cell: Cell, attempt: Attempt, slot: int) -> None:
        self.make(Task(cell, attempt, self.resources.threads, slot))

    def score(self, cell: Cell, attempt: Attempt) -> None:
        raise AssertionError(f"{cell.row}: no test of these scores anew")


class Listed(Ablation):
    """Without rows: its cells are what the test says, scored as tests.helpers.studies says."""

    def evaluation(self, cell: Cell, root: Path) -> str:
        return DEV.evaluation_hash


def ablation(name: str) -> Ablation:
    """One whose cells are what the test says."""
    prints = Fingerprints("", "")
    return Listed(
        name=name,
        base=Experiment(),
        rows=[Row("base", "", {}, Paper(None, None, None), "here")],
        seeds=[],
        prints=prints,
        V=1,
        store="",
    )


def launch(
    study: Study | str,
    cells: Sequence[Cell],
    root: Path,
    train: Train,
    stream: TextIO | None = None,
    first_validation: int = 1,
    again: bool = False,
    **resources: Any,
) -> list[CellState]:
    """Run the cells by `train(task)`; `resources` are those of Resources."""
    study = ablation(study) if isinstance(study, str) else study
    job = ByHand(study, root, Resources(**resources), first_validation, again, train)
    return run_study(job, cells, stream)
