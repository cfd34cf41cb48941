"""A further node of a run over several (runs/nodes.py): a program that srun starts there."""

import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

from lightning_tfm.accel import choose
from lightning_tfm.config import Experiment, Hardware, from_dict
from lightning_tfm.errors import UserError
from lightning_tfm.runs.directory import Attempt, RunFolder, read_json
from lightning_tfm.runs.launchers import check_of
from lightning_tfm.runs.outcome import EXIT_CODES, guarded, print_ending
from lightning_tfm.runs.ranks import Node, fork_ranks
from lightning_tfm.runs.result import Result
from lightning_tfm.runs.train import Run


def main(path: str) -> int:
    """A further node: the ranks of the run whose plan is at `path`; returns the exit code."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # announces the time limit, and is meant for the first node
    threading.Thread(target=_obey, name="obey", daemon=True).start()
    number = int(os.environ["SLURM_PROCID"]) + 1
    code = guarded(partial(_join, Path(path), number), print_ending(f"node {number}"))
    return 0 if code == EXIT_CODES["pruned"] else code  # the ranks agreed on it, and the first node reports it


def _join(path: Path, number: int) -> None:
    run, master = _read(path, number)
    hardware = run.hardware
    node = Node(hardware.num_nodes, number, master["address"], master["port"])
    fork_ranks(run.train, hardware.devices, hardware.threads, hardware.accelerator == "gpu", node)


def _read(path: Path, number: int) -> tuple[Run, dict[str, Any]]:
    """The run, and where its rank 0 listens. Raises UserError where this node does not see what the first one sees."""
    plan = read_json(path)
    folder = RunFolder(path.parents[2], path.parent.name if plan is None else plan["training_hash"])
    attempt = Attempt(folder, **({"number": 0, "token": ""} if plan is None else plan["attempt"]))
    if why := attempt.why_folder_not_shared(f"node {number}", "the first node"):
        raise UserError(why)
    experiment, hardware = from_dict(Experiment, plan["experiment"]), from_dict(Hardware, plan["hardware"])
    store, check = Path(plan["store"]), check_of(experiment)
    return Run(experiment, hardware, attempt, store, choose.backend, Result(), check), plan["master"]


def _obey() -> None:
    while os.read(0, 64):
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGKILL)  # the first node is gone; the ranks die with this process


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
