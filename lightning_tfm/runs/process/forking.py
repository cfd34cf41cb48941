"""Well-behaved processes: fork, die with the parent, leave no zombie, stop cleanly."""

import ctypes
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from lightning_tfm.runs.outcome import EXIT_CODES, exit_code_of

_LIBC = ctypes.CDLL(None, use_errno=True)  # looked up before any fork
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
ONE_SIGNAL = 0.5
"""seconds within which two stop signals are one: a cluster sends it to every process, and parents pass it on"""


def by_torchrun() -> bool:
    """Whether this process is a rank that torchrun started (runs/process/torchrun.py)."""
    return "TORCHELASTIC_RUN_ID" in os.environ


class StopSignals:
    """The stop signals that a process was sent, those within ONE_SIGNAL seconds once. Call it in a signal handler."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._last = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> bool:
        """Take a signal; False if it is the last one again."""
        now = time.monotonic()
        if self.numbers and now - self._last < ONE_SIGNAL:
            return False
        self.numbers.append(number)
        self._last = now
        return True


@contextmanager
def block_signals() -> Iterator[None]:
    """Hold stop signals back while the block runs: one that reached a child before its handlers would be lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock_signals() -> None:
    """Release the stop signals held back at the fork: what a child does when its handlers are set."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def fork(body: Callable[[], int]) -> int:
    """Pid of a child that runs `body()`, exits with the code that it returns, and dies with this process.

    `body` calls `unblock_signals` when its handlers of stop signals are set. An exception ends the child with its
    traceback, and with 130 or 143 where it says that a signal stopped it, else with 1.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # the child would write the buffered output a second time
    parent = os.getpid()
    with block_signals():
        pid = os.fork()
        if pid == 0:
            _end_with(body, parent)
    return pid


def _end_with(body: Callable[[], int], parent: int) -> NoReturn:
    code = EXIT_CODES["failed"]
    gc.freeze()  # finalizers of the parent's garbage would act on threads that no fork copies
    try:
        try:
            die_with_parent(parent)
            code = body()
        except BaseException as error:  # the last stop before _exit
            code = exit_code_of(error) or code
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent, process `parent`, dies, whatever the cause (prctl(2))."""
    if _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it died before we asked
        os._exit(128 + signal.SIGKILL)


def exit_on_signals() -> None:
    """Let SIGTERM and SIGINT end this process as exceptions, SystemExit(143) and SystemExit(130).

    Not KeyboardInterrupt: Lightning turns that into exit code 1.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, _exit_on_signal)


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def print_into(log: Path) -> None:
    """Let this process and its children write to the end of a file what they print."""
    log.parent.mkdir(parents=True, exist_ok=True)
    end = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    for stream in (1, 2):
        os.dup2(end, stream)


def adopt_orphans(yes: bool) -> None:
    """Make this process the parent of its descendants' orphans, so that it can reap them (prctl(2))."""
    if _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, int(yes)) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def children() -> set[int]:
    """Pids of this process's children, zombies included."""
    tasks = Path("/proc/self/task")
    while True:  # a thread that ends passes its children to another one: only a look during which none ended saw all
        threads = set(os.listdir(tasks))
        try:
            pids = {int(pid) for thread in threads for pid in (tasks / thread / "children").read_text().split()}
        except (FileNotFoundError, ProcessLookupError):
            continue
        if threads <= set(os.listdir(tasks)):
            return pids


def set_threads(threads: int) -> None:
    """CPU threads of this process, 0 for torch's choice; torch is not imported for it."""
    if threads and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def describe(status: int) -> str:
    """A wait status or a multiprocessing exit code (negative: signal) in words."""
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
