"""Workers as SLURM jobs, through submitit. A job that is pre-empted or runs out of time is queued again and goes on.

The jobs run `lightning-tfm work`; what they do is decided by the study's queue. Nothing is scheduled here.
"""

import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_tfm.errors import UserError

STOP_SECONDS = 90
"""how long before its time limit SLURM tells a job: for the checkpoints of its runs"""


@dataclass(frozen=True)
class Slurm:
    """What is asked of SLURM for each job."""

    partition: str = ""
    minutes: int = 60
    jobs: int = 1
    cpus: int = 1
    gpus: int = 0
    requeues: int = 100
    """how often a job may run out of time before it is not queued again"""
    stop_seconds: int = STOP_SECONDS


class WorkerJob:
    """What submitit pickles: one worker, started as a program of its own."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.process: subprocess.Popen[bytes] | None = None

    def __call__(self) -> int:
        self.process = subprocess.Popen(self.command)
        code = self.process.wait()
        if code not in (0, 1):  # 1: a run of the study failed, which its status says
            raise RuntimeError(f"{' '.join(self.command)}: exit code {code}")
        return code

    def checkpoint(self) -> Any:
        """Called before the job ends: the runs write their checkpoints and are handed back, the job is queued again."""
        from submitit.helpers import DelayedSubmission

        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()
        return DelayedSubmission(WorkerJob(self.command))


def submit(slurm: Slurm, study: str, arguments: list[str], folder: Path, cluster: str = "slurm") -> list[Any]:
    """Submit `slurm.jobs` jobs that run `lightning-tfm work STUDY ARGUMENTS`; logs lie in `folder`/slurm.

    Raises UserError where submitit or SLURM is missing. `cluster` local runs them here, for tests.
    """
    try:
        import submitit
    except ImportError:
        raise UserError("--launcher slurm needs submitit: pip install 'lightning_tfm[slurm]'") from None
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise UserError("--launcher slurm: there is no sbatch on this machine; submit from a login node of the cluster")
    executor = submitit.AutoExecutor(folder / "slurm", cluster=cluster, slurm_max_num_timeout=slurm.requeues)
    executor.update_parameters(name=f"tfm-{study}", timeout_min=slurm.minutes, cpus_per_task=slurm.cpus, nodes=1)
    if cluster == "slurm":
        executor.update_parameters(slurm_signal_delay_s=slurm.stop_seconds)
        if slurm.partition:
            executor.update_parameters(slurm_partition=slurm.partition)
    if slurm.gpus:
        executor.update_parameters(gpus_per_node=slurm.gpus)
    command = [sys.executable, "-m", "lightning_tfm.cli.main", "work", study, *arguments]
    return [executor.submit(WorkerJob(command)) for _ in range(slurm.jobs)]
