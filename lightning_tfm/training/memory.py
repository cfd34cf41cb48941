"""Memory of this process."""

import re
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """The most that was ever resident. Linux; not getrusage's ru_maxrss, which starts at the parent's value."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", STATUS.read_text(), re.MULTILINE)
    assert found is not None, STATUS
    return int(found[1]) * 1024
