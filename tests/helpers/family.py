"""The processes below another one, as /proc tells them."""

import os
from pathlib import Path


def offspring(pid: int) -> list[int]:
    """Pids of the children of a process of one thread; none once it is gone."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def leads_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False
