"""Exact counts of what a training step and a decoded piece ask of torch: operators, allocations, bytes.

Times vary with the machine, these do not: a change that adds an operator or an allocation shows at once. After a change
that is meant to change them:

    python -m tests.regression.operators
"""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_tfm.config import Experiment, Model, Training
from lightning_tfm.data.batch import Batch, make_batch
from lightning_tfm.model.beam_search import beam_search
from lightning_tfm.training.module import TransformerModule
from tests.regression.place import processor

COUNTS = Path(__file__).with_name("operators.json")
SIZES = {
    "miniature": (Model(N=3, d_model=64, d_ff=256, h=8, d_k=8, d_v=8), 800),
    "small": (Model(N=3, d_model=256, d_ff=1024, h=4, d_k=64, d_v=64), 8000),
}
PIECES = 12
"""length of the translations that are decoded"""


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def batch(V: int) -> Batch:
    """12 pairs of 5 to 16 pieces."""
    draw = np.random.default_rng(0)
    sides = [[draw.integers(4, V, n).astype(np.int32) for n in range(start, start + 12)] for start in (5, 4)]
    return make_batch(*sides, np.arange(12))


def measured(work) -> dict[str, int]:
    """Operators, allocations and bytes of `work()`, after a first call that fills caches."""
    work()
    with Operators() as seen:
        work()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        work()
    sizes = [e.nbytes() for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
    grown = [size for size in sizes if size > 0]
    return {"operators": seen.counts.total(), "allocations": len(grown), "bytes": sum(grown)}


def training_step(model: Model, V: int):
    module = TransformerModule(Experiment(model=model, training=Training(seed=1)), V).train()
    optimizer, one = module.configure_optimizers(), batch(V)

    def step() -> None:
        loss, _ = module.batch_loss(7, one)
        (loss / one.target_tokens).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def decoding(model: Model, V: int):
    """Beam search of PIECES pieces for every source, none ended early: the end token is out of reach."""
    transformer = TransformerModule(Experiment(model=model, training=Training(seed=1)), V).transformer.eval()
    with torch.no_grad():
        transformer.embedding_WD[2].zero_()
    source_BS = batch(V).source_BS[:, :PIECES].clamp(min=4)
    return lambda: beam_search(transformer, source_BS, 4, 0.6, 0)


def counts() -> dict[str, dict[str, dict[str, int]]]:
    torch.set_num_threads(1)
    found = {}
    for name, (model, V) in SIZES.items():
        found[name] = {"step": measured(training_step(model, V)), "decoding": measured(decoding(model, V))}
    return found


def place() -> dict[str, str]:
    """What counts depend on: operators on torch's release, allocations perhaps on the CPU's kernels too."""
    return {"torch": torch.__version__.partition("+")[0], "cpu": processor()}


def main() -> None:
    COUNTS.write_text(json.dumps({**place(), "counts": counts()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
