"""What the kernels of a training step take on one H100, by counting: an estimate, no measurement.

    python -m benchmarks.gpu.estimate

A step runs on fake tensors, which have shapes and no numbers, under autocast to bfloat16. Every operation is taken to
last as long as its products or as its bytes, whichever is longer, and two microseconds at least. Kernels of ours are
not run: their tensors pass once. Nothing is fitted to a step: the rates are those of products and copies by themselves,
and of a publication (below). A step is the mean of batches at five places of the benchmark's plan, from its shortest
sentences to its longest. Not in it: waiting between kernels, and the host that launches them.

tests/gpu/test_estimate.py holds it against the two steps whose kernels were summed on the device: it says 37.8 ms for
43, and 63.5 for 70, an eighth to a tenth too little.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.gpu.setting import News
from lightning_tfm.accel import select
from lightning_tfm.config import Experiment, Hardware, Model, Training
from lightning_tfm.data.batch import Batch, make_batch
from lightning_tfm.data.plan import Plan
from lightning_tfm.training.module import TransformerModule

PRODUCTS, BYTES = 640e12, 2953e9
"""FLOP/s of bfloat16 and bytes/s, both measured on an H100 80GB HBM3 (`benchmarks gpu --stages ceilings`): base's
largest products, its two gradients of logits, for in smaller ones the clock saw the host as well; a copy of a GiB"""
ATTENTION, TILE = 0.35 * 989e12, 128
"""FLOP/s of whole tiles of queries and of keys: FlashAttention 2 reaches 35 % of an H100 (Shah et al. 2024,
arXiv 2407.08608); its tiles at heads of 64 are 128 x 128, however short a sentence"""
LEAST, LAUNCH = 2e-6, 7.4e-6
"""seconds of the shortest kernel, assumed; of one launch from Python, measured there"""
MASK_INSTRUCTIONS, INSTRUCTIONS = 27, 0.5 * 132 * 128 * 1.755e9
"""of a mask's element (tests/regression/kernels.json), and a second, at half of the card's rate, assumed"""
PLACES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""of the batches of an epoch, sorted by length: those that are counted"""
ON_DEVICE = ("source_BS", "target_in_BT", "target_out_BT", "allowed", "rows_N")
"""fields of a batch that a step reads there"""


