"""The processes of one distributed run on this machine, and their common end."""

import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess
from types import FrameType

from lightning_tfm.runs.folder import StaleAttempt
from lightning_tfm.runs.outcome import Ending, RunFailed, exit_code_of_body
from lightning_tfm.runs.process.forking import (
    STOP_SIGNALS,
    StopSignals,
    block_signals,
    describe,
    die_with_parent,
    exit_on_signals,
    set_threads,
    unblock_signals,
)

PATIENCE = 10.0
"""seconds between SIGTERM and SIGKILL for the ranks that outlive the first death"""
STOP_PATIENCE = 60.0
"""seconds that ranks get for a checkpoint after a stop signal"""


@dataclass(frozen=True)
class _Rank:
    process: BaseProcess
    last_words: Connection


def fork_ranks(fn: Callable[[], None], world: int, threads: int, spawn: bool = False) -> None:
    """Run `fn()` in `world` processes with torchrun's environment variables, and wait for all of them.

    Forked, from a process that has not computed yet; `spawn=True` starts fresh ones (GPUs) with a picklable `fn`.
    A rank that dies takes the others down within PATIENCE seconds, and RunFailed names it with the outcome and
    the reason that it left (StaleAttempt if that was it). SIGINT and SIGTERM are passed to all ranks, which get
    STOP_PATIENCE seconds for their checkpoint; then SystemExit(130 or 143) is raised. A second signal kills them.
    """
    context: SpawnContext | ForkContext = (
        multiprocessing.get_context("spawn") if spawn else multiprocessing.get_context("fork")
    )
    with _free_port() as port:
        common = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
        common |= {"MASTER_PORT": str(port.getsockname()[1]), "GROUP_RANK": "0"}
        ranks: list[_Rank] = []
        stop = StopSignals()

        def pass_on(number: int, frame: FrameType | None) -> None:
            if stop(number, frame):
                _signal_all(ranks, signal.SIGKILL if len(stop.numbers) > 1 else number)

        handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        try:
            with block_signals():
                for number in STOP_SIGNALS:
                    signal.signal(number, pass_on)
                for rank in range(world):
                    environment = common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                    ours, theirs = context.Pipe(duplex=False)
                    arguments = (fn, environment, threads, os.getpid(), theirs)
                    process = context.Process(target=_rank, args=arguments, name=f"rank {rank} of {world}")
                    process.start()
                    theirs.close()
                    ranks.append(_Rank(process, ours))
            _supervise(ranks, stop.numbers)
        finally:
            _end(ranks)
            for ended in ranks:
                ended.last_words.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)


INTERRUPTED = tuple(128 + number for number in STOP_SIGNALS)


def _supervise(ranks: list[_Rank], stop: list[int]) -> None:
    """Wait for all; at the first unexpected death end the others and raise."""
    alive = list(ranks)
    until: float | None = None
    while alive:
        wait([rank.process.sentinel for rank in alive], timeout=0.2)
        codes = [(rank, rank.process.exitcode) for rank in alive]  # checked once: they may die during the check
        alive = [rank for rank, code in codes if code is None]
        if stop:
            until = until or time.monotonic() + STOP_PATIENCE
            if time.monotonic() > until:
                break
            continue
        bad = [(rank, code) for rank, code in codes if code]
        if bad:
            # of several, the one killed by a signal came first: the others noticed that their peer was gone
            first, code = min(bad, key=lambda pair: pair[1])
            _end(alive)
            if code in INTERRUPTED:  # the signal went to a rank, and all agreed on a checkpoint
                raise SystemExit(code)
            raise _failure(first, code, len(ranks) - 1)
    if stop:
        raise SystemExit(128 + stop[0])


def _failure(first: _Rank, code: int, others: int) -> Exception:
    outcome, reason, step = "failed", describe(code), None
    if first.last_words.poll():
        try:
            outcome, reason, step = first.last_words.recv()
        except EOFError:  # it died without leaving a reason
            pass
    if outcome == "stale":
        return StaleAttempt(reason)
    if outcome == "pruned":
        return RunFailed(outcome, reason, step)
    return RunFailed(
        outcome, f"{first.process.name}: {reason}" + f"; the other {others} were stopped" * bool(others), step
    )


def _end(ranks: list[_Rank]) -> None:
    """SIGTERM, then SIGKILL, and collect the processes."""
    _signal_all(ranks, signal.SIGTERM)
    end = time.monotonic() + PATIENCE
    for rank in ranks:
        rank.process.join(max(0.0, end - time.monotonic()))
    _signal_all(ranks, signal.SIGKILL)
    for rank in ranks:
        rank.process.join()


def _signal_all(ranks: list[_Rank], number: int) -> None:
    for rank in ranks:
        if rank.process.exitcode is None and rank.process.pid is not None:
            os.kill(rank.process.pid, number)  # not collected yet, so the pid is still ours


def _rank(fn: Callable[[], None], environment: dict[str, str], threads: int, parent: int, words: Connection) -> None:
    die_with_parent(parent)
    exit_on_signals()
    unblock_signals()
    os.environ.update(environment)

    def tell(ending: Ending) -> None:
        if ending.outcome == "pruned":
            print(f"rank {environment['RANK']}: {ending.message}", file=sys.stderr)
        if ending.outcome != "interrupted":
            words.send((ending.outcome, ending.reason, ending.step))

    set_threads(threads)
    sys.exit(exit_code_of_body(fn, tell))


def _free_port() -> socket.socket:
    """A bound socket that never listens: it keeps its port out of the hands of others, and rank 0 may listen on it."""
    port = socket.socket()
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.bind(("127.0.0.1", 0))
    return port
