"""What the last bits of a sum may depend on besides the program."""

import platform
from pathlib import Path

import torch

from lightning_tfm.runs.environment import cpu_model


def processor() -> str:
    """The CPU's name, family, model and stepping, and the kernels that torch has chosen for it.

    A name alone is not enough: a virtual machine may call every generation of a maker alike.
    """
    wanted, found = ("cpu family", "model", "stepping"), {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key in wanted:
            found.setdefault(key, value)
    numbers = "/".join(found.get(key, "?") for key in wanted)
    return f"{cpu_model()}, {platform.machine()} {numbers}, {torch.backends.cpu.get_cpu_capability()}"
