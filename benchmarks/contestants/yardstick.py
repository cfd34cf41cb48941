"""Products of 2048 x 2048 float32 matrices: what this machine gives at best, at this moment."""

from pathlib import Path
from typing import Any

import torch

from benchmarks.contestants.protocol import serve

SIZE = 2048
FLOPS = 2 * SIZE**3


def multiply(folder: Path, sizes: dict[str, Any]):
    a, b = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    out = torch.empty(SIZE, SIZE)

    def work(number: int) -> None:
        torch.mm(a, b, out=out)

    return work, {"flops": FLOPS}


if __name__ == "__main__":
    serve({"train": multiply, "decode": multiply})
