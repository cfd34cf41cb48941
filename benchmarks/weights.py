"""`python -m benchmarks.weights FOLDER STEPS`: train the configuration laid out in FOLDER, keep its weights there."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from lightning_tfm.config import Experiment, Hardware, from_dict
from lightning_tfm.data.module import TranslationData
from lightning_tfm.data.prepare import prepare
from lightning_tfm.runs.trainer import make_trainer, prepare_process
from lightning_tfm.training.module import TransformerModule


def main(folder: Path, steps: int) -> None:
    sizes = json.loads((folder / "sizes.json").read_text())
    experiment = from_dict(Experiment, sizes["experiment"])
    experiment = replace(experiment, training=replace(experiment.training, steps=steps))
    hardware = Hardware(accelerator="cpu", threads=len(os.sched_getaffinity(0)))
    prepare_process(hardware)
    module = TransformerModule(experiment, sizes["V"])
    data = TranslationData(experiment, prepare(experiment.data, Path(sizes["root"])))
    make_trainer(experiment, hardware, []).fit(module, datamodule=data)
    weights = module.transformer.state_dict()
    np.savez(folder / "weights.npz", **{name: value.numpy() for name, value in weights.items()})
    half = folder / "weights.half"
    torch.save(weights, half)
    half.replace(folder / "weights.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
