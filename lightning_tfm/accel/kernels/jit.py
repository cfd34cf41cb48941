"""Python functions as Triton kernels: compiled, or interpreted where TRITON_INTERPRET=1 was set before."""

from collections.abc import Callable
from functools import cache
from typing import Any

import triton


@cache
def kernel(fn: Callable[..., None], varying: tuple[str, ...] = ()) -> Any:
    """`fn` to be launched as kernel(fn)[grid](…).

    Triton recompiles for an integer that is 1, which it makes a Python constant, and for one that sixteen divides;
    not for arguments named in `varying`.
    """
    return triton.jit(fn, do_not_specialize=varying, do_not_specialize_on_alignment=varying)
