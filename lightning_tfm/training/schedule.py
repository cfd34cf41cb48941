"""The learning rate (5.3, eq. 3), and at which steps of a run something happens. Without torch: searches need it."""

import math
from dataclasses import dataclass

from lightning_tfm.config import Hardware, Training


def learning_rate(step: int, d_model: int, t: Training) -> float:
    """Rate of optimizer step `step`, counted from 0 (the paper's step_num is step + 1).

    lr_factor * d_model^-0.5 * min(n^-0.5, n * warmup^-1.5), n = step + 1. The other schedules rise to the same peak and
    reach 0 after the last step: `linear` on a straight line, `cosine` on half a cosine (Loshchilov and Hutter 2017),
    `wsd` after holding the peak, on a straight line over the last `cooldown` of the steps (Hu et al. 2024).
    """
    n = step + 1
    peak = t.lr_factor * d_model**-0.5 * t.warmup**-0.5
    if n <= t.warmup:
        return peak * n / t.warmup
    if t.schedule == "inverse_sqrt":
        return t.lr_factor * d_model**-0.5 * n**-0.5
    if t.schedule == "cosine":
        return peak * (1 + math.cos(math.pi * (n - t.warmup) / (t.steps + 1 - t.warmup))) / 2
    start = t.warmup if t.schedule == "linear" else t.steps - round(t.cooldown * t.steps)
    return peak * min(1.0, (t.steps + 1 - n) / (t.steps + 1 - start))


@dataclass(frozen=True)
class EventSchedule:
    """What happens at which of a run's `steps` steps."""

    steps: int
    log_every: int
    validate_every: int
    checkpoint_every: int
    average_last: int = 0
    average_every: int = 1
    checkpoint_minutes: float = 0.0

    @classmethod
    def of(cls, hardware: Hardware, training: Training) -> "EventSchedule":
        """The defaults of `Hardware` made definite."""
        steps = training.steps
        validate = hardware.validate_every or max(1, math.ceil(steps / 8))
        checkpoint = hardware.checkpoint_every or max(1, min(1500, math.ceil(steps / 10)))
        t, minutes = training, hardware.checkpoint_minutes
        return cls(steps, hardware.log_every, validate, checkpoint, t.average_last, t.average_every, minutes)

    def logs(self, step: int) -> bool:
        return step % self.log_every == 0 or step == self.steps

    def validates(self, step: int) -> bool:
        return step % self.validate_every == 0 or step == self.steps

    def saves(self, step: int) -> bool:
        return step % self.checkpoint_every == 0 or step == self.steps

    def snapshot_steps(self) -> list[int]:
        """The last `average_last` steps at whole multiples of `average_every` before the end, in order."""
        return [self.steps - k * self.average_every for k in reversed(range(self.average_last))]
