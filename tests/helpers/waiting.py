"""Waiting for other processes in tests."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(
    condition: Callable[[], T], seconds: float = 60.0, what: str | Callable[[], str] = "", pause: float = 0.01
) -> T:
    """Call `condition` every `pause` seconds until it returns something true, and return that.

    Fails after `seconds`, in the words of `what`, which is asked only then if it is a function (of a log, say).
    """
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds:g} s in vain: {what() if callable(what) else what}")
        time.sleep(pause)
    return found
