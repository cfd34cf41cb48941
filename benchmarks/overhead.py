"""What exactness costs: our step in our Trainer against a bare loop over the same model, batches and loss.

    python -m benchmarks.overhead [ROUNDS]

Base configuration (d_model 512, N 6, 37,000 pieces), 2,000 tokens a step, random ids. The bare loop has torch's own
dropout, fused Adam and nothing else. Both take turns inside one process; medians of the rounds after the first.
"""

import statistics
import sys
import time

import numpy as np
import torch

from lightning_tfm.config import Experiment, Hardware, Training
from lightning_tfm.data.batch import Step, make_batch
from lightning_tfm.runs.environment import cpu_model
from lightning_tfm.runs.trainer import make_trainer, prepare_process
from lightning_tfm.training.callback import RunCallback
from lightning_tfm.training.counters import RunCounters
from lightning_tfm.training.module import TransformerModule
from lightning_tfm.training.schedule import EventSchedule

V, LENGTH, SENTENCES, NEVER = 37000, 19, 100, 1 << 40


class Turns:
    """A loader that runs and times a bare step before each of ours; ours lasts until the next one is asked for."""

    def __init__(self, rounds: int, bare: TransformerModule):
        random = np.random.default_rng(0)
        ids = random.integers(4, V, (2, SENTENCES, LENGTH)).astype(np.int32)
        self.batch = make_batch(list(ids[0]), list(ids[1]), np.arange(SENTENCES))
        self.rounds, self.bare, self.optimizer = rounds, bare.train(), bare.configure_optimizers()
        self.times: dict[str, list[float]] = {"bare": [], "ours": []}

    def __len__(self) -> int:
        return self.rounds

    def __iter__(self):
        for number in range(self.rounds):
            start = time.perf_counter()
            loss, _ = self.bare.batch_loss(self.batch, None)
            (loss / self.batch.target_tokens).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            middle = time.perf_counter()
            tokens = self.batch.target_tokens
            yield Step(number, tokens, tokens, [self.batch])
            self.times["bare"].append(middle - start)
            self.times["ours"].append(time.perf_counter() - middle)


def main(rounds: int) -> None:
    experiment = Experiment(training=Training(steps=rounds))
    hardware = Hardware(accelerator="cpu")
    prepare_process(hardware)
    turns = Turns(rounds, TransformerModule(experiment, V))
    callback = RunCallback(EventSchedule(NEVER, 50, NEVER, NEVER), None, [], 0, "", RunCounters())
    make_trainer(experiment, hardware, [callback]).fit(TransformerModule(experiment, V), turns)
    bare, ours = (turns.times[name][1:] for name in ("bare", "ours"))
    print(f"{cpu_model()}, torch {torch.__version__}, {torch.get_num_threads()} threads, {rounds - 1} rounds")
    for name, times in (("bare", bare), ("ours", ours)):
        print(f"{name}: median {statistics.median(times):.3f} s ({min(times):.3f}-{max(times):.3f})")
    ratios = [b / a for a, b in zip(bare, ours, strict=True)]
    print(f"ours / bare, median over the rounds: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
