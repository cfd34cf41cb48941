"""How products round and whether sums keep their order: flags that torch holds for the whole process.

Training uses the experiment's precision. Scoring always uses that of the weights, so that a model has one perplexity
and one translation, whoever asks: a run at its end, a command later, or a Trainer's own test loop inside autocast.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor
from torch.utils import deterministic

from lightning_tfm.config import Hardware
from lightning_tfm.errors import UserError

Precision = Literal["32-true", "bf16-mixed", "64-true"]
LIGHTNING: dict[str, Precision] = {
    "float32": "32-true",
    "bfloat16": "bf16-mixed",
    "float64": "64-true",
    "tfloat32": "32-true",
}
"""`training.precision` -> what Lightning calls it"""
AMPERE = (8, 0)
"""the first compute capability whose products know TensorFloat-32"""


def uses_gpu(hardware: Hardware) -> bool:
    """Whether a run on `hardware` takes this machine's GPUs."""
    return hardware.accelerator == "gpu" or (hardware.accelerator == "auto" and torch.cuda.device_count() > 0)


def set_flags(precision: str, gpu: bool) -> bool | None:
    """Set torch's flags for a run and return Trainer's `deterministic`: strict on a GPU, where just a warning would
    leave attention's backward to the order of atomic additions. CPUs need nothing.

    Raises UserError where `precision` is one that this device does not have.
    """
    if precision == "tfloat32" and not (gpu and torch.cuda.get_device_capability() >= AMPERE):
        here = f"{torch.cuda.get_device_name()} is older" if gpu else "this run is on a CPU"
        raise UserError(
            f"training.precision=tfloat32 needs an NVIDIA GPU of compute capability 8.0 or later, and {here}: "
            "use float32, which is another experiment"
        )
    torch.set_float32_matmul_precision("high" if precision == "tfloat32" else "highest")
    if gpu:
        # otherwise every new tensor is filled with NaN first
        deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return True if gpu else None


@contextmanager
def of_weights(device: torch.device) -> Iterator[None]:
    """Products in the precision of the weights, whatever the training's."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def any_order() -> Iterator[None]:
    """Let kernels run that add in any order, where each element is added to once: the order cannot be seen there, and
    the deterministic form sorts."""
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


def as_autocast(x: Tensor) -> Tensor:
    """`x` as autocast passes it to a product; `x` itself outside autocast, and where it is not float32."""
    return x.to(lowered_dtype(x))


def lowered_dtype(x: Tensor) -> torch.dtype:
    kind = x.device.type
    if x.dtype is torch.float32 and torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return x.dtype
