"""What a step of the paper's base would take on one H100, by counting: an estimate, no measurement.

    python -m benchmarks.gpu.estimate

One training step runs on fake tensors, which have shapes and no numbers, under autocast to bfloat16. Every operation
is taken to last as long as its products at 0.8 of the published 989 TFLOP/s, or as its bytes at 0.9 of 3.35 TB/s,
whichever is longer, and two microseconds at least. Kernels of ours are not run: their tensors pass once. Not in it:
waiting between kernels, attention's own inefficiency on short rows, and whatever a device does otherwise than on paper.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lightning_tfm.accel import choose
from lightning_tfm.config import Experiment, Hardware, Model, Training
from lightning_tfm.data.batch import Batch, make_batch
from lightning_tfm.model.transformer import Noise
from lightning_tfm.training.module import TransformerModule

PRODUCTS, BYTES, LEAST, LAUNCH = 0.8 * 989e12, 0.9 * 3.35e12, 2e-6, 5e-6
"""FLOP/s, bytes/s, seconds of the shortest kernel, seconds of one host thread to launch it"""
MASK_INSTRUCTIONS, INSTRUCTIONS = 27, 0.5 * 132 * 128 * 1.755e9
"""of a mask's element (tests/regression/kernels.json), and a second, at half of the card's rate"""


@dataclass
class Count:
    """Kernels, seconds of products and of everything else."""

    kernels: int = 0
    products: float = 0.0
    rest: float = 0.0
    casts: int = 0
    cast_bytes: int = 0
    by_kind: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, flops: float, size: int) -> None:
        seconds = max(flops / PRODUCTS, size / BYTES, LEAST)
        self.kernels += 1
        if flops:
            self.products += seconds
        else:
            self.rest += seconds
        self.by_kind[name] = self.by_kind.get(name, 0.0) + seconds

    @property
    def seconds(self) -> float:
        return self.products + self.rest


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def flops_of(name: str, args: tuple[Any, ...]) -> float:
    found = [arg for arg in args if isinstance(arg, Tensor)]
    if name in ("mm", "bmm"):
        return 2.0 * found[0].numel() * found[1].shape[-1]
    if name == "addmm":
        return 2.0 * found[1].numel() * found[2].shape[-1]
    if "dot_product" in name:
        backward = "backward" in name
        q, k, v = found[backward : backward + 3]
        rows = q.shape[:-1].numel() * k.shape[-2]
        return 2.0 * rows * (q.shape[-1] + v.shape[-1]) * (2.5 if backward else 1)
    return 0.0


class Counting(TorchDispatchMode):
    """Counts what is computed; views and empty tensors are nothing."""

    def __init__(self, weights: set[int]):
        super().__init__()
        self.count, self.weights = Count(), weights

    def __torch_dispatch__(self, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = f(*args, **(kwargs or {}))
        name = f.overloadpacket.__name__
        views = [r.alias_info is not None and not r.alias_info.is_write for r in f._schema.returns]
        if f.namespace != "aten" or any(views) or name.startswith(("empty", "new_empty", "_unsafe_view", "detach")):
            return out
        read = tensors((args, kwargs))
        written = [a for a, s in zip(args, f._schema.arguments, strict=False) if s.alias_info and s.alias_info.is_write]
        size = sum(t.nbytes for t in (*read, *tensors(written if f._schema.is_mutable else out)))
        if name == "addcmul" and args[1].dtype is not args[0].dtype:  # CUDA's autocast promotes it, by a kernel
            self.count.add("_to_copy", 0.0, args[1].nbytes + args[0].nbytes)
            size += args[0].nbytes - args[1].nbytes
        if name == "native_layer_norm_backward":  # on CUDA gain's and shift's are a kernel of their own
            size += 2 * read[0].nbytes
        self.count.add(name, flops_of(name, args), size)
        if name == "_to_copy" and id(args[0]) in self.weights:
            self.count.casts, self.count.cast_bytes = self.count.casts + 1, self.count.cast_bytes + size
        return out


class Launch:
    """In place of a Triton kernel: its tensors pass once."""

    def __init__(self, count: Count, fn: Callable[..., None]):
        self.count, self.name = count, f"{fn.__module__.rsplit('.', 1)[-1]} {fn.__name__}"

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launched(*args: Any, **how: Any) -> None:
            again = args[0].nbytes if self.name.startswith("loss") else 0  # logits are read, and written as gradient
            self.count.add(self.name, 0.0, sum(t.nbytes for t in tensors(args)) + again)

        return launched


@contextmanager
def counted_launches(count: Count) -> Iterator[None]:
    from lightning_tfm.accel.kernels import loss

    def instead(fn: Callable[..., None]) -> Launch:
        return Launch(count, fn)

    with patch.object(loss, "kernel", instead):
        yield


def a_step(tokens: int, length: int) -> Batch:
    """One that the plan makes of millions of sentences: targets of one length, sources of nearly one."""
    count = tokens // length
    sides = [np.full(length - 1 - i % 2, 5) for i in range(count)], [np.full(length - 1, 5) for _ in range(count)]
    return make_batch(*sides, np.arange(count))


def step(model: Model, V: int, batch: Batch, wanted: str) -> tuple[Count, Count, int]:
    """(forward and backward, optimiser, elements of masks). `wanted`: none, all."""
    e = Experiment(model=model, training=Training(precision="bfloat16"))
    backend = choose.backend(Hardware(kernels=wanted), "bfloat16", torch.device("cpu"))
    module = TransformerModule(e, V, backend).train()
    mode = FakeTensorMode()
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = nn.Parameter(mode.from_tensor(parameter.detach()))
    c, (B, S), T = model, batch.source_BS.shape, batch.target_in_BT.shape[1]
    with mode:
        noise = Noise(torch.empty(1 + 2 * c.N, B, S, c.d_model), torch.empty(1 + 3 * c.N, B, T, c.d_model))
        for name in ("source_BS", "target_in_BT", "target_out_BT", "allowed", "rows_N"):
            value = getattr(batch, name)
            setattr(batch, name, None if value is None else mode.from_tensor(value))
        optimizer = torch.optim.Adam(module.parameters(), lr=1e-3, fused=True)
        counting = Counting({id(p) for p in module.parameters()})
        with counted_launches(counting.count), counting, torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            loss, _ = module.batch_loss(batch, noise)
            loss.backward()
        optimizer.step()  # the first one makes Adam's moments
        after = Counting(set())
        with after:
            optimizer.step()
    return counting.count, after.count, noise.source.numel() + noise.target.numel()


def masks(elements: int) -> float:
    """Seconds to draw them, as float32."""
    return max(4 * elements / BYTES, MASK_INSTRUCTIONS * elements / INSTRUCTIONS)


def main() -> None:
    os.environ["TRITON_INTERPRET"] = "1"  # kernels are taken for what could run here; none is run
    base = Model(), 37_000, 25_000, 30
    small = Model(N=3, d_model=64, d_ff=256, h=8, d_k=8, d_v=8), 800, 4_000, 12
    for name, (model, V, tokens, length) in (("base", base), ("miniature's base", small)):
        print(f"{name}, {tokens} + {tokens} tokens a step, bfloat16, one H100: ESTIMATES by counting")
        for wanted, what in (("none", "torch's formulas"), ("all", "loss by its kernel")):
            count, optimizer, elements = step(model, V, a_step(tokens, length), wanted)
            whole = count.seconds + optimizer.seconds + masks(elements)
            kernels = count.kernels + optimizer.kernels + 2
            rate = tokens / max(whole, LAUNCH * kernels)
            print(
                f"  {what}: {1e3 * whole:.1f} ms = {1e3 * count.products:.1f} products + {1e3 * count.rest:.1f} other "
                f"+ {1e3 * optimizer.seconds:.1f} optimizer + {1e3 * masks(elements):.1f} masks; {kernels} kernels, "
                f"{1e3 * LAUNCH * kernels:.1f} ms to launch; {round(rate, -3):,.0f} target tokens a second"
            )
            shares = sorted(count.by_kind.items(), key=lambda pair: -pair[1])[:6]
            print("    " + ", ".join(f"{kind} {1e3 * seconds:.1f}" for kind, seconds in shares))
            if wanted == "all":
                casts = max(count.cast_bytes / BYTES, count.casts * LEAST)
                size = f"{count.casts} kernels, {count.cast_bytes / 1e6:.0f} MB"
                print(f"    weights cast to bfloat16: {size}, {1e3 * casts:.2f} ms")


if __name__ == "__main__":
    main()
