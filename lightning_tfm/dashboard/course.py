"""The course of a run's training, from its metrics.jsonl as it grows."""

import math
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning_tfm.dashboard.files import Lines

DEV = "dev_ppl"
"""key of the dev perplexity, in lines of its own"""
Points = list[tuple[float, float]]


class Series:
    """Values by step."""

    def __init__(self) -> None:
        self.steps, self.values = array("d"), array("d")

    def add(self, step: float, value: float) -> None:
        self.steps.append(step)
        self.values.append(value)

    def __len__(self) -> int:
        return len(self.steps)

    def points(self, most: int = 400) -> Points:
        """(step, value); where there are more than `most`, means over as many neighbours as it takes."""
        size = -(-len(self) // most) or 1
        if size == 1:
            return list(zip(self.steps, self.values, strict=True))
        return [_mean(self.steps[i : i + size], self.values[i : i + size]) for i in range(0, len(self), size)]


def _mean(steps: array, values: array) -> tuple[float, float]:
    return round(sum(steps) / len(steps), 1), sum(values) / len(values)


class Course:
    """All series of one run: loss, nll, lr, grad_norm, dev_ppl, target_tokens, seconds and whatever else is logged."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        self._text: Any = None
        """the dev text that the perplexities so far belong to"""
        self.series: dict[str, Series] = {}

    @property
    def damaged(self) -> int:
        """Lines that are no record."""
        return self._lines.damaged

    def look(self) -> bool:
        """Read what came since the last look; whether anything did."""
        try:
            anew, records = self._lines.fresh()
        except OSError:
            anew, records = True, []
        if anew:
            self.series = {}
        for record in records:
            if record.get("dev", self._text) != self._text:  # resumed with another dev text: two make no curve
                self._text = record["dev"]
                for key in (DEV, "dev_nll"):
                    self.series.pop(key, None)
            for key, step, value in numbers(record):
                self.series.setdefault(key, Series()).add(step, value)
        return anew or bool(records)

    def of(self, key: str) -> Series:
        return self.series.get(key) or Series()

    def last(self, key: str) -> float | None:
        values = self.of(key).values
        return values[-1] if values else None

    def seconds_per_step(self) -> float | None:
        """Over the last lines; None before there is one."""
        seconds = self.of("seconds")
        if not seconds:
            return None
        first = max(0, len(seconds) - 10)
        before = (seconds.steps[first - 1], seconds.values[first - 1]) if first else (0.0, 0.0)
        steps = seconds.steps[-1] - before[0]
        return (seconds.values[-1] - before[1]) / steps if steps > 0 else None


def numbers(record: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    """(key, step, value) of every finite number in a line but its step."""
    step = record.get("step")
    if not isinstance(step, int) or isinstance(step, bool):
        return
    for key, value in record.items():
        if key != "step" and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield key, float(step), float(value)


def dev_curve(path: Path) -> Points:
    """(step, dev perplexity) alone: quicker than a whole Course."""
    course, text = Series(), None
    try:
        data = path.read_bytes()
    except OSError:
        return []
    lines = Lines(path)
    for line in data.splitlines():
        if b'"dev_ppl"' in line and (record := lines.record(line)) is not None:
            if record.get("dev", text) != text:
                course, text = Series(), record["dev"]
            for key, step, value in numbers(record):
                if key == DEV and value > 0:
                    course.add(step, value)
    return course.points()
