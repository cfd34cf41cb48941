"""What a logger of the user's Trainer sees of training, through Lightning's logging; our own runs have none."""

from typing import TYPE_CHECKING

import numpy as np

from lightning_tfm.data.batch import Step
from lightning_tfm.training.schedule import learning_rate

if TYPE_CHECKING:
    from lightning_tfm.training.module import TransformerModule


def is_observed(module: "TransformerModule", step: Step) -> bool:
    """Whether a logger takes this step, by the Trainer's log_every_n_steps."""
    every: int = module.trainer.log_every_n_steps  # type: ignore[attr-defined]  # Lightning's connector sets it
    return bool(module.trainer.loggers and every) and (step.step + 1) % every == 0


def log_step(module: "TransformerModule", step: Step, sums: np.ndarray) -> None:
    """Log train_loss and train_nll per target token, lr, and grad_norm (before clipping).

    `sums` are this rank's loss and nll of the step, in nats. A collective.
    """
    loss, nll = module.reduce(sums) / step.target_tokens
    rate = learning_rate(step.step, module.experiment.model.d_model, module.experiment.training)
    module.log("train_loss", float(loss), prog_bar=True)
    module.log_dict({"train_nll": float(nll), "lr": rate, "grad_norm": float(module.grad_norm)})
