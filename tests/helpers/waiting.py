"""Waiting for other processes in tests, a clock that is driven, and ports on which they listen."""

import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def wait_for(
    condition: Callable[[], T], seconds: float = 240.0, what: str | Callable[[], str] = "", pause: float = 0.01
) -> T:
    """Call `condition` every `pause` seconds until it returns something true, and return that.

    Fails after `seconds`, which cost nothing where it comes, in the words of `what`, which is asked only then if it is
    a function (of a log, say).
    """
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds:g} s in vain: {what() if callable(what) else what}")
        time.sleep(pause)
    return found


class Hurried:
    """The module `time`, by whose clock an hour passes with every question `while_so`."""

    def __init__(self, while_so: Callable[[], bool]) -> None:
        self.while_so, self.ahead = while_so, 0.0

    def monotonic(self) -> float:
        self.ahead += 3600.0 * self.while_so()
        return time.monotonic() + self.ahead

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)


def free_ports(count: int) -> list[int]:
    """Ports for servers that are given one; below those that the kernel gives away, so that nobody takes them first."""
    ports: set[int] = set()
    while len(ports) < count:
        with socket.socket() as free, suppress(OSError):
            free.bind(("", random.SystemRandom().randrange(12_000, 32_000)))
            ports.add(free.getsockname()[1])
    return list(ports)
