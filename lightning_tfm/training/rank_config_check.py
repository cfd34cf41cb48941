"""Ranks of one run train the same thing: they compare their configurations before the first step."""

import hashlib
import json
import os
from typing import Any

import lightning.pytorch as pl
import torch.distributed as dist

from lightning_tfm.config import Experiment, Hardware, to_dict
from lightning_tfm.errors import UserError


def digest(experiment: Experiment, hardware: Hardware, training_hash: str) -> str:
    """sha256 of all that has to be equal on every rank; CPU threads may differ."""
    plain = {"experiment": to_dict(experiment), "run": training_hash}
    plain["hardware"] = {key: value for key, value in to_dict(hardware).items() if key != "threads"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


class Agreement(pl.Callback):
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
