"""The weights of a run, of exactly the steps that its experiment requires; what is missing or damaged is named."""

import sys

from torch import Tensor

from lightning_tfm.config import Experiment
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.sums import DamagedFile
from lightning_tfm.training.async_checkpoint import checkpoint_file, snapshot_file
from lightning_tfm.training.checkpoints import average
from lightning_tfm.training.schedule import EventSchedule
from lightning_tfm.training.weight_files import load


def weights_to_score(folder: RunFolder, e: Experiment) -> dict[str, Tensor]:
    """Those that the evaluation of `e` requires. Raises UserError, DamagedFile."""
    return average_weights(folder, e) if e.evaluation.weights == "average" else last(folder, e)


def average_weights(folder: RunFolder, e: Experiment) -> dict[str, Tensor]:
    """The mean of all snapshots. Raises UserError where there are none, and naming one that is missing or damaged."""
    t = e.training
    steps = EventSchedule(t.steps, 1, 1, 1, t.average_last, t.average_every).snapshot_steps()
    return average([snapshot_file(folder.snapshots, step) for step in steps], folder.training_hash)


def last(folder: RunFolder, e: Experiment) -> dict[str, Tensor]:
    """Those after the last step, of the checkpoint or the snapshot. Raises DamagedFile."""
    step, run = e.training.steps, folder.training_hash
    checkpoint, snapshot = checkpoint_file(folder.checkpoints, step), snapshot_file(folder.snapshots, step)
    try:
        state = load(checkpoint, run)["state_dict"]
        return {name.removeprefix("transformer."): value for name, value in state.items()}
    except DamagedFile as error:
        if not snapshot.exists():
            raise DamagedFile(f"{error}; the run's last weights are gone: runs remove it and train it again") from None
        if checkpoint.exists():  # `runs gc` removes it if the snapshot exists
            print(f"{error}; using {snapshot}, which holds the same weights", file=sys.stderr)
    return load(snapshot, run)
