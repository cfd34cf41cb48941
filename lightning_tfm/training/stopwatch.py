"""Where the time of a training step goes, without waiting for the device."""

import time
from typing import Any

import torch

PARTS = ("forward", "backward", "optimizer")


class Stopwatch:
    """Seconds by part. On a GPU the marks are events of its stream, read once it has passed them."""

    def __init__(self, device: torch.device):
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.gpu = device.type == "cuda"
        self._last = self._now()
        self._laps: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    def start(self) -> None:
        """Begin a part; the time since the last lap belongs to none."""
        self._last = self._now()

    def lap(self, part: str) -> None:
        """The work since the last mark was `part`."""
        now = self._now()
        if self.gpu:
            self._laps.append((part, self._last, now))
        else:
            self.seconds[part] += now - self._last
        self._last = now

    def settle(self) -> None:
        """Count the laps that the device has finished."""
        while self._laps and self._laps[0][2].query():
            part, began, ended = self._laps.pop(0)
            self.seconds[part] += began.elapsed_time(ended) / 1e3

    def _now(self) -> Any:
        """Seconds; on a GPU an event of its stream."""
        if not self.gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
