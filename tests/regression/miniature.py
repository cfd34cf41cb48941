"""The first 50 losses of the miniature in full precision.

Renew them on purpose, after a change that is meant to change the numbers:

    python -m tests.regression.miniature

It writes losses.json anew and raises NUMERICS_VERSION in lightning_tfm/config.py, so that no older run is taken for the
same experiment.
"""

import json
import re
import sys
from pathlib import Path

import torch

from lightning_tfm import config
from lightning_tfm.data.module import StepLoader, TranslationData
from lightning_tfm.data.prepare import prepare
from lightning_tfm.study.settings import load_experiment
from lightning_tfm.training.module import TransformerModule
from lightning_tfm.training.schedule import learning_rate
from tests.regression.place import processor

LOSSES = Path(__file__).with_name("losses.json")
STEPS = 50


def place() -> dict[str, str | int]:
    """What the bits of a loss may depend on besides the experiment."""
    return {"cpu": processor(), "torch": torch.__version__, "threads": torch.get_num_threads()}


def losses(root: Path) -> list[float]:
    """Smoothed loss of each step, summed over its target tokens, in a plain loop on one thread."""
    torch.set_num_threads(1)
    experiment = load_experiment(Path(__file__).with_name("miniature.yaml"), seed=0).scaled()
    data = TranslationData(experiment, prepare(experiment.data, root))
    module = TransformerModule(experiment, data.prepared.tokenizer.V).train()
    optimizer = module.configure_optimizers()
    loader = StepLoader(data.plan(), data.prepared.split("train"), 0, 0, 1, 0)
    found = []
    for number in range(STEPS):
        step = loader.step(number)
        batch = step.micro[0]
        loss, _ = module.batch_loss(number, batch)
        (loss / step.target_tokens).backward()
        optimizer.param_groups[0]["lr"] = learning_rate(number, experiment.model.d_model, experiment.training)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def renew(root: Path) -> None:
    version = config.NUMERICS_VERSION + LOSSES.exists()
    record = {"numerics": version, **place(), "losses": losses(root)}
    LOSSES.write_text(json.dumps(record, indent=1) + "\n")
    path = Path(config.__file__)
    text = path.read_text()
    path.write_text(re.sub(r"^NUMERICS_VERSION = \d+", f"NUMERICS_VERSION = {version}", text, flags=re.MULTILINE))
    print(f"{LOSSES}: numerics version {version}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    renew(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
