"""What people see while a study or a run works: a picture that is redrawn on a terminal, plain lines in a log file."""

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from lightning_tfm.watch.run_state import SCORING, RunState
from lightning_tfm.watch.study_state import Best, CellState, StudyState, Watch
from lightning_tfm.watch.time_left import Left, duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lightning_tfm.queue.queue import Queue

PLAIN_EVERY = (10.0, 300.0)
"""least and most seconds between two lines where the output is not a terminal: a twentieth of the time passed"""
LIVE_EVERY = 0.5
WIDEST = 110
"""columns of a picture"""


def follow(
    queue: "Queue",
    watch: Watch,
    view: "View",
    every: float,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Show a study until nothing of it is left. `check` is called regularly and may raise."""
    try:
        while not queue.done():
            check()
            if view.due():
                view.show(watch.look(queue.states()))
            time.sleep(every)
        view.show(watch.look(queue.states()))
    finally:
        view.close()


class View:
    """Shows overviews of the study `name`, or of a single run where it is empty."""

    def __init__(self, name: str, stream: TextIO | None = None) -> None:
        self._name = name
        self._stream = stream or sys.stderr
        self._live = None
        self._began = time.monotonic()
        self._shown = float("-inf")
        if self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            # no separate refresh thread: the launcher forks workers, and a fork copies locks but no threads
            console = Console(file=self._stream)
            self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._live.start()

    def due(self) -> bool:
        """Whether it is time to look again."""
        now = time.monotonic()
        every = LIVE_EVERY if self._live else min(max(PLAIN_EVERY[0], (now - self._began) / 20), PLAIN_EVERY[1])
        return now - self._shown >= every

    def show(self, overview: StudyState) -> None:
        """Redraw the picture, or print a line."""
        self._shown = time.monotonic()
        if self._live is None:
            self.say(line(self._name, overview))
        else:
            self._live.update(picture(self._name, overview), refresh=True)

    def say(self, text: str) -> None:
        """Print a message; on a terminal above the picture."""
        if self._live is None:
            self._stream.write(f"{text}\n")  # in one piece, also where Python does not buffer: others write there, too
            self._stream.flush()
        else:
            self._live.console.print(text, markup=False, highlight=False)

    def relay(self, inbox: int) -> None:
        """Show the lines that processes have written to a pipe that does not block."""
        try:
            for text in os.read(inbox, 1 << 16).decode(errors="replace").splitlines():
                self.say(text)
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Leave the terminal in order."""
        if self._live is not None:
            self._live.stop()


# --- a line ---


def line(name: str, overview: StudyState) -> str:
    """An overview in one line of text."""
    runs = [run_line(s, run, f"{s.cell.row}/{s.cell.seed}" if name else "") for s, run in overview.running]
    return " | ".join([head(name, overview), *runs] if name else runs)


def head(name: str, overview: StudyState) -> str:
    """The study in one line, without its runs."""
    counts = ", ".join(overview.counted)
    return ", ".join(filter(None, (f"{name}: {counts}", left_words(overview.left), best_words(overview.best))))


def run_line(s: CellState, run: RunState, name: str) -> str:
    """A run in one line."""
    at = run.phase if run.step is None else f"{run.step}/{run.steps}" + f" {run.phase}" * (run.phase != "train")
    loss = None if run.loss is None else f"loss {run.loss:.3f}"
    ppl = None if run.ppl is None or run.best_ppl is None else f"dev PPL {number(run.ppl)}"
    ppl = f"{ppl} (best {number(run.best_ppl)})" if ppl and run.best_ppl != run.ppl else ppl
    speed = None if run.tokens_per_second is None else f"{run.tokens_per_second:,.0f} tok/s"
    change = f"({change_words(s.cell.change)})" if s.cell.change else ""
    first = " ".join(filter(None, (name, change, at)))
    return ", ".join(filter(None, (first, loss, ppl, speed, left_words(run.left), run.words)))


def left_words(left: Left | None) -> str:
    """Empty where nothing is known."""
    if left is None or (left.at_least and left.seconds < 0.5):  # more than nothing says nothing
        return ""
    return f"{'over ' * left.at_least}{duration(left.seconds)} left"


def best_words(best: Best | None) -> str:
    if best is None:
        return ""
    place = best.row if best.seed is None else f"{best.row}/{best.seed}"
    return f"best: {best.name} {number(best.value)} ({place})"


def change_words(change: dict[str, Any]) -> str:
    """Parameters of a trial, without their sections."""
    words = {key: f"{value:.3g}" if isinstance(value, float) else value for key, value in change.items()}
    return ", ".join(f"{key.partition('.')[2] or key}={value}" for key, value in words.items())


def number(value: float | None) -> str:
    """Four significant digits, or all before the point; empty for None."""
    return "" if value is None else f"{value:.4g}" if value < 1e4 else f"{value:,.0f}"


# --- a picture ---


def picture(name: str, overview: StudyState) -> "RenderableType":
    """An overview for a terminal, about 80 columns wide."""
    from rich.console import Group
    from rich.constrain import Constrain
    from rich.text import Text

    parts: list[RenderableType] = [_runs(overview.running)] if overview.running else []
    if name:
        counts = [words for words in overview.counted if not words.startswith("0 ")]
        below = " · ".join(filter(None, (*counts, best_words(overview.best))))
        parts += [_bar(name, overview), Text(below, style="dim")]
    elif overview.running:
        parts.append(_bar("", overview))
    return Constrain(Group(*parts), WIDEST)


def _runs(running: list[tuple[CellState, RunState]]) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0), expand=True)
    table.add_column("run", no_wrap=True, overflow="ellipsis", ratio=1)
    for title, width in {"step": 9, "loss": 6, "dev PPL": 7, "best": 6, "tok/s": 7, "left": 7}.items():
        table.add_column(title, justify="right", no_wrap=True, min_width=width)
    for s, run in running:
        step = "" if run.step is None else f"{run.step}/{run.steps}"
        left = "" if run.left is None else f"{'>' * run.left.at_least}{duration(run.left.seconds)}"
        speed = f"{run.tokens_per_second:,.0f}" if run.tokens_per_second is not None else _doing(run.phase)
        loss = "" if run.loss is None else f"{run.loss:.3f}"
        table.add_row(f"{s.cell.row}/{s.cell.seed}", step, loss, number(run.ppl), number(run.best_ppl), speed, left)
    trials = [(s.cell.row, change_words(s.cell.change), "cyan") for s, _ in running if s.cell.change]
    damaged = [(f"{s.cell.row}/{s.cell.seed}", run.words, "yellow") for s, run in running if run.words]
    if not trials and not damaged:
        return table
    from rich.console import Group

    below = [*trials, *damaged]
    lines = [Text(f"{row}  {words}", style=style, overflow="ellipsis", no_wrap=True) for row, words, style in below]
    return Group(table, *lines)


def _doing(phase: str) -> str:
    """A phase without a speed, in a word."""
    return "scoring" if phase.startswith(SCORING) else {"validate": "validating", "train": ""}.get(phase, phase)


def _bar(name: str, overview: StudyState) -> "RenderableType":
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    if name:
        grid.add_column(no_wrap=True, overflow="ellipsis", max_width=24)
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    bar = ProgressBar(total=1.0, completed=overview.share, complete_style="cyan", finished_style="green")
    last = f"{100 * overview.share:.0f} %" + (f", {left}" if (left := left_words(overview.left)) else "")
    grid.add_row(*[name] * bool(name), bar, last if name else f"{100 * overview.share:.0f} %")
    return grid
