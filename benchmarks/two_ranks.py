"""`python -m benchmarks.two_ranks FOLDER DEVICES THREADS`: prints the median seconds of a training step."""

import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import lightning.pytorch as pl

from lightning_tfm.config import Experiment, Hardware, from_dict
from lightning_tfm.data.module import TranslationData
from lightning_tfm.data.prepare import prepare
from lightning_tfm.runs.process.ranks import fork_ranks
from lightning_tfm.runs.trainer import make_trainer, prepare_process
from lightning_tfm.training.module import TransformerModule

STEPS = 16


class Clock(pl.Callback):
    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        self.times.append(time.perf_counter())


def main(folder: Path, devices: int, threads: int) -> None:
    sizes = json.loads((folder / "sizes.json").read_text())
    experiment = from_dict(Experiment, sizes["experiment"])
    experiment = replace(experiment, training=replace(experiment.training, steps=STEPS))
    hardware = Hardware(accelerator="cpu", devices=devices, threads=threads)

    def train() -> None:
        prepare_process(hardware)
        clock = Clock()
        trainer = make_trainer(experiment, hardware, [clock])
        data = TranslationData(experiment, prepare(experiment.data, Path(sizes["root"])))
        trainer.fit(TransformerModule(experiment, sizes["V"]), datamodule=data)
        if trainer.is_global_zero:
            steps = [b - a for a, b in zip(clock.times[2:], clock.times[3:], strict=False)]
            print(statistics.median(steps), flush=True)

    train() if devices == 1 else fork_ranks(train, devices, threads)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
