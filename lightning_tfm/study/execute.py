"""What a worker is handed: the runs of a study as experiments, on the hardware at hand."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning_tfm.config import Experiment, Hardware, to_dict
from lightning_tfm.study.ranks import fork_ranks
from lightning_tfm.study.run import Run
from lightning_tfm.study.worker import Task, Train


def make_train(plans: Mapping[str, tuple[Experiment, dict[str, Any]]], hardware: Hardware, root: Path) -> Train:
    """The `train(task)` of a launcher. `plans`: training hash -> experiment at its true sizes, and its identity."""

    def train(task: Task) -> None:
        experiment, identity = plans[task.cell.training_hash]
        threads = task.threads or hardware.threads
        task.attempt.write_json(task.folder.identity, identity)
        task.attempt.write_json(task.folder.experiment, to_dict(experiment))
        run = Run(experiment, replace(hardware, threads=threads), task.attempt, root)
        if hardware.devices == 1:
            run.train()
        else:
            fork_ranks(run.train, hardware.devices, threads, spawn=hardware.accelerator == "gpu")

    return train
