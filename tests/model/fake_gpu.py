"""A GPU for Triton's runtime that computes nothing: a launch goes its real way, and is refused where CUDA refuses it.

Everything before the device is real: specialisation of arguments (1s, multiples of 16, aligned pointers), the compiler
down to the wheel's ptxas, its caches, the limits of a block. Tensors lie on the CPU and keep what was in them. So it
proves launches, not numbers: those are the interpreter's (interpreted.py) and a real device's (`benchmarks gpu`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

SHARED = {80: 166_912, 90: 232_448}
"""compute capability -> bytes of shared memory that one block may ask for"""
GRID, THREADS = (2**31 - 1, 65_535, 65_535), 1024
"""programs along x, y and z; threads of a block"""
DTYPES = {
    "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64,
    "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
}  # fmt: skip


@dataclass
class FakeGPU(DriverBase):
    """Of one compute capability, which is its device number as well: kernels of two cards are cached apart."""

    capability: int
    launches: list[tuple[str, tuple[int, int, int]]] = field(default_factory=list)
    """name and grid of each"""
    compiled: list[str] = field(default_factory=list)
    """name of every variant that was loaded"""

    def __post_init__(self) -> None:
        self.utils = self

    def launcher_cls(self, src: Any, metadata: Any) -> Callable[..., None]:
        def launch(
            x: int, y: int, z: int, stream: int, function: str, packed: Any, about: Any, enter: Any, leave: Any,
            *args: Any,
        ) -> None:  # fmt: skip
            refuse_grid((x, y, z))
            for number, (value, kind) in enumerate(zip(args, src.signature.values(), strict=True)):
                name = src.fn.arg_names[number]
                if kind == "constexpr":
                    assert src.constants[(number,)] == value, f"{name} was compiled as {src.constants[(number,)]}"
                else:
                    refuse_argument(name, value, kind, src.attrs.get((number,), ()))
            triton.runtime.driver.active.launches.append((src.fn.__name__, (x, y, z)))  # kernels outlive their driver

        return launch

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": SHARED[device]}

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[str, str, int, int, int]:
        """(module, function, registers, spills, threads at most)."""
        assert binary.startswith(b"\x7fELF"), "not a cubin"
        self.compiled.append(name)
        return name, name, 32, 0, THREADS

    def get_current_device(self) -> int:
        return self.capability

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        raise NotImplementedError


def refuse_grid(grid: tuple[int, int, int]) -> None:
    """As cuLaunchKernelEx does, and where their product wraps: Triton's launcher, in C, then launches nothing."""
    if any(count > most for count, most in zip(grid, GRID, strict=True)):
        raise RuntimeError(f"Triton Error [CUDA]: invalid argument: a grid of {grid}")
    if prod(grid) >= 2**31:
        raise RuntimeError(f"a grid of {grid} would not be launched: its programs overflow Triton's launcher")


def refuse_argument(name: str, value: Any, kind: str, promises: Any) -> None:
    if kind.startswith("*"):
        if not isinstance(value, Tensor) or value.dtype is not DTYPES[kind[1:]]:
            raise TypeError(f"{name} was compiled as {kind}, and is {getattr(value, 'dtype', value)}")
        number = value.data_ptr()
    elif kind.startswith("fp"):
        if not isinstance(value, (float, int)):
            raise TypeError(f"{name} was compiled as {kind}, and is {value!r}")
        return
    else:
        bits = int(kind[1:])
        if not isinstance(value, int) or not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise OverflowError(f"{name} was compiled as {kind}, and is {value!r}")
        number = value
    if ["tt.divisibility", 16] in list(promises) and number % 16:
        raise RuntimeError(f"Triton Error [CUDA]: misaligned address: {name} was compiled for multiples of 16")


@contextmanager
def fake_gpu(capability: int, cache: Path) -> Iterator[FakeGPU]:
    """Triton's active driver meanwhile, compiling afresh into `cache`."""
    config, gpu = triton.runtime.driver, FakeGPU(capability)
    before = config._active
    config.set_active(gpu)
    try:
        with triton.knobs.cache.scope():
            triton.knobs.cache.dir = str(cache)
            yield gpu
    finally:
        config._active = before
