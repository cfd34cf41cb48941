"""One run over the nodes of a SLURM job: its process on the first node starts the ranks of the others through srun.

`srun` starts this module once on each further node. It reads what to train from the run's folder, which all nodes
see, and lives as long as the pipe to its standard input: a byte stops it in order, the end of the pipe kills it.

Before a time limit the run writes a checkpoint and is handed back. When SLURM itself ends the job (cancelled, requeued,
pre-empted) its signal also tells srun to kill the other nodes: if that comes before the checkpoint is written, the run
resumes from its last regular one.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from lightning_tfm.config import Experiment, Hardware, from_dict, to_dict
from lightning_tfm.errors import UserError
from lightning_tfm.runs.directory import Attempt, RunFolder, StaleAttempt, read_json
from lightning_tfm.runs.outcome import EXIT_CODES, STOPPED, RunFailed, guarded, named, print_ending
from lightning_tfm.runs.processes import STOP_SIGNALS, die_with_parent
from lightning_tfm.runs.ranks import Node, fork_ranks

if TYPE_CHECKING:
    from lightning_tfm.runs.train import Run

PLAN = "nodes.json"
"""in the run's folder: what the ranks of the other nodes are told"""


def check_allocation(nodes: int) -> None:
    """Raise UserError where this process may not use `nodes` nodes."""
    found = int(os.environ.get("SLURM_JOB_NUM_NODES", "0"))
    if not found:
        raise UserError(f"--trainer.num_nodes={nodes}: needs a SLURM job (sweep --launcher slurm), or torchrun")
    if found != nodes:
        raise UserError(f"--trainer.num_nodes={nodes}: this SLURM job has {found}")
    if shutil.which("srun") is None:
        raise UserError(f"--trainer.num_nodes={nodes}: there is no srun on this machine to start the other nodes")


def train_on_nodes(run: "Run", spawn: bool) -> None:
    """`run.train()` on every device of every node of the job. Raises what `fork_ranks` raises, and UserError."""
    hardware = run.hardware
    check_allocation(hardware.num_nodes)
    node = Node(hardware.num_nodes, 0, os.environ.get("MASTER_ADDR") or socket.gethostname())
    fork_ranks(run.train, hardware.devices, hardware.threads, spawn, node, partial(_start_others, run))


def _start_others(run: "Run") -> None:
    """In a process beside the ranks of the first node: start the others, and end as they end."""
    plan = {
        "experiment": to_dict(run.experiment),
        "hardware": to_dict(run.hardware),
        "root": str(run.root.resolve()),
        "training_hash": run.folder.training_hash,
        "attempt": {"number": run.attempt.number, "token": run.attempt.token},
        "master": {"address": os.environ["MASTER_ADDR"], "port": int(os.environ["MASTER_PORT"])},
    }
    path = run.folder.path.resolve() / PLAN
    run.attempt.write_json(path, plan)
    others = run.hardware.num_nodes - 1
    command = ["srun", "--overlap", "--relative=1", f"--nodes={others}", f"--ntasks={others}", "--ntasks-per-node=1"]
    command += ["--kill-on-bad-exit=1", "--unbuffered"]
    if cpus := os.environ.get("SLURM_CPUS_PER_TASK"):
        command.append(f"--cpus-per-task={cpus}")
    command += [sys.executable, "-m", "lightning_tfm.runs.nodes", str(path)]
    srun = subprocess.Popen(command, stdin=subprocess.PIPE, preexec_fn=partial(die_with_parent, os.getpid()))
    assert srun.stdin is not None
    tell = srun.stdin.fileno()

    def stop(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):  # it has ended
            os.write(tell, b".")

    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    code = srun.wait()
    if code in STOPPED:
        raise SystemExit(code)
    if code:
        raise RunFailed(named(code), f"srun ended with exit code {code}, see the log")


def main(path: str) -> int:
    """A further node: the ranks of the run whose plan lies at `path`; returns the exit code."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # tells of the time limit, and is meant for the first node
    threading.Thread(target=_obey, name="obey", daemon=True).start()
    number = int(os.environ["SLURM_PROCID"]) + 1
    code = guarded(partial(_join, Path(path), number), print_ending(f"node {number}"))
    return 0 if code == EXIT_CODES["pruned"] else code  # the ranks agreed on it, and the first node says it


def _join(path: Path, number: int) -> None:
    run, master = _read(path, number)
    hardware = run.hardware
    node = Node(hardware.num_nodes, number, master["address"], master["port"])
    fork_ranks(run.train, hardware.devices, hardware.threads, hardware.accelerator == "gpu", node)


def _read(path: Path, number: int) -> "tuple[Run, dict[str, Any]]":
    """The run, and where its rank 0 listens. Raises UserError where this node does not see what the first one sees."""
    from lightning_tfm.runs.train import Run

    plan = read_json(path)
    try:
        if plan is None:
            raise FileNotFoundError(path)
        folder = RunFolder(Path(plan["root"]), plan["training_hash"])
        attempt = Attempt(folder, **plan["attempt"])
        attempt.check()
    except (StaleAttempt, OSError):
        raise UserError(
            f"node {number}: {path.parent} is not the folder in which the first node works: all nodes must see the "
            "same files; put --out on a shared file system"
        ) from None
    experiment = from_dict(Experiment, plan["experiment"])
    return Run(experiment, from_dict(Hardware, plan["hardware"]), attempt, folder.root), plan["master"]


def _obey() -> None:
    while os.read(0, 64):
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGKILL)  # the first node is gone; the ranks die with this process


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
