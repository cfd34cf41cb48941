"""The Trainer of a run, and what its process does before anything is computed."""

import hashlib
import json
import logging
import os
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from lightning.pytorch.plugins.io import CheckpointIO
from lightning.pytorch.strategies import DDPStrategy

from lightning_tfm.config import Experiment, Hardware, to_dict
from lightning_tfm.errors import UserError
from lightning_tfm.runs.process.threads import keep_freed_memory
from lightning_tfm.training.precision import LIGHTNING, set_flags, uses_gpu
from lightning_tfm.training.weight_files import write


def prepare_process(hardware: Hardware) -> None:
    """What a process that trains does once, before anything is computed."""
    if hardware.threads:
        torch.set_num_threads(hardware.threads)
    if hardware.keep_memory:
        keep_freed_memory()
    hints = "does not have many workers|`Trainer.fit.*val_dataloader|isinstance.treespec, LeafSpec|The `srun` command"
    warnings.filterwarnings("ignore", f".*({hints})")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)


def make_trainer(experiment: Experiment, hardware: Hardware, callbacks: list[pl.Callback]) -> pl.Trainer:
    """A Trainer that leaves order, logging, validation and checkpoints to us."""
    gpu = uses_gpu(hardware)
    several = hardware.devices * hardware.num_nodes > 1
    ddp = DDPStrategy(
        process_group_backend="nccl" if gpu else "gloo",
        gradient_as_bucket_view=True,
        forward_sync_buffers=False,  # tables of positions, which grow on each rank as its sentences need
    )
    # explicit, because Lightning would mistake a SLURM job for one whose tasks are the ranks
    environment = TorchElasticEnvironment() if TorchElasticEnvironment.detect() else LightningEnvironment()
    return pl.Trainer(
        accelerator="gpu" if gpu else "cpu",
        devices=hardware.devices,
        num_nodes=hardware.num_nodes,
        strategy=ddp if several else "auto",
        precision=LIGHTNING[experiment.training.precision],
        max_steps=experiment.training.steps,
        deterministic=set_flags(experiment.training.precision, gpu),
        callbacks=callbacks,
        plugins=[Checkpoints(), environment],
        logger=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


class Checkpoints(CheckpointIO):
    """How a Trainer writes and reads checkpoints: only plain types, so that `weights_only=True` reads them back, and a
    full disk is an OSError. Lightning's own way goes through a second copy in the folder for temporary files, which a
    kill leaves there, and torch hides a full disk behind a RuntimeError."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        (storage_options or write)(checkpoint, Path(path))  # a run hands over how: its CheckpointWriter's

    def load_checkpoint(
        self, path: Any, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return torch.load(path, map_location=map_location or "cpu", weights_only=True)  # ranks do not share a first GPU

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink()


# --- ranks of one run train the same thing: they compare their configurations before the first step ---


def digest(experiment: Experiment, hardware: Hardware, training_hash: str) -> str:
    """sha256 of all that has to be equal on every rank; CPU threads may differ."""
    plain = {"experiment": to_dict(experiment), "run": training_hash}
    plain["hardware"] = {key: value for key, value in to_dict(hardware).items() if key != "threads"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


class RankConfigCheck(pl.Callback):
    """Refuses to start (UserError, on every rank) where the ranks' digests differ."""

    def __init__(self, ours: str):
        self.ours = ours

    def setup(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            return
        digests: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(digests, self.ours)
        others = [rank for rank, value in enumerate(digests) if value != digests[0]]
        if others:
            named = ", ".join(map(str, others))
            raise UserError(
                f"rank {os.environ['RANK']}: ranks {named} were given a configuration that differs from rank 0's; "
                "start all with the same files and options, on the same version"
            )
