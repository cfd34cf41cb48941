"""A scheduling group of our own. Imports nothing heavy: what comes after it runs at the new priority."""

import os
import sys
from pathlib import Path

MARK = "BENCHMARKS_APART"


def stand_apart(nice: int) -> None:
    """Go on in a session of our own whose scheduling group has priority `nice`, where the system has such groups.

    On a shared machine sessions compete as wholes, so that the niceness of a process counts for nothing.
    """
    group = Path("/proc/self/autogroup")
    if os.environ.get(MARK) or not group.exists():
        return
    os.environ[MARK] = "1"
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.setsid()
    try:
        group.write_text(str(nice))
    except OSError as error:  # not root: measured at the usual priority
        print(f"no priority of our own: {error}", file=sys.stderr)
