"""The live view of a study: which runs are where, how fast, and when all will be done."""

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from lightning_tfm.queue.queue import CellState, Queue
from lightning_tfm.runs.directory import RunFolder
from lightning_tfm.runs.record import Progress

PLAIN_EVERY = 10.0
"""seconds between two lines where the output is not a terminal"""
LIVE_EVERY = 0.5


@dataclass(frozen=True)
class Running:
    """A run that is being worked on; None where it has not reported anything yet."""

    row: str
    seed: int
    step: int | None
    steps: int | None
    tokens_per_second: float | None
    phase: str
    seconds_left: float | None


@dataclass(frozen=True)
class Overview:
    """A study at a moment."""

    running: list[Running]
    counts: dict[str, int]
    """cells by state: done, running, waiting, failed; pruned and gone where there are some"""
    seconds_left: float | None
    failed: list[tuple[str, int, str]]
    """row, seed, reason"""


@dataclass
class Watch:
    """Follows a study from outside, through the records in its run folders."""

    root: Path
    workers: int
    _first: dict[str, tuple[int, float]] = field(default_factory=dict)

    def look(self, states: list[CellState]) -> Overview:
        """The study as its records show it now. Speed and time left are measured from our first look on."""
        running = [self._running(state) for state in states if state.state == "running"]
        counts = Counter(state.state for state in states)
        failed = [(s.cell.row, s.cell.seed, s.reason) for s in states if s.state == "failed"]
        named = {name: counts[name] for name in ("done", "running", "waiting", "failed")}
        named |= {name: counts[name] for name in ("pruned", "gone") if counts[name]}
        return Overview(running, named, self._left(states, running), failed)

    def _running(self, state: CellState) -> Running:
        runs = [run for run in state.cell.runs if not RunFolder(self.root, run.training_hash).result.exists()]
        cell = runs[0] if runs else state.cell.runs[-1]
        record = RunFolder(self.root, cell.training_hash).read_progress()
        if record is None:
            return Running(cell.row, cell.seed, None, None, None, "starting", None)
        left = self._seconds_left(cell.training_hash, record)
        if left is not None and len(runs) > 1 and record.step < record.steps:  # the seeds to come take as long
            left *= 1 + (len(runs) - 1) * record.steps / (record.steps - record.step)
        speed = record.tokens_per_second
        return Running(cell.row, cell.seed, record.step, record.steps, speed, record.phase, left)

    def _seconds_left(self, key: str, record: Progress) -> float | None:
        step, at = self._first.setdefault(key, (record.step, record.time))
        if record.step <= step:
            return self._by_its_record(key, record)
        per_step = (record.time - at) / (record.step - step)
        return max(0.0, (record.steps - record.step) * per_step - (time.time() - record.time))

    def _by_its_record(self, key: str, record: Progress) -> float | None:
        """Seconds left by what the run itself wrote down, for a first look."""
        timed = [r for r in RunFolder(self.root, key).read_metrics() if "seconds" in r]
        if not timed:
            return None
        per_step = timed[-1]["seconds"] / timed[-1]["step"]
        return max(0.0, (record.steps - record.step) * per_step - (time.time() - record.time))

    def _left(self, states: list[CellState], running: list[Running]) -> float | None:
        """Seconds until the last run ends: what finished runs took, per unit of predicted cost, for those to come."""
        done = [s for s in states if s.state == "done" and s.seconds]
        cost = sum(s.cell.cost for s in done)
        if not cost:
            return None
        rate = sum(s.seconds or 0.0 for s in done) / cost
        ahead = sum(s.cell.cost for s in states if s.state == "waiting") * rate
        open_cells = [s for s in states if s.state == "running"]
        begun = [
            r.seconds_left if r.seconds_left is not None else s.cell.cost * rate / 2
            for r, s in zip(running, open_cells, strict=True)
        ]
        return max([(ahead + sum(begun)) / self.workers, *begun])


def follow(
    queue: Queue,
    watch: Watch,
    view: "View",
    every: float,
    check: Callable[[], None] = lambda: None,
    states: Callable[[], list[CellState]] | None = None,
) -> None:
    """Show a study until nothing of it is left. `check` comes every so many seconds and may raise.

    `states` are those of the queue, unless the caller knows better.
    """
    states = states or queue.states
    try:
        while not queue.done():
            check()
            if view.due():
                view.show(watch.look(states()))
            time.sleep(every)
        view.show(watch.look(states()))
    finally:
        view.close()


class View:
    """Shows overviews: a table that is redrawn on a terminal, one line every ten seconds elsewhere."""

    def __init__(self, name: str, stream: TextIO | None = None) -> None:
        self._name = name
        self._stream = stream or sys.stderr
        self._live = None
        self._shown = 0.0
        if self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            # no refresh thread of its own: the launcher forks workers, and a fork copies locks but no threads
            console = Console(file=self._stream)
            self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._live.start()

    def due(self) -> bool:
        """Whether it is time to look again."""
        return time.monotonic() - self._shown >= (LIVE_EVERY if self._live else PLAIN_EVERY)

    def show(self, overview: Overview) -> None:
        """Redraw the table, or print a line."""
        self._shown = time.monotonic()
        if self._live is None:
            print(line(self._name, overview), file=self._stream, flush=True)
        else:
            self._live.update(_table(self._name, overview), refresh=True)

    def say(self, text: str) -> None:
        """Print a message; on a terminal above the table."""
        if self._live is None:
            print(text, file=self._stream, flush=True)
        else:
            self._live.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Leave the terminal in order."""
        if self._live is not None:
            self._live.stop()


def line(name: str, overview: Overview) -> str:
    """An overview in one line of text."""
    parts = [
        " ".join(filter(None, (f"{r.row}/{r.seed}", _steps(r), _speed(r), _left(r.seconds_left))))
        for r in overview.running
    ]
    counts = ", ".join(f"{number} {state}" for state, number in overview.counts.items())
    return ", ".join(filter(None, (f"{name}: {counts}", _left(overview.seconds_left)))) + "".join(
        f" | {part}" for part in parts
    )


def clock(seconds: float | None) -> str:
    """Hours, minutes, seconds; empty for None."""
    if seconds is None:
        return ""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f"{clock(seconds)} left"


def _steps(r: Running) -> str:
    return r.phase if r.step is None else f"{r.step}/{r.steps} {r.phase}"


def _speed(r: Running) -> str:
    return "" if r.tokens_per_second is None else f"{r.tokens_per_second:,.0f} tok/s"


def _table(name: str, overview: Overview) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in ("row", "seed", "step", "tokens/s", "phase", "left"):
        table.add_column(title, justify="left" if title in ("row", "phase") else "right", no_wrap=True)
    for r in overview.running:
        step = "" if r.step is None else f"{r.step}/{r.steps}"
        speed = "" if r.tokens_per_second is None else f"{r.tokens_per_second:,.0f}"
        table.add_row(r.row, str(r.seed), step, speed, r.phase, clock(r.seconds_left))
    c = overview.counts
    head = f"{name}: " + ", ".join(f"{number} {state}" for state, number in c.items())
    return Group(table, Text(", ".join(filter(None, (head, _left(overview.seconds_left))))))
