"""What a worker is handed: the runs of a study as experiments, on the hardware at hand."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning_tfm.config import Experiment, Hardware, to_dict, training_hash
from lightning_tfm.errors import UserError
from lightning_tfm.study import definition, torchrun
from lightning_tfm.study.claim import Cell
from lightning_tfm.study.definition import Definition
from lightning_tfm.study.nodes import train_on_nodes
from lightning_tfm.study.places import Places
from lightning_tfm.study.ranks import fork_ranks
from lightning_tfm.study.rows import apply, run_identity
from lightning_tfm.study.run import Run
from lightning_tfm.study.tune import Search
from lightning_tfm.study.worker import Task, Train

Plan = tuple[Experiment, dict[str, Any]]
"""an experiment at its true sizes, and its training identity"""


def make_train(
    plans: Mapping[str, Plan] | Callable[[Cell], Plan], hardware: Hardware, root: Path, places: Places | None = None
) -> Train:
    """The `train(task)` of a launcher. `plans` gives the plan of a cell, or holds it by its training hash."""
    find = plans if callable(plans) else lambda cell: plans[cell.training_hash]

    def train(task: Task) -> None:
        experiment, identity = find(task.cell)
        threads = task.threads or hardware.threads
        if places is not None:
            places.settle(task.slot)
        task.attempt.write_json(task.folder.identity, identity)
        task.attempt.write_json(task.folder.experiment, to_dict(experiment))
        task.attempt.write_json(task.folder.cell, {"row": task.cell.row, "seed": task.cell.seed})
        run = Run(experiment, replace(hardware, threads=threads), task.attempt, root)
        spawn = hardware.accelerator == "gpu"
        if torchrun.started_us():
            run.train()
        elif hardware.num_nodes > 1:
            train_on_nodes(run, spawn)
        elif hardware.devices == 1:
            run.train()
        else:
            fork_ranks(run.train, hardware.devices, threads, spawn)

    return train


def plans_of(study: Definition | Search, root: Path) -> Callable[[Cell], Plan]:
    """Plans of a study's cells; study.json is read again for rows and seeds that were added meanwhile.

    Raises UserError where the same row means another run here than where the study was started.
    """
    known = study

    def find(cell: Cell) -> Plan:
        nonlocal known
        if isinstance(known, Search):
            experiment, identity = known.experiment(cell.change), known.identity(cell.change)
        else:
            if cell.row not in {row.name for row in known.rows}:
                known = definition.load(root, study.name)
            row = next(row for row in known.rows if row.name == cell.row)
            experiment = apply(known.base, row, cell.seed)
            identity = run_identity(known.base, row, cell.seed, known.prints.train)
        if training_hash(identity) != cell.training_hash:
            raise UserError(
                f"{cell.row}, seed {cell.seed}: here it is run {training_hash(identity)[:16]}, in the study "
                f"{cell.training_hash[:16]}: another version of lightning_tfm, or of a class of your own"
            )
        return experiment.scaled(), identity

    return find
