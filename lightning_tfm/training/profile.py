"""A trace of a few steps, for chrome://tracing or Perfetto, and a table of operators beside it."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch.profiler import ProfilerActivity, profile

SKIPPED, TRACED = 10, 10
"""steps of this process before the trace, and in it"""
ROWS = 40


class Profile(pl.Callback):
    """Traces steps 11 to 20 of this process on one rank; writes trace.json and operators.txt into `folder`.

    A process that trains fewer steps writes what it has. The profiler slows the traced steps, which the record counts.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.steps = 0
        self.running: profile | None = None

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        if self.steps == SKIPPED:
            gpu = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
            self.running = profile(activities=[ProfilerActivity.CPU, *gpu], record_shapes=True, profile_memory=True)
            self.running.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.steps += 1
        if self.steps == SKIPPED + TRACED:
            self._write()

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._write()

    def _write(self) -> None:
        if self.running is None:
            return
        self.running.stop()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.running.export_chrome_trace(str(self.folder / "trace.json"))
        order = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        (self.folder / "operators.txt").write_text(self.running.key_averages().table(sort_by=order, row_limit=ROWS))
        self.running = None
