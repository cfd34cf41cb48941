"""Who starts the processes of a run: nobody (one process), this machine, or torchrun."""

from pathlib import Path

import lightning.pytorch as pl

from lightning_tfm.config import Hardware, to_dict
from lightning_tfm.registry import SCHEDULES
from lightning_tfm.runs.folder import Attempt
from lightning_tfm.runs.process.forking import by_torchrun
from lightning_tfm.runs.train import Run
from lightning_tfm.study.cell import Cell, Plan
from lightning_tfm.training.precision import uses_gpu
from lightning_tfm.training.schedule import check_schedule


def write_plan(plan: Plan, cell: Cell, attempt: Attempt) -> None:
    """What names the run and what it trains, into its folder: by one process, before others take part, since the first
    rank sweeps away what is half written."""
    experiment, identity = plan
    attempt.write_json(attempt.folder.identity, identity)
    attempt.write_json(attempt.folder.experiment, to_dict(experiment))
    attempt.write_json(attempt.folder.cell, {"row": cell.row, "seed": cell.seed})


def train_cell(plan: Plan, cell: Cell, hardware: Hardware, attempt: Attempt, store: Path) -> None:
    """Train and score a cell with all processes that `hardware` requests; result.json has the outcome.

    `store`: the token store of its text (data/prepare.py).

    Raises what `Run.train` and `fork_ranks` raise.
    """
    experiment, identity = plan
    if not by_torchrun():  # whose first rank has written it
        write_plan(plan, cell, attempt)
    beside: list[pl.Callback] = []
    if hardware.profile:
        from lightning_tfm.training.profile import Profile  # what a run does not need is not loaded

        beside.append(Profile(attempt.folder.path / "profile"))
    if experiment.training.schedule not in SCHEDULES:
        check_schedule(experiment.training, experiment.model.d_model)
    run = Run(experiment, identity, hardware, attempt, store, beside)
    spawn = uses_gpu(hardware)  # asking for the GPUs may touch CUDA, which survives no fork
    if by_torchrun():
        run.train()
    elif hardware.devices == 1:
        run.train()
    else:
        from lightning_tfm.runs.process.ranks import fork_ranks

        fork_ranks(run.train, hardware.devices, hardware.threads, spawn)
