"""The processes below another one, as /proc tells them."""

import os
from pathlib import Path

from lightning_tfm.runs.process.process_id import start_ticks


def offspring(pid: int) -> list[int]:
    """Pids of the children of a process of one thread; none once it is gone."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def runs_of(pool: int) -> set[int]:
    """Pids of its runs that live: each leads a process group."""
    return {pid for pid in offspring(pool) if start_ticks(pid) and _leads_group(pid)}


def _leads_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False


def is_stopped(pid: int) -> bool:
    """By SIGSTOP, and not yet woken."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return False
