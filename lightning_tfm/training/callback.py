"""The one callback that decides when a run logs, validates, writes a checkpoint, and stops. Steps count from 1 here.

Validation runs in a loop of our own: Lightning counts the batches of the current process, so that a resumed run would
validate at other steps.
"""

import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import lightning.pytorch as pl
import numpy as np
import torch
import torch.distributed as dist

from lightning_tfm.data.batch import Batch, Step
from lightning_tfm.training.checkpoints import write
from lightning_tfm.training.evaluate import evaluate_lines, perplexity
from lightning_tfm.training.module import TransformerModule
from lightning_tfm.training.schedule import EventSchedule, learning_rate
from lightning_tfm.training.stopwatch import PARTS

KEPT_CHECKPOINTS = 2
ASKED = 1
"""what ranks agree on when the run was asked to stop; below every signal, which would leave a checkpoint"""
PROGRESS_SECONDS = 1.0
REQUEST_SECONDS = 0.2


class Interrupted(Exception):
    """SIGTERM or SIGINT arrived; a checkpoint of the last whole step was written."""

    def __init__(self, signum: int):
        super().__init__(f"stopped by {signal.Signals(signum).name} after a checkpoint")
        self.signum = signum
        self.exit_code = 128 + signum


class Pruned(Exception):
    """The run was asked to stop as unpromising (`Record.stop_asked`), after the last whole step."""

    outcome = "pruned"

    def __init__(self, step: int):
        super().__init__(f"stopped after step {step} as unpromising")
        self.step = step


class Record(Protocol):
    """Where a run writes; every method may refuse with an exception. Only rank 0 writes."""

    def append_metrics(self, record: dict[str, Any]) -> None: ...
    def write_progress(self, step: int, steps: int, tokens_per_second: float, phase: str) -> None: ...
    def commit(self, half: Path, path: Path) -> None: ...
    def stop_asked(self) -> bool: ...


