"""The Trainer of a run, and what its process does before anything is computed."""

import logging
import warnings

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy

from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.runs.process.threads import keep_freed_memory
from lightning_tfm.training.checkpoints import Checkpoints
from lightning_tfm.training.precision import LIGHTNING, set_flags, uses_gpu


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
