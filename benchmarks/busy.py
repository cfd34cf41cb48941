"""`python -m benchmarks.busy [ROUNDS]`: steps a second of the miniature while another program takes one core.

How OpenMP's threads wait decides it: each way is measured alone and beside a process that spins on the last core, in
turns, in a random order. Other load on the machine is part of the result: the load average stands beside it.
"""

import os
import random
import statistics
import subprocess
import sys

from lightning_tfm.runs.environment import cpu_model
from lightning_tfm.runs.process.threads import WAITING

SECONDS = 4.0
WAYS: dict[str, tuple[int, dict[str, str]]] = {
    "2 threads that spin (OpenMP's default)": (2, {}),
    "2 threads, GOMP_SPINCOUNT=5000": (2, {"GOMP_SPINCOUNT": "5000"}),
    "2 threads, GOMP_SPINCOUNT=0": (2, {"GOMP_SPINCOUNT": "0"}),
    "2 threads, OMP_WAIT_POLICY=PASSIVE": (2, {"OMP_WAIT_POLICY": "PASSIVE"}),
    "1 thread": (1, {}),
}
"""name -> threads and environment"""
STEPS = """
import sys, time
import numpy as np, torch
from lightning_tfm.config import Experiment, Model, Training
from lightning_tfm.data.batch import make_batch
from lightning_tfm.training.module import TransformerModule
torch.set_num_threads(int(sys.argv[1]))
model = Model(N=3, d_model=64, d_ff=256, h=8, d_k=8, d_v=8)
module = TransformerModule(Experiment(model=model, training=Training(tokens=300, steps=1000)), 800)
optimizer, draw = module.configure_optimizers(), np.random.default_rng(0)
sides = [[draw.integers(4, 800, 14) for _ in range(20)] for _ in range(2)]
batch, count, began = make_batch(*sides, np.arange(20)), 0, 0.0
while count < 3 or time.perf_counter() - began < float(sys.argv[2]):
    loss, _ = module.batch_loss(count, batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    count += 1
    began = time.perf_counter() if count == 3 else began
print((count - 3) / (time.perf_counter() - began))
"""


def steps_a_second(way: str, busy: bool) -> float:
    threads, more = WAYS[way]
    clean = {name: value for name, value in os.environ.items() if name not in (*WAITING, "OMP_NUM_THREADS")}
    last = str(max(os.sched_getaffinity(0)))
    spin = ["taskset", "-c", last, sys.executable, "-c", "while True: pass"]
    neighbour = subprocess.Popen(spin) if busy else None
    try:
        command = [sys.executable, "-c", STEPS, str(threads), str(SECONDS)]
        return float(subprocess.run(command, env=clean | more, capture_output=True, text=True, check=True).stdout)
    finally:
        if neighbour is not None:
            neighbour.kill()
            neighbour.wait()


def main(rounds: int) -> None:
    found: dict[tuple[str, bool], list[float]] = {(way, busy): [] for busy in (False, True) for way in WAYS}
    for _ in range(rounds):
        for key in random.sample(list(found), len(found)):
            found[key].append(steps_a_second(*key))
    print(
        f"{cpu_model()}, {len(os.sched_getaffinity(0))} cores, load average {os.getloadavg()[1]:.0f}, {rounds} rounds"
    )
    for (way, busy), values in found.items():
        spread = f"{min(values):.1f}-{max(values):.1f}"
        print(f"{'beside a busy core' if busy else 'alone':18}  {way:40} {statistics.median(values):5.1f}  ({spread})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
