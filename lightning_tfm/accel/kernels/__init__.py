"""Kernels for GPUs, written in Triton, each beside its formula.

One file holds one kernel, the formula in torch or NumPy that it must equal, and the function that launches it; a test
holds the two equal in Triton's interpreter (tests/model/test_kernels.py), which runs on any CPU under
TRITON_INTERPRET=1. An interpreter shows no races, and says nothing of speed: until `python -m benchmarks gpu` has
compared a kernel with its formula on a device, it is taken only where it is asked for. Masks are compared as every
training starts.

Its other files import Triton, so others import them where they call them: a CPU never pays for it.
"""

import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch


@cache
def kernel(fn: Callable[..., None], varying: tuple[str, ...] = ()) -> Any:
    """`fn` to be launched as kernel(fn)[grid](…), compiled, or interpreted where TRITON_INTERPRET=1 was set before.

    Triton recompiles for an integer that is 1, which it makes a Python constant, and for one that sixteen divides;
    not for arguments named in `varying`.
    """
    import triton

    return triton.jit(fn, do_not_specialize=varying, do_not_specialize_on_alignment=varying)


def has_triton() -> bool:
    return find_spec("triton") is not None


def runs_on(device: torch.device) -> bool:
    """Whether kernels run there: a GPU beside Triton, or whatever is left of one in Triton's interpreter."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return has_triton() and (device.type == "cuda" or (interpreted and device.type == "cpu"))
