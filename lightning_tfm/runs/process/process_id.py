"""Who holds a run: a process that can be recognised, and found dead, without asking it."""

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class ProcessId:
    """A process, unmistakable even if its pid is reused."""

    host: str
    pid: int
    boot: str
    """boot id of the machine and pid namespace: pids mean the same only where both are equal"""
    start: int
    """clock ticks from boot to the start of the process"""

    def gone(self) -> bool:
        """True if the process is known to be dead. False also where it cannot be known: another machine."""
        return (self.host, self.boot) == _place() and start_ticks(self.pid) != self.start

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> ProcessId:
    """The calling process."""
    host, boot = _place()
    pid = os.getpid()
    start = start_ticks(pid)
    assert start is not None, "the calling process exists"
    return ProcessId(host, pid, boot, start)


def start_ticks(pid: int) -> int | None:
    """Start of a live process in clock ticks since boot (proc(5), field 22); None if it is dead or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *rest = text.rpartition(")")[2].split()  # the name before may hold blanks and brackets
    return None if state in "ZX" else int(rest[18])


@cache
def _place() -> tuple[str, str]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return socket.gethostname(), f"{boot} {os.readlink('/proc/self/ns/pid')}"
