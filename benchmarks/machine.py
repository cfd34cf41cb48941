"""Where a benchmark was run."""

import os
import platform
from dataclasses import asdict
from datetime import date
from typing import Any

import numpy as np
import scipy

from lightning_tfm.runs.environment import cpu_model, git_state, versions


def facts(threads: int) -> dict[str, Any]:
    """Machine, versions and commit, for the result file."""
    git = git_state()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "memory_GiB": round(memory, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load": os.getloadavg()[0],
        "versions": versions(),
        "git": git and asdict(git),
    }


def of_today() -> str:
    """When and with what, for the head of a simulation's text."""
    versions = f"python {platform.python_version()}, numpy {np.__version__}, scipy {scipy.__version__}"
    return f"{date.today()}; {versions}; {platform.machine()}, one thread"
