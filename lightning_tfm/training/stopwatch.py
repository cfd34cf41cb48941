"""Where the time of a training step goes, without waiting for the device."""

import time
from typing import Any

import lightning.pytorch as pl
import torch

PARTS = ("forward", "backward", "optimizer")


class Stopwatch(pl.Callback):
    """Adds to `seconds` by part; dropout masks belong to forward. On a GPU the marks are events of its stream, read
    once it has passed them."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds
        self.gpu = False
        self._last: Any = None
        self._laps: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        self.gpu = module.device.type == "cuda"
        self._last = self._now()

    def on_before_backward(self, *_: Any) -> None:
        self._lap("forward")

    def on_after_backward(self, *_: Any) -> None:
        self._lap("backward")

    def on_train_batch_end(self, *_: Any) -> None:
        self._lap("optimizer")
        while self._laps and self._laps[0][2].query():  # those that the device has finished
            part, began, ended = self._laps.pop(0)
            self.seconds[part] += began.elapsed_time(ended) / 1e3

    def _lap(self, part: str) -> None:
        """The work since the last mark was `part`."""
        now = self._now()
        if self.gpu:
            self._laps.append((part, self._last, now))
        else:
            self.seconds[part] += now - self._last
        self._last = now

    def _now(self) -> Any:
        """Seconds; on a GPU an event of its stream."""
        if not self.gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
