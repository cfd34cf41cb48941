"""What a logger of the user's own Trainer sees of training, through Lightning's logging; our own runs have none."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from lightning_tfm.data.batch import Step
from lightning_tfm.training.schedule import learning_rate

if TYPE_CHECKING:
    from lightning_tfm.training.module import TransformerModule


def log_step(module: "TransformerModule", step: Step, sums: np.ndarray) -> None:
    """Log train_loss and train_nll per target token, lr and grad_norm (before clipping), at the Trainer's interval.

    `sums` are this rank's loss and nll of the step, in nats. A collective where it logs; nothing without a logger.
    """
    trainer = module.trainer
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # a setter of Lightning's makes it
    if not trainer.loggers or (step.step + 1) % every:
        return
    loss, nll = module.reduce(sums) / step.target_tokens
    norm = torch.nn.utils.get_total_norm([p.grad for p in module.parameters() if p.grad is not None])
    rate = learning_rate(step.step, module.experiment.model.d_model, module.experiment.training)
    module.log("train_loss", float(loss), prog_bar=True)
    module.log_dict({"train_nll": float(nll), "lr": rate, "grad_norm": norm})
