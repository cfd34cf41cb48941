"""How much of a machine's memory training takes, by formula, before anything is allocated."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.model.size import count_parameters

KEPT = {"adam": 2, "adamw": 2, "muon": 1}
"""optimiser -> numbers that it keeps for each parameter, at least; unknown for a user-defined class"""
LENGTH = 30
"""tokens of a sentence, for the weights of attention"""


@dataclass(frozen=True)
class Needed:
    """Bytes that training takes at float32."""

    parameters: int
    """how many there are"""
    weights: int
    """with their gradients"""
    optimizer: int
    activations: int
    """of one micro-batch, the logits and their gradients among them; right to a factor of about two"""

    @property
    def total(self) -> int:
        return self.weights + self.optimizer + self.activations


def installed() -> int:
    """Bytes of memory in this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Bytes that processes may still take without swapping."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else installed()


def needed(exact: Experiment, V: int, hardware: Hardware) -> Needed:
    """What one process takes, of an experiment at its true sizes. Raises UserError for a user-defined class."""
    m, t = exact.model, exact.training
    numbers = count_parameters(m, V)["total"]
    tokens = -(-t.tokens // (hardware.devices * hardware.num_nodes))
    tokens = min(tokens, hardware.micro_tokens or tokens)
    attention = 3 * m.d_model + 2 * m.h * (m.d_k + m.d_v) + 2 * m.h * LENGTH
    encoder = attention + 3 * m.d_model + 2 * m.d_ff
    floats = m.N * (encoder + encoder + (0 if m.one_stack else attention)) + 3 * V
    return Needed(numbers, 8 * numbers, 4 * KEPT.get(t.optimizer, 0) * numbers, 4 * tokens * floats)


def check_memory(experiment: Experiment, row: str) -> None:
    """Raise UserError for weights and gradients that this machine cannot hold, where parameters can be counted."""
    exact = experiment.scaled(row)
    _check(exact, exact.data.vocab_size, Hardware(), row, optimizer=False)


def check_on_cpu(exact: Experiment, V: int, hardware: Hardware, row: str) -> str:
    """A warning where the free memory here may not be enough for training on CPUs; else empty.

    Raises UserError where not even weights, gradients and what the optimiser keeps fit into the machine.
    """
    processes = hardware.devices
    found = _check(exact, V, hardware, row, optimizer=True)
    if found is None or processes * found.total <= free():
        return ""
    each = f" in each of {processes} processes" if processes > 1 else ""
    return (
        f"{row}: {found.parameters:,} parameters take about {gib(found.weights)} with their gradients, "
        f"{gib(found.optimizer)} in the optimiser and {gib(found.activations)} for a micro-batch{each}; "
        f"{gib(free())} of memory are free: if it ends with out_of_memory, give a smaller --trainer.micro_tokens"
    )


def _check(exact: Experiment, V: int, hardware: Hardware, row: str, optimizer: bool) -> Needed | None:
    try:
        found = needed(exact, V, hardware)
    except UserError:  # a user-defined class
        return None
    least = hardware.devices * (found.weights + optimizer * found.optimizer)
    if least <= installed():
        return found
    what = "weights, gradients and optimiser" if optimizer and found.optimizer else "weights and gradients"
    raise UserError(
        f"{row}: a model of {found.parameters:,} parameters takes {gib(least)} for its {what}; this machine has "
        f"{gib(installed())} of memory"
    )


def gib(count: int) -> str:
    """Bytes in words."""
    return f"{count / 2**30:,.0f} GiB" if count >= 10 * 2**30 else f"{count / 2**30:.1f} GiB"
