"""What a process keeps: CPU threads, and what they do while they wait; freed memory. Nothing here imports torch."""

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_tfm.errors import NotHere, UserError

if TYPE_CHECKING:  # the command line imports this before it knows the verb
    from lightning_tfm.config import Hardware

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""variables by which a user says how OpenMP's threads wait"""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT = 1 << 30
"""bytes"""
FAR = 8
"""this many threads, or processes, per core of the machine are a slip, not an intention"""


def set_idle_policy() -> None:
    """Let OpenMP's threads sleep at once when they wait, if others use the machine: call it before torch is imported.

    By default they spin for some milliseconds, which is fastest on an idle machine. If another program takes
    one of the cores, the others then spin while the one that they wait for is queued behind them
    (benchmarks/results/busy.txt). What a user has set stays.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in WAITING) and cores_busy():
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"


def cores_busy() -> bool:
    """Whether tasks other than this one are on the cores now, at each of three looks; True if that cannot be seen."""
    try:
        return all(_runnable(pause) > 1 for pause in (0.0, 0.002, 0.003))
    except (OSError, ValueError, IndexError):
        return True


def _runnable(pause: float) -> int:
    """Tasks of the machine that run or could run, including this one, after a pause in seconds."""
    time.sleep(pause)
    tasks = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    if tasks < 1:  # this task runs: sandboxes that make the file up say 0
        raise ValueError(f"/proc/loadavg: {tasks} tasks run")
    return tasks


def waiting() -> str:
    """How OpenMP's threads wait, in words."""
    variables = [f"{name}={os.environ[name]}" for name in WAITING if name in os.environ]
    return "asleep at once" if variables == ["OMP_WAIT_POLICY=PASSIVE"] else ", ".join(variables) or "they spin"


def threads_of(hardware: "Hardware") -> int:
    """CPU threads of each process as the user wants them: trainer.threads, else OMP_NUM_THREADS; 0: not set.

    Raises UserError if OMP_NUM_THREADS is not a number.
    """
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # a list is for nested parallelism
    if hardware.threads or not text:
        return hardware.threads
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"OMP_NUM_THREADS={text!r} in the environment: expected a number of threads, at least 1")
    return int(text)


def check_cores(hardware: "Hardware", workers: int = 1) -> None:
    """Raise NotHere where threads, processes of a run on CPUs, or workers are far beyond this machine's cores."""
    cores = os.cpu_count() or 1
    for name, count in (("--workers", workers), ("trainer.devices", hardware.devices)):
        if count > FAR * cores:
            raise NotHere(
                f"{name}={count}: this machine has {cores} cores: so many processes only take turns and fill the "
                f"memory; give at most {FAR * cores}"
                + (", or 0 for one on each core or GPU" if name == "--workers" else "")
            )
    threads = threads_of(hardware)
    if threads > FAR * cores:
        name = "trainer.threads" if hardware.threads else "OMP_NUM_THREADS"
        raise NotHere(
            f"{name}={threads}: this machine has {cores} cores: threads beyond them only wait for each other; "
            f"give at most {FAR * cores}, or remove it"
        )


def keep_freed_memory() -> None:
    """Let glibc keep freed memory up to a gigabyte for reuse: otherwise every step asks the kernel for it again.

    Measured on two cores: 20,000 page faults a step of the benchmarks' small configuration without it, 600 with it.
    Does nothing where the C library has no mallopt(3).
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT)
