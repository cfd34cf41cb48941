"""Whether a training diverged, only from its logged losses: nothing of it is kept in a record.

Rule. Of the unsmoothed training nll per piece take the means b_1 … b_20 over 20 equal blocks of the steps so far. The
training diverged where any logged nll is not finite, or where b_20 > min(log V, min b_k + 0.5): worse
than guessing all pieces alike, or half a nat above where it has been. With fewer than 20 logged points it is undefined.
A training that ended because its loss was not finite (exit code 78, outcome.py) and one whose dev perplexity overflowed
count as diverged, too, whatever their curves hold.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

BLOCKS = 20
RISE = 0.5
"""nats per piece"""
REMEDY = "try a smaller training.lr_factor, a longer training.warmup or training.clip_norm"


@dataclass(frozen=True)
class Divergence:
    """Where and how a training diverged."""

    step: int
    """the first one logged after it was last within the limit"""
    before: float | None
    """the lowest b_k; None where nothing finite came before"""
    after: float
    """b_20, or what is not finite"""
    rate: float | None
    """learning rate at `step`, as is the gradient norm; None where it was not logged"""
    grad_norm: float | None

    def __str__(self) -> str:
        if self.before is None or not math.isfinite(self.after):
            course = f"became {self.after:.2f}" + ("" if self.before is None else f", {self.before:.2f} before,")
        else:
            course = f"rose from {self.before:.2f} to {self.after:.2f}"
        if self.before is not None and self.after - self.before <= RISE:
            course = f"ended at {self.after:.2f}, no better than guessing, {self.before:.2f} at its lowest,"
        numbers = {"learning rate": self.rate, "gradient norm": self.grad_norm}
        there = ", ".join(f"{name} {value:.3g}" for name, value in numbers.items() if value is not None)
        return f"diverged: its training NLL per token {course} from step {self.step} on ({there}); {REMEDY}"


@dataclass(frozen=True)
class Undefined:
    """Too few points were logged for the rule."""

    points: int

    def __str__(self) -> str:
        return f"whether it diverged is undefined: {self.points} losses were logged, the rule takes {BLOCKS}"


def divergence_of(lines: Iterable[Mapping[str, Any]], V: int | None) -> Divergence | Undefined | None:
    """The rule applied to these lines of metrics.jsonl, in order; those without a loss are skipped.

    `V`: pieces of the vocabulary; None if unknown, which leaves log V out of the rule.
    """
    points = [line for line in lines if "nll" in line]
    nll = [float(line["nll"]) for line in points]
    if not all(map(math.isfinite, nll)):
        bad = next(i for i, value in enumerate(nll) if not math.isfinite(value))
        return _at(points[bad], min(nll[:bad], default=None), nll[bad])
    if len(points) < BLOCKS:
        return Undefined(len(points))
    last = int(points[-1]["step"])
    places = [(int(line["step"]) - 1) * BLOCKS // last for line in points]
    blocks: dict[int, list[float]] = {}
    for k, value in zip(places, nll, strict=True):
        blocks.setdefault(k, []).append(value)
    means = {k: math.fsum(block) / len(block) for k, block in blocks.items()}
    lowest, final = min(means.values()), means[max(means)]
    limit = min(math.inf if V is None else math.log(V), lowest + RISE)
    if final <= limit:
        return None
    within = max((k for k, value in means.items() if value <= limit), default=-1)
    return _at(next(line for line, k in zip(points, places, strict=True) if k > within), lowest, final)


def _at(line: Mapping[str, Any], before: float | None, after: float) -> Divergence:
    rate, norm = (None if line.get(key) is None else float(line[key]) for key in ("lr", "grad_norm"))
    return Divergence(int(line["step"]), before, after, rate, norm)
