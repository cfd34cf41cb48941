"""The LightningModule: loss, optimiser, metrics. One batch is one optimizer step (`data.batch.Step`).

The loss of a step is its sum over target tokens divided by their number over all ranks and micro-batches, which the
plan knows beforehand. Nothing here depends on how the step was cut.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from lightning_tfm.config import Experiment, from_record, to_dict
from lightning_tfm.data.batch import Batch, Step
from lightning_tfm.model.dropout import masks_set
from lightning_tfm.model.one_stack import make_model
from lightning_tfm.model.transformer import SequenceModel
from lightning_tfm.model.user_init import begin
from lightning_tfm.registry import own_parts
from lightning_tfm.training.backend import Backend, Draw
from lightning_tfm.training.evaluate import Line, NotFinite, all_lines, perplexity, score_batch, with_translations
from lightning_tfm.training.loss import token_nll
from lightning_tfm.training.masks import SentenceMasks
from lightning_tfm.training.optimizers import limited_norm, make_optimizer
from lightning_tfm.training.schedule import learning_rate

READ_EVERY = 10
"""steps after which losses on a GPU are read at the latest"""


class PendingLosses:
    """Losses of micro-batches that are still on the device: reading one from a GPU means waiting until it has finished
    all its work, so they are read together.

    `every`: steps between two readings; with 1 each micro-batch is read before the next one.
    """

    def __init__(self) -> None:
        self.every = 1
        self._pending: list[tuple[int, int, Batch, Tensor]] = []

    def add(self, step: int, number: int, batch: Batch, sums: Tensor) -> None:
        """Loss and nll of micro-batch `number` of a step: float64 [2], in nats."""
        self._pending.append((step, number, batch, sums))

    def add_to(self, total: np.ndarray) -> None:
        """In the order in which they came. Raises NotFinite, which names the first step that is not, counted from 1."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        losses = torch.stack([sums for *_, sums in pending]).cpu().numpy()
        for (step, number, batch, _), sums in zip(pending, losses, strict=True):
            if not np.isfinite(sums).all():
                shape = f"{tuple(batch.source_BS.shape)} -> {tuple(batch.target_in_BT.shape)}"
                raise NotFinite(f"the loss is {sums[0]} at step {step + 1}, micro-batch {number} of shape {shape}")
            total += sums


