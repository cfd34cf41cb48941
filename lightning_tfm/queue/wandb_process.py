"""The process that mirrors a study to W&B while it runs, and what happens when W&B is in trouble.

Training never touches W&B: no rank opens a run, and no trouble there reaches a run. The process that the launcher forks
only watches over another one, which does the work and is started anew when it ends early.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lightning_tfm.queue.wandb_mirror import Mirror
from lightning_tfm.runs.processes import children, forked, let_come
from lightning_tfm.study.cell import Cell

LOOK = 1.0
"""seconds between two looks at the records"""
AGAIN = 60.0
"""seconds before a mirror that ended early is started again"""
PATIENCE = 60.0
"""seconds that the mirror gets for what is left when the study has ended"""


@contextmanager
def mirrored(
    mode: str,
    root: Path,
    group: str,
    folder: Path,
    cells: Callable[[], list[Cell]],
    say: Callable[[str], None],
    replay: str = "",
) -> Iterator[None]:
    """Mirror the runs of a study while the block runs, from a process of its own. `mode` off: do nothing.

    `replay` is what `wandb replay` is called with to send later what did not arrive: the study, if empty.
    """
    if mode == "off":
        yield
        return
    pid = forked(lambda: _be_mirror(Mirror(folder, mode, group), root, cells))
    try:
        yield
    finally:
        _end_mirror(pid, replay or group, say)


def _end_mirror(pid: int, replay: str, say: Callable[[str], None]) -> None:
    later = f"what is missing there: lightning-tfm wandb replay {replay}"
    try:
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                if status:
                    say(f"W&B: the mirror ended early, see mirror.log; no run was harmed; {later}")
                return
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        say(f"W&B: the mirror did not end within {PATIENCE:g} s and was stopped; {later}")
    except (ProcessLookupError, ChildProcessError):  # it died before, and somebody collected it
        say(f"W&B: the mirror was gone; no run was harmed; {later}")


def _be_mirror(mirror: Mirror, root: Path, cells: Callable[[], list[Cell]]) -> int:
    """Keep a mirror at work until SIGTERM arrives; returns the exit code, that of the last one."""
    over: list[int] = []
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: over.append(number))
    let_come()
    os.setpgid(0, 0)
    mirror.folder.mkdir(parents=True, exist_ok=True)
    log = os.open(mirror.folder / "mirror.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    return _watch_over(mirror, root, cells, over)


def _watch_over(mirror: Mirror, root: Path, cells: Callable[[], list[Cell]], over: list[int]) -> int:
    while True:
        told, pid = False, forked(lambda: _mirror(mirror, root, cells))
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            if over and not told:
                told = True
                os.kill(pid, signal.SIGTERM)
            time.sleep(0.05)
        if told or over:
            return int(status != 0)
        end = time.monotonic() + AGAIN
        while not over and time.monotonic() < end:
            time.sleep(0.05)


def _mirror(mirror: Mirror, root: Path, cells: Callable[[], list[Cell]]) -> int:
    over: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: over.append(number))
    let_come()
    try:
        while True:
            last = bool(over)
            mirror.look(root, cells())
            if last:
                break
            end = time.monotonic() + LOOK
            while not over and time.monotonic() < end:
                time.sleep(0.05)
        mirror.close()
        return 0
    finally:
        for pid in children():  # W&B's service
            os.kill(pid, signal.SIGKILL)
