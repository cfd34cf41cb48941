"""The processes of one distributed run on this machine, and their common end."""

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import FrameType

from lightning_tfm.study.processes import STOP_SIGNALS, RunFailed, describe, die_with_parent, set_threads

PATIENCE = 10.0
"""seconds between SIGTERM and SIGKILL for the ranks that outlive the first death"""


def fork_ranks(fn: Callable[[], None], world: int, threads: int, spawn: bool = False) -> None:
    """Run `fn()` in `world` processes with torchrun's environment variables, and wait for all of them.

    Forked, from a process that has not computed yet; `spawn=True` starts them afresh (GPUs), `fn` has to be picklable
    then. A rank that dies takes the others down within 2 * PATIENCE seconds and RunFailed names it. SIGINT and SIGTERM
    are passed to all ranks; when they end with 130 or 143, so does this call, by SystemExit.
    """
    context = multiprocessing.get_context("spawn" if spawn else "fork")
    with _free_port() as port:
        common = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
        common["MASTER_PORT"] = str(port.getsockname()[1])
        ranks: list[BaseProcess] = []
        stop: list[int] = []

        def pass_on(number: int, frame: FrameType | None) -> None:
            stop.append(number)
            _signal_all(ranks, number)

        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        handlers = {number: signal.signal(number, pass_on) for number in STOP_SIGNALS}
        try:
            for rank in range(world):
                environment = common | {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"}
                arguments = (fn, environment, threads, os.getpid())
                process = context.Process(target=_rank, args=arguments, name=f"rank {rank}")
                process.start()
                ranks.append(process)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            _supervise(ranks, stop)
        finally:
            _end(ranks)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _supervise(ranks: list[BaseProcess], stop: list[int]) -> None:
    """Wait for all; at the first death end the others and raise."""
    alive = list(ranks)
    while alive:
        wait([process.sentinel for process in alive], timeout=1.0)
        dead = [process for process in alive if process.exitcode is not None]
        alive = [process for process in alive if process.exitcode is None]
        bad = [process for process in dead if process.exitcode != 0]
        if bad and stop:
            _end(alive)
            raise SystemExit(128 + stop[0])
        if bad:
            first = bad[0]
            _end(alive)
            others = f"; the other {len(ranks) - 1} were stopped" if len(ranks) > 1 else ""
            raise RunFailed("failed", f"{first.name} of {len(ranks)}: {describe(first.exitcode)}{others}")


def _end(ranks: list[BaseProcess]) -> None:
    """SIGTERM, then SIGKILL, and collect the processes."""
    _signal_all(ranks, signal.SIGTERM)
    end = time.monotonic() + PATIENCE
    for process in ranks:
        process.join(max(0.0, end - time.monotonic()))
    _signal_all(ranks, signal.SIGKILL)
    for process in ranks:
        process.join()


def _signal_all(ranks: list[BaseProcess], number: int) -> None:
    for process in ranks:
        if process.exitcode is None and process.pid is not None:
            os.kill(process.pid, number)  # not collected yet, so the pid is still ours


def _rank(fn: Callable[[], None], environment: dict[str, str], threads: int, parent: int) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGTERM, _exit_on_signal)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    os.environ.update(environment)
    set_threads(threads)
    fn()


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _free_port() -> socket.socket:
    """A bound socket that never listens: it keeps its port out of the hands of others, and rank 0 may listen on it."""
    port = socket.socket()
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.bind(("127.0.0.1", 0))
    return port