class TransformerModule(pl.LightningModule):
    """Trains `Transformer(experiment.model, V)`. `experiment` is at its true sizes, as a dataclass or its plain dict.

    `backend` computes the steps: without one the formulas do, on any device (accel/select.py knows faster ones).
    Optimisation is manual: Lightning's accumulation divides a short last window wrongly and knows no token counts.
    """

    def __init__(self, experiment: Experiment | dict[str, Any], V: int, backend: Backend | None = None):
        super().__init__()
        plain = to_dict(experiment) if isinstance(experiment, Experiment) else experiment
        self.experiment = from_record(plain)
        self.save_hyperparameters({"experiment": plain, "V": V})
        self.automatic_optimization = False
        t = self.experiment.training
        self.transformer: SequenceModel = make_model(self.experiment.model, V, t.seed)
        if t.precision == "float64":
            self.double()
        self.backend = backend or Backend()
        self.masks = SentenceMasks(self.experiment.model, t.seed)
        self._draws: dict[torch.device, Draw] = {}
        self.sums = np.zeros(2)
        """loss and nll of this rank since the last `take_sums`, as far as they have been read"""
        self.pending = PendingLosses()
        self.norm_wanted = False
        """whether to measure the next step: `grad_norm`, before clipping; clipped ones always are"""
        self.lines: dict[int, Line] = {}
        """lines that this rank scored in the running validation or test"""
        self.tested_lines: list[Line] = []
        """all lines of the last test, with their translations"""

    # --- optimisation ---

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return make_optimizer(self.transformer, self.experiment.training)

    def on_train_start(self) -> None:
        self.pending.every = 1 if self.device.type == "cpu" else READ_EVERY

    def training_step(self, step: Step, batch_idx: int) -> None:
        t, optimizer = self.experiment.training, self.optimizers()
        assert not isinstance(optimizer, list)
        logged = self._is_logged(step)
        if logged:
            self.flush_losses()
        before = self.sums.copy()
        scale = self.trainer.world_size / step.target_tokens  # DDP divides the sum of gradients by world_size
        for number, batch in enumerate(step.micro, 1):
            with self._without_sync() if number < len(step.micro) else nullcontext():
                loss, nll = self.batch_loss(step.step, batch)
                self.manual_backward(loss * scale)
            self.pending.add(step.step, number, batch, torch.stack((loss.detach(), nll)).double())
            if logged or self.pending.every == 1:
                self.flush_losses()
        self.grad_norm = limited_norm(self.parameters(), t.clip_norm, self.norm_wanted or logged)
        if logged:
            self._log_step(step, self.sums - before)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step.step, self.experiment.model.d_model, t)
        optimizer.step()
        optimizer.zero_grad()
        if (step.step + 1) % self.pending.every == 0:
            self.flush_losses()

    def _is_logged(self, step: Step) -> bool:
        """Whether a logger of the user's Trainer takes this step; our own runs have none."""
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]  # Lightning's connector sets it
        return bool(self.trainer.loggers and every) and (step.step + 1) % every == 0

    def _log_step(self, step: Step, sums: np.ndarray) -> None:
        """`sums`: this rank's loss and nll of the step, in nats. grad_norm is that before clipping. A collective."""
        loss, nll = self.reduce(sums) / step.target_tokens
        rate = learning_rate(step.step, self.experiment.model.d_model, self.experiment.training)
        self.log("train_loss", float(loss), prog_bar=True)
        self.log_dict({"train_nll": float(nll), "lr": rate, "grad_norm": float(self.grad_norm)})

    def batch_loss(self, step: int, batch: Batch) -> tuple[Tensor, Tensor]:
        """(smoothed loss, unsmoothed nll) of a micro-batch of optimizer step `step`, with its dropout, summed over its
        target tokens, in nats."""
        t, model, m = self.experiment.training, self.transformer, self.experiment.model
        if len(batch.index_B) == 0:  # more ranks than sentences: exact zeros for every parameter
            zero = sum((p.sum() * 0.0 for p in model.parameters()), torch.zeros((), device=self.device))
            return zero, zero.detach()
        keyed = t.masks == "sentence"
        if own_parts(m) or (not keyed and (m.P_drop or m.drops_inside)):  # what draws by itself begins anew
            begin("device masks", t.seed, step, int(batch.index_B[0]))
        masks = self.masks.of_micro_batch(step, batch, model, self._draw()) if keyed else []
        with masks_set(masks), self.backend.around():
            x_ND, y_N = self._target_rows(batch)
        return self.backend.loss(x_ND, model.generator_WD, y_N, t.eps_ls, t.smoothing)

    def _draw(self) -> Draw:
        device = self.transformer.embedding_WD.device
        if device not in self._draws:
            self._draws[device] = self.backend.masks(self.masks, device)
        return self._draws[device]

    def _target_rows(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The decoder's output [N, D] and the wanted piece of every true target position."""
        hidden_BTD = self.transformer.hidden(batch.source_BS, batch.target_in_BT, batch.allowed)
        x_ND, y_N = hidden_BTD.flatten(0, 1), batch.target_out_BT.flatten()
        if batch.rows_N is not None:
            x_ND, y_N = x_ND.index_select(0, batch.rows_N), y_N.index_select(0, batch.rows_N)
        return x_ND, y_N

    def flush_losses(self) -> None:
        """Add what the device has computed to `sums`. Raises NotFinite, which names the step."""
        self.pending.add_to(self.sums)

    def take_sums(self) -> np.ndarray:
        """(loss, nll) summed over all ranks since the last call, in nats. A collective: every rank must call it."""
        self.flush_losses()
        total = self.reduce(self.sums)
        self.sums = np.zeros(2)
        return total

    def _without_sync(self) -> AbstractContextManager[None]:
        strategy = self.trainer.strategy
        return strategy.block_backward_sync() if hasattr(strategy, "block_backward_sync") else nullcontext()

    def reduce(self, values: np.ndarray) -> np.ndarray:
        """`values` summed over all ranks. A collective."""
        if not (dist.is_available() and dist.is_initialized()):
            return values
        tensor = torch.from_numpy(values.copy()).to(self.device)
        dist.all_reduce(tensor)
        return tensor.cpu().numpy()

    # --- scoring a text, in a Trainer's own validation and test loops or in ours ---

    @torch.no_grad()
    def sentence_nll(self, batch: Batch) -> np.ndarray:
        """Unsmoothed nll [B] of each sentence, end token included, in nats: float64 sums in the order of positions."""
        x_ND, y_N = self._target_rows(batch)
        nll_N = token_nll(x_ND, self.transformer.generator_WD, y_N).double().cpu().numpy()
        starts = np.concatenate(([0], np.cumsum(batch.target_lengths_B)[:-1]))
        return np.add.reduceat(nll_N, starts)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.lines |= score_batch(self, batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self.lines |= with_translations(self, score_batch(self, batch), [batch], self.experiment.evaluation)

    def on_validation_epoch_end(self) -> None:
        self.log("val_ppl", perplexity(self.gather_lines()).ppl, prog_bar=True)

    def on_test_epoch_end(self) -> None:
        self.tested_lines = self.gather_lines()
        self.log("test_ppl", perplexity(self.tested_lines).ppl)

    def gather_lines(self) -> list[Line]:
        """All ranks' lines since the last call, in order. A collective."""
        local, self.lines = self.lines, {}
        return all_lines(local)