class RunCallback(pl.Callback):
    """Drives one run. `record` is None on every rank but 0; `batches` is this rank's share of the dev text."""

    def __init__(
        self,
        events: EventSchedule,
        checkpoints: Path,
        snapshots: Path,
        record: Record | None,
        batches: list[Batch],
        n: int,
    ):
        self.events, self.checkpoints, self.snapshots = events, checkpoints, snapshots
        self.record, self.batches, self.n = record, batches, n
        self.seconds = {"train": 0.0, "validate": 0.0, "checkpoint": 0.0, "data": 0.0}
        self.parts = dict.fromkeys(PARTS, 0.0)
        """of the seconds of training, those before the last checkpoint"""
        self.tokens = {"source": 0, "target": 0, "cells": 0}
        self.pending = np.zeros(2)
        self.pending_tokens = 0
        self.signum = 0
        self._clock = self._shown = self._asked = 0.0
        self._rate: list[tuple[float, int]] = []

    @property
    def state_key(self) -> str:
        return "Conductor"  # its first name: checkpoints hold its state under it

    def state_dict(self) -> dict[str, Any]:
        return {
            "seconds": dict(self.seconds),
            "parts": dict(self.parts),
            "tokens": dict(self.tokens),
            "pending": self.pending.tolist(),
            "pending_tokens": self.pending_tokens,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds, self.tokens = dict(state_dict["seconds"]), dict(state_dict["tokens"])
        self.parts = dict(state_dict["parts"])
        self.pending, self.pending_tokens = np.array(state_dict["pending"]), state_dict["pending_tokens"]

    # --- hooks ---

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        for signum in (signal.SIGTERM, signal.SIGINT):  # Lightning's own handlers broadcast from inside the handler
            with suppress(ValueError):  # not in the main thread
                signal.signal(signum, self._on_signal)
        self._clock = time.perf_counter()
        self._rate = [(self._clock, self.tokens["target"])]

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: pl.LightningModule, batch: Step, batch_idx: int
    ) -> None:
        self._lap("data")

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Step, batch_idx: int
    ) -> None:
        assert isinstance(module, TransformerModule)
        self._lap("train")
        step, when = trainer.global_step, self.events
        self.tokens["source"] += batch.source_tokens
        self.tokens["target"] += batch.target_tokens
        self.tokens["cells"] += sum(b.source_BS.numel() + b.target_in_BT.numel() for b in batch.micro)
        self.pending_tokens += batch.target_tokens
        signum = self._agreed_signal(trainer, step)
        if signum == ASKED and step < when.steps:
            raise Pruned(step)
        signum = signum if signum > ASKED else 0  # at the last step the run is whole anyway
        if when.logs(step) or when.saves(step) or signum:
            self.pending = self.pending + module.take_sums()
        elif when.validates(step) or when.snapshots(step):
            module.sums.read()  # nothing is made of weights that are not finite
        if when.logs(step):
            self._log(module, step)
        self._lap("train")
        if when.validates(step):
            self._show(step, "validate", force=True)
            self._validate(module, step)
            self._lap("validate")
        if when.snapshots(step):
            self._snapshot(module, step)
        if when.saves(step) or signum:
            self._save(trainer, module, step)
        self._lap("checkpoint")
        self._show(step, "train", force=step == when.steps)
        if signum:
            raise Interrupted(signum)

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, TransformerModule)
        self._take_parts(module)
        if self.signum > ASKED:  # it came after the last step had been checked
            raise Interrupted(self.signum)

    # --- parts ---

    def _on_signal(self, signum: int, frame: Any) -> None:
        self.signum = signum

    def _agreed_signal(self, trainer: pl.Trainer, step: int) -> int:
        """The signal that any rank received, the same answer on all. A collective when there are several ranks."""
        self._look_for_request()
        if trainer.world_size == 1:
            return self.signum
        if trainer.strategy.root_device.type == "cuda" and step % 10:  # reading it stalls the device
            return 0
        tensor = torch.tensor(self.signum, device=trainer.strategy.root_device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor)

    def _look_for_request(self) -> None:
        """Whether the run was asked to stop: rank 0 checks the disk, a few times a second."""
        now = time.perf_counter()
        if self.record is not None and not self.signum and now - self._asked >= REQUEST_SECONDS:
            self._asked = now
            if self.record.stop_asked():
                self.signum = ASKED

    def _lap(self, part: str) -> None:
        now = time.perf_counter()
        self.seconds[part] += now - self._clock
        self._clock = now

    def _log(self, module: TransformerModule, step: int) -> None:
        loss, nll = (self.pending / self.pending_tokens).tolist()
        self.pending, self.pending_tokens = np.zeros(2), 0
        if self.record is not None:
            experiment = module.experiment
            rate = learning_rate(step - 1, experiment.model.d_model, experiment.training)
            line = {"step": step, "loss": loss, "nll": nll, "lr": rate, "target_tokens": self.tokens["target"]}
            self.record.append_metrics(line | {"seconds": round(self.seconds["train"] + self.seconds["data"], 3)})

    def _validate(self, module: TransformerModule, step: int) -> None:
        found = perplexity(evaluate_lines(module, self.batches, self.n))
        if self.record is not None:
            self.record.append_metrics({"step": step, "dev_nll": found.nll / found.tokens, "dev_ppl": found.ppl})

    def _snapshot(self, module: TransformerModule, step: int) -> None:
        if self.record is not None:
            self.snapshots.mkdir(parents=True, exist_ok=True)
            path = self.snapshots / f"step-{step:08d}.pt"
            write(module.transformer.state_dict(), _half(path))
            self.record.commit(_half(path), path)

    def _take_parts(self, module: TransformerModule) -> None:
        """Move the module's seconds over here, where they survive in checkpoints."""
        watch = module.stopwatch
        assert watch is not None, "made as training began"
        for part, seconds in watch.seconds.items():
            self.parts[part] += seconds
            watch.seconds[part] = 0.0

    def _save(self, trainer: pl.Trainer, module: TransformerModule, step: int) -> None:
        self._take_parts(module)
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        path = self.checkpoints / f"step-{step:08d}.ckpt"
        trainer.save_checkpoint(_half(path))
        if self.record is not None:
            self.record.commit(_half(path), path)
            for old in checkpoint_files(self.checkpoints)[:-KEPT_CHECKPOINTS]:
                old.unlink()

    def _show(self, step: int, phase: str, force: bool = False) -> None:
        now = time.perf_counter()
        if self.record is None or not (force or now - self._shown >= PROGRESS_SECONDS):
            return
        self._shown = now
        self._rate = [*self._rate[-10:], (now, self.tokens["target"])]
        (t0, n0), (t1, n1) = self._rate[0], self._rate[-1]
        self.record.write_progress(step, self.events.steps, (n1 - n0) / max(t1 - t0, 1e-9), phase)


def _half(path: Path) -> Path:
    """Where `path` is written before it is moved to its name; a name that `runs gc` removes."""
    return path.with_name(f".{path.name}.tmp")


def checkpoint_files(folder: Path) -> list[Path]:
    """Whole checkpoints, oldest first."""
    return sorted(folder.glob("step-*.ckpt"))
