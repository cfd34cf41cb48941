"""The learning rate (5.3, eq. 3), and at which steps of a run something happens. Without torch: searches need it.

A schedule is one class here and one line in `registry.SCHEDULES`.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

from lightning_tfm.config import Hardware, Training
from lightning_tfm.errors import UserError
from lightning_tfm.registry import SCHEDULES


class Schedule(ABC):
    """Constructed as `Class(training, d_model)`, with the steps of a miniature. A rate depends on nothing but its step,
    so that a resumed run goes on with those of an unbroken one."""

    def __init__(self, training: Training, d_model: int):
        self.training, self.d_model = training, d_model
        self.peak = training.lr_factor * d_model**-0.5 * training.warmup**-0.5

    def rate(self, n: int) -> float:
        """The rate of step n, from 1 to training.steps: a straight line up to the peak, then `after_warmup`."""
        t = self.training
        return self.peak * n / t.warmup if n <= t.warmup else self.after_warmup(n)

    @abstractmethod
    def after_warmup(self, n: int) -> float:
        """The rate of step n, from training.warmup + 1 on."""


class InverseSqrt(Schedule):
    """lr_factor * d_model^-0.5 * min(n^-0.5, n * warmup^-1.5) (eq. 3)."""

    def after_warmup(self, n: int) -> float:
        return self.training.lr_factor * self.d_model**-0.5 * n**-0.5


class Linear(Schedule):
    """On a straight line to 0 after the last step."""

    def after_warmup(self, n: int) -> float:
        t, start = self.training, self.falls_from()
        return self.peak * min(1.0, (t.steps + 1 - n) / (t.steps + 1 - start))

    def falls_from(self) -> int:
        return self.training.warmup


class WSD(Linear):
    """Warm-up, stable, decay: the peak is held, then a straight line over the last `cooldown` of the steps (Hu et al.
    2024)."""

    def falls_from(self) -> int:
        return self.training.steps - round(self.training.cooldown * self.training.steps)


class Cosine(Schedule):
    """On half a cosine to 0 after the last step (Loshchilov and Hutter 2017)."""

    def after_warmup(self, n: int) -> float:
        t = self.training
        return self.peak * (1 + math.cos(math.pi * (n - t.warmup) / (t.steps + 1 - t.warmup))) / 2


def learning_rate(step: int, d_model: int, t: Training) -> float:
    """Rate of optimizer step `step`, counted from 0 (the paper's step_num is step + 1)."""
    return _schedule(t, d_model).rate(step + 1)


@lru_cache(maxsize=64)
def _schedule(t: Training, d_model: int) -> Schedule:
    cls: type[Schedule] = SCHEDULES.find(t.schedule, __name__)
    return cls(t, d_model)


def check_schedule(t: Training, d_model: int) -> None:
    """Raise UserError where a schedule gives a step no rate, or another one when it is asked again, as a resumed run
    does: at most a thousand steps, in order, and backwards of an object that is new."""
    named = f"training.schedule='{t.schedule}'"
    steps = sorted({1, t.steps, *range(1, t.steps + 1, -(-t.steps // 1000))})
    cls: type[Schedule] = SCHEDULES.find(t.schedule, __name__)
    try:
        first, second = cls(t, d_model), cls(t, d_model)
        rates = [first.rate(n) for n in steps]
        again = [second.rate(n) for n in reversed(steps)][::-1]
    except Exception as error:  # whatever a user-defined class may raise
        from lightning_tfm.user_code.modules import with_line

        raise UserError(f"{named}: {with_line(error, t.schedule)}") from error
    for n, rate, other in zip(steps, rates, again, strict=True):
        if not isinstance(rate, (int, float)) or not (math.isfinite(rate) and rate >= 0):
            raise UserError(f"{named}: step {n} has the rate {rate!r}: expected a finite number, 0 or above")
        if rate != other:
            raise UserError(
                f"{named}: step {n} has the rate {rate!r}, and {other!r} when steps are asked backwards: it must "
                "depend on n alone, or a resumed run would train otherwise"
            )
    if not any(rates):
        raise UserError(f"{named}: every rate is 0, so nothing would be trained")


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
