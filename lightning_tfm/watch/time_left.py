"""How long running and waiting cells will take: the one estimate behind every view.

A run's own pace says how long the rest of its steps takes, finished runs what comes beside and after them, and how
long those take that have not started.
"""

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean, median

from lightning_tfm.runs.record import Seconds


@dataclass(frozen=True)
class Left:
    """Remaining seconds; `at_least` if part of them, such as scoring, is not known yet."""

    seconds: float
    at_least: bool = False


def duration(seconds: float) -> str:
    """12 s, 4:05 min, 3:20 h, 2 d 4 h."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    if whole < 86400:
        return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def seconds_at(cost: float, finished_runs: Sequence[tuple[float, float]]) -> float:
    """Seconds of a run of that predicted cost, from (cost, seconds) of some: in proportion, or on a line if three of
    unequal cost are known.

    The smaller a model, and the shorter a run, the more of its time is not arithmetic.
    """
    x, y = mean(c for c, _ in finished_runs), mean(s for _, s in finished_runs)
    spread = sum((c - x) ** 2 for c, _ in finished_runs)
    slope = sum((c - x) * (s - y) for c, s in finished_runs) / spread if spread else 0.0
    if len(finished_runs) > 2 and slope > 0 and y >= slope * x:
        return y + slope * (cost - x)
    return cost * y / x if x else y


@dataclass(frozen=True)
class Took:
    """What finished runs of a study took, and so what others will take."""

    whole: list[tuple[float, float]] = field(default_factory=list)
    """predicted cost and seconds of each finished run"""
    trials: list[float] = field(default_factory=list)
    """seconds of each trial that ended, those that were stopped early too"""
    parts: list[Seconds] = field(default_factory=list)

    def of(self, cost: float) -> float | None:
        """Seconds of a run of this cost; None if nothing is known."""
        return seconds_at(cost, self.whole) if self.whole else None

    @property
    def scoring(self) -> float | None:
        """Seconds of scoring a trained run."""
        return median(p.decode or 0.0 for p in self.parts) if self.parts else None

    @property
    def beside(self) -> float:
        """Seconds of validation and checkpoints for each second of training."""
        pairs = [((p.validate or 0.0) + (p.checkpoint or 0.0), p.train + (p.data or 0.0)) for p in self.parts]
        spent = [beside / trained for beside, trained in pairs if trained]
        return median(spent) if spent else 0.0

    def training(self, steps: int, per_step: float | None) -> Left | None:
        """Until a run with this many steps to go has ended, scoring included."""
        if per_step is None:
            return None
        ahead = steps * per_step * (1 + self.beside)
        return Left(ahead, at_least=True) if self.scoring is None else Left(ahead + self.scoring)

    def scoring_left(self, since: float) -> Left | None:
        """Until a run that is being scored since then has ended."""
        left = (self.scoring or 0.0) - (time.time() - since)
        return Left(left) if left > 0 else None


def until_the_last(busy: Sequence[float], ahead: Sequence[float], workers: int) -> float:
    """Seconds until all is done, if each free worker takes the longest waiting cell; `busy`: of those at work."""
    ends = [*busy, *[0.0] * (workers - len(busy))]
    heapq.heapify(ends)
    for seconds in sorted(ahead, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + seconds)
    return max(ends)
