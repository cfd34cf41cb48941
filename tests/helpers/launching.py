"""A study whose runs are made by a function of the test's own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from lightning_tfm.config import Experiment
from lightning_tfm.queue.launch import run_study
from lightning_tfm.queue.pool import Job
from lightning_tfm.queue.resources import Resources
from lightning_tfm.runs.process.attempt import Task
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import Fingerprints, Paper, Row
from lightning_tfm.study.study import Ablation, Study
from lightning_tfm.watch.study_state import CellState
from tests.helpers.studies import DEV

Train = Callable[[Task], None]


@dataclass(frozen=True)
class Training:
    """In place of runs/train.py's."""

    train: Train

    def score(self, task: Task) -> None:
        raise AssertionError(f"{task.cell.row}: no test of these scores anew")


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
    return run_study(Job(study, root, Training(train), Resources(**resources), first_validation, again), cells, stream)
