"""Python functions as Triton kernels: compiled, or interpreted where TRITON_INTERPRET=1 was set before."""

from collections.abc import Callable
from functools import cache
from typing import Any

import triton


@cache
def kernel(fn: Callable[..., None]) -> Any:
    """`fn` to be launched as kernel(fn)[grid](…)."""
    return triton.jit(fn)
