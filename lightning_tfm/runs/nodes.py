"""One run over the nodes of a SLURM job: its process on the first node starts the ranks of the others through srun.

`srun` starts runs/further_node.py once on each of them. It reads what to train from the run's folder, which all nodes
see, and lives as long as the pipe to its standard input: a byte stops it cleanly, the end of the pipe kills it.

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
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from lightning_tfm.config import to_dict
from lightning_tfm.errors import UserError
from lightning_tfm.runs.outcome import STOPPED, RunFailed, named
from lightning_tfm.runs.processes import STOP_SIGNALS, die_with_parent
from lightning_tfm.runs.ranks import Node, fork_ranks

if TYPE_CHECKING:
    from lightning_tfm.runs.train import Run

PLAN = "nodes.json"
"""in the run's folder: the instructions for the ranks of the other nodes"""


def check_allocation(nodes: int) -> None:
    """Raise UserError where this process may not use `nodes` nodes."""
    found = int(os.environ.get("SLURM_JOB_NUM_NODES", "0"))
    if not found:
        raise UserError(f"--trainer.num_nodes={nodes}: needs a SLURM job (sweep --launcher slurm), or torchrun")
    if found != nodes:
        raise UserError(f"--trainer.num_nodes={nodes}: this SLURM job has {found}")
    if shutil.which("srun") is None:
        raise UserError(f"--trainer.num_nodes={nodes}: no srun on this machine to start the other nodes")


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
        "store": str(run.store.resolve()),
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
    command += [sys.executable, "-m", "lightning_tfm.runs.further_node", str(path)]
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