@dataclass
class Count:
    """Kernels and their seconds: of products, and of all."""

    kernels: float = 0
    products: float = 0.0
    seconds: float = 0.0
    casts: float = 0
    cast_bytes: float = 0
    by_kind: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, flops: float, size: int) -> None:
        """A kernel of so many FLOPs that reads and writes `size` bytes."""
        rate = ATTENTION if "dot_product" in name else PRODUCTS
        self.take(name, max(flops / rate, size / BYTES, LEAST))
        if name in ("mm", "bmm", "addmm"):
            self.products += max(flops / rate, size / BYTES)

    def take(self, name: str, seconds: float) -> None:
        self.kernels += 1
        self.seconds += seconds
        self.by_kind[name] = self.by_kind.get(name, 0.0) + seconds

    def mean(self, steps: int) -> "Count":
        kinds = {name: seconds / steps for name, seconds in self.by_kind.items()}
        numbers = (self.kernels, self.products, self.seconds, self.casts, self.cast_bytes)
        return Count(*(number / steps for number in numbers), by_kind=kinds)


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
        tiles = q.shape[:-2].numel() * -(-q.shape[-2] // TILE) * -(-k.shape[-2] // TILE)
        return 2.0 * tiles * TILE**2 * (q.shape[-1] + v.shape[-1]) * (2.5 if backward else 1)
    return 0.0


def flash_sums(q: Tensor) -> int:
    """Bytes of the float32 gradient of the queries in whole tiles that FlashAttention's deterministic backward clears,
    adds to, and converts (its flash_api.cpp: dq_accum); where no mask is given, torch takes it."""
    B, h, T, K = q.shape
    return 4 * (4 * B * h * -(-T // TILE) * TILE * K)


class Counting(TorchDispatchMode):
    """Counts what is computed; views and empty tensors are nothing."""

    def __init__(self, count: Count, weights: set[int], name: str = ""):
        """`name` in place of the operations' own."""
        super().__init__()
        self.count, self.weights, self.name = count, weights, name

    def __torch_dispatch__(self, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = f(*args, **(kwargs or {}))
        name = f.overloadpacket.__name__
        views = [r.alias_info is not None and not r.alias_info.is_write for r in f._schema.returns]
        if f.namespace != "aten" or any(views) or name.startswith(("empty", "new_empty", "_unsafe_view", "detach")):
            return out
        read = tensors((args, kwargs))
        written = [a for a, s in zip(args, f._schema.arguments, strict=False) if s.alias_info and s.alias_info.is_write]
        size = sum(t.nbytes for t in (*read, *tensors(written if f._schema.is_mutable else out)))
        promoted = name == "addcmul" and args[1].dtype is not args[0].dtype and "out" not in (kwargs or {})
        if promoted:  # by a kernel, in CUDA's autocast
            self.count.add("_to_copy", 0.0, args[1].nbytes + args[0].nbytes)
            size += args[0].nbytes - args[1].nbytes
        if "dot_product" in name and "backward" in name and (kwargs or {}).get("attn_mask") is None:
            size += flash_sums(args[1])
        if name == "native_layer_norm_backward":  # on CUDA gain's and shift's are a kernel of their own
            size += 2 * read[0].nbytes
        self.count.add(self.name or name, flops_of(name, args), size)
        if name == "_to_copy" and id(args[0]) in self.weights:
            self.count.casts, self.count.cast_bytes = self.count.casts + 1, self.count.cast_bytes + size
        return out


class Launch:
    """In place of a Triton kernel: its tensors pass once."""

    def __init__(self, count: Count, fn: Callable[..., None]):
        self.count, self.name = count, f"{fn.__module__.rsplit('.', 1)[-1]} {fn.__name__}"

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launched(*args: Any, **how: Any) -> None:
            again = 2 * args[0].nbytes if self.name == "loss rows" else 0  # logits: read twice, written as gradient
            self.count.add(self.name, 0.0, sum(t.nbytes for t in tensors(args)) + again)

        return launched


@contextmanager
def counted_launches(count: Count) -> Iterator[None]:
    from lightning_tfm.accel.kernels import loss

    def instead(fn: Callable[..., None]) -> Launch:
        return Launch(count, fn)

    with patch.object(loss, "kernel", instead):
        yield


def batches(V: int, tokens: int) -> list[Batch]:
    """Of the benchmark's text, at PLACES."""
    text = News(1_000_000, V)
    plan = Plan(*text.lengths, tokens, seed=0)
    by_length, found = np.lexsort(text.lengths), []
    for place in PLACES:
        number = int(place * plan.steps_per_epoch)
        ids = by_length[plan.edges[number] : plan.edges[number + 1]]
        found.append(make_batch([text.source(i) for i in ids], [text.target(i) for i in ids], np.arange(len(ids))))
    return found


def module_of(model: Model, V: int, wanted: str, mode: FakeTensorMode) -> TransformerModule:
    """For bfloat16, by the kernels `wanted` (none, all); its parameters are fake."""
    e = Experiment(model=model, training=Training(precision="bfloat16"))
    with (  # kernels are taken for what could run here; none is run, or made for Triton's interpreter
        patch.dict(os.environ, TRITON_INTERPRET="1"),
        patch("lightning_tfm.accel.on_gpu.loss_apart", return_value=0.0),
        patch("lightning_tfm.accel.on_gpu.DeviceMasks"),
    ):
        backend = select.backend(Hardware(kernels=wanted), "bfloat16", torch.device("cpu"))
    with patch("lightning_tfm.model.transformer.initialise"):
        module = TransformerModule(e, V, backend).train()
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = nn.Parameter(mode.from_tensor(parameter.detach()))
    return module


def step(model: Model, V: int, steps: list[Batch], wanted: str) -> Count:
    """The mean of `steps`: forward, backward, optimiser and masks."""
    mode, c, count = FakeTensorMode(), model, Count()
    module = module_of(model, V, wanted, mode)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3, fused=True)
    counting = Counting(count, {id(p) for p in module.parameters()})
    for batch in steps:
        (B, S), T = batch.source_BS.shape, batch.target_in_BT.shape[1]
        with mode:
            there = [getattr(batch, name) for name in ON_DEVICE]
            fake = [None if value is None else mode.from_tensor(value) for value in there]
            batch = replace(batch, **dict(zip(ON_DEVICE, fake, strict=True)))
            masks = torch.empty(1 + 2 * c.N, B, S, c.d_model), torch.empty(1 + 3 * c.N, B, T, c.d_model)
            drawn = patch.object(module, "_draw", return_value=lambda *_, masks=masks: masks)
            with drawn, counted_launches(count), counting, torch.autocast("cpu", torch.bfloat16):
                module.batch_loss(0, batch)[0].backward()
            optimizer.step()  # the first one makes Adam's moments
            with Counting(count, set(), "Adam"):
                optimizer.step()
            optimizer.zero_grad()
        for elements in (side.numel() for side in masks):
            count.take("masks draw", max(4 * elements / BYTES, MASK_INSTRUCTIONS * elements / INSTRUCTIONS))
    return count.mean(len(steps))


def main() -> None:
    base = Model(), 37_000, 25_000
    small = Model(N=3, d_model=64, d_ff=256, h=8, d_k=8, d_v=8), 800, 4_000
    for name, (model, V, tokens) in (("base", base), ("miniature's base", small)):
        print(f"{name}, {tokens} + {tokens} tokens a step, bfloat16, one H100: ESTIMATES by counting")
        steps = batches(V, tokens)
        for wanted, what in (("none", "torch's formulas"), ("all", "loss by its kernel")):
            count = step(model, V, steps, wanted)
            print(
                f"  {what}: {1e3 * count.seconds:.1f} ms on the device = {1e3 * count.products:.1f} products + "
                f"{1e3 * (count.seconds - count.products):.1f} other; {count.kernels:.0f} kernels, "
                f"{1e3 * LAUNCH * count.kernels:.1f} ms to launch from Python"
            )
            shares = sorted(count.by_kind.items(), key=lambda pair: -pair[1])[:12]
            print("    " + ", ".join(f"{kind} {1e3 * seconds:.1f}" for kind, seconds in shares))
            print(f"    weights cast to bfloat16: {count.casts:.0f} kernels, {count.cast_bytes / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
