"""`python -m benchmarks.products`: products of matrices by MKL, by oneDNN and in bfloat16, and what they do to decoding
and training. One thread, seconds of CPU time, the least of several turns: other programs on the machine count little.
"""

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import numpy as np
import torch
from torch.nn import functional as F
from torch.profiler import profile

from lightning_tfm.accel.onednn import PackedTransformer
from lightning_tfm.config import Experiment, Model, Training
from lightning_tfm.data.batch import make_batch
from lightning_tfm.model.beam_search import beam_search
from lightning_tfm.model.transformer import Transformer
from lightning_tfm.runs.environment import cpu_model
from lightning_tfm.runs.malloc import keep_freed_memory
from lightning_tfm.training.module import TransformerModule

MODEL = Model(N=3, d_model=256, d_ff=1024, h=4, d_k=64, d_v=64)
V, SENTENCES, LENGTH = 8000, 64, 20
UNITS = ("amx_bf16", "avx512_bf16", "avx512f")


def least(calls: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Seconds of CPU time of each."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(turns):
        for name, call in calls.items():
            began = time.process_time()
            call()
            found[name] = min(found[name], time.process_time() - began)
    return found


@torch.no_grad()
def products(rows: int, K: int, N: int) -> str:
    x, w = torch.randn(rows, K), torch.randn(N, K)
    laid, x_half, w_half = torch.ops.mkldnn._reorder_linear_weight(w, rows), x.bfloat16(), w.bfloat16()
    calls: dict[str, Callable[[], object]] = {
        "MKL": lambda: F.linear(x, w),
        "oneDNN": lambda: torch.ops.mkldnn._linear_pointwise(x, laid, None, "none", [], ""),
        "bfloat16": lambda: F.linear(x_half, w_half),
    }
    return ", ".join(f"{name} {2e-9 * rows * K * N / s:.0f}" for name, s in least(calls, 15).items())


def decoding() -> dict[str, float]:
    """Beam search over random sources with random weights: every translation runs to its limit."""
    model = Transformer(MODEL, V, 1).eval()
    source_BS = torch.randint(4, V, (SENTENCES, LENGTH), generator=torch.Generator().manual_seed(3))

    ways = {"as recorded": model, "--packed": PackedTransformer(model)}
    return least({name: partial(beam_search, way, source_BS, 4, 0.6, 2) for name, way in ways.items()}, 5)


def step(precision: str) -> Callable[[], None]:
    module = TransformerModule(Experiment(model=MODEL, training=Training(seed=1, precision=precision)), V).train()
    optimizer, draw = module.configure_optimizers(), np.random.default_rng(0)
    sides = [[draw.integers(4, V, LENGTH).astype(np.int32) for _ in range(100)] for _ in range(2)]
    batch = make_batch(*sides, np.arange(100))

    def call() -> None:
        with torch.autocast("cpu", torch.bfloat16) if precision == "bfloat16" else nullcontext():
            loss, _ = module.batch_loss(1, batch)
        (loss / batch.target_tokens).backward()
        optimizer.step()
        optimizer.zero_grad()

    return call


def share_of_products(call: Callable[[], None]) -> float:
    with profile() as seen:
        call()
    spent = {event.key: event.self_cpu_time_total for event in seen.key_averages()}
    return sum(spent.get(f"aten::{name}", 0.0) for name in ("mm", "addmm", "addmm_", "bmm")) / sum(spent.values())


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    with open("/proc/cpuinfo") as file:
        flags = file.read()
    has = ", ".join(f"{unit}: {'yes' if unit in flags else 'no'}" for unit in UNITS)
    print(f"{cpu_model()}; {has}; load average {os.getloadavg()[1]:.0f}; torch {torch.__version__}")
    for shape in ((256, 256, 8000), (256, 256, 1024), (1024, 512, 2048)):
        print(f"GFLOP/s of {' x '.join(map(str, shape))}: {products(*shape)}")
    found = decoding()
    print(f"decoding {SENTENCES} sentences: {', '.join(f'{name} {s:.3f} s' for name, s in found.items())}")
    steps = {precision: step(precision) for precision in ("float32", "bfloat16")}
    print(f"a training step: {', '.join(f'{name} {s:.3f} s' for name, s in least(steps, 4).items())}")
    print(f"share of products in a float32 step: {share_of_products(steps['float32']):.0%}")


if __name__ == "__main__":
    main()
