"""Workers as SLURM jobs, through submitit. A job that is pre-empted or runs out of time is queued again and resumes.

The jobs run `lightning-tfm work`; what they do is decided by the study's queue. Nothing is scheduled here.
"""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from lightning_tfm.errors import UserError
from lightning_tfm.runs.processes import die_with_parent

STOP_SECONDS = 90
"""how long before its time limit SLURM warns a job, for the checkpoints of its runs"""
LIVING = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "PREEMPTED", "STOPPED", "SIGNALING"}
LIVING |= {"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "SPECIAL_EXIT", "STAGE_OUT"}
"""states of a job, as squeue prints them, that may run again"""


@dataclass(frozen=True)
class Slurm:
    """What each job requests from SLURM (--launcher slurm)."""

    partition: str = ""
    """partition of the jobs; empty for the cluster's default"""
    minutes: int = 60
    """time limit of a job"""
    jobs: int = 1
    """jobs to submit, one worker each"""
    cpus: int = 1
    """CPUs of each task"""
    gpus: int = 0
    """GPUs of each job"""
    requeues: int = 100
    """how often a job that runs out of time is queued again"""
    stop_seconds: int = STOP_SECONDS
    """seconds before its time limit at which SLURM warns a job, for the checkpoints of its runs"""


class WorkerJob:
    """What submitit pickles: one worker, started as a separate program."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped = False
        """SIGTERM came: the job is requeued, pre-empted or cancelled"""

    def __call__(self) -> int:
        signal.signal(signal.SIGTERM, self._pass_on)
        me = os.getpid()
        self.process = subprocess.Popen(self.command, preexec_fn=lambda: _prepare_worker(me))
        code = self._wait()
        if self.stopped:  # SLURM decides what becomes of the job: leave no result behind
            os._exit(128 + signal.SIGTERM)
        if code not in (0, 1):  # 1: a run of the study failed, which its status says
            raise RuntimeError(f"{' '.join(self.command)}: exit code {code}")
        return code

    def checkpoint(self) -> Any:
        """Called before the job ends: the runs write checkpoints and return to the queue, and so does the job."""
        from submitit.helpers import DelayedSubmission

        if self.process is not None:
            self._stop()
            self._wait()
        return DelayedSubmission(WorkerJob(self.command))

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.stopped = True
        self._stop()

    def _stop(self) -> None:
        with suppress(ProcessLookupError):
            if self.process is not None:
                os.kill(self.process.pid, signal.SIGTERM)

    def _wait(self) -> int:
        """Exit code of the worker. Not Popen.wait: its lock is held where a signal handler calls this again."""
        assert self.process is not None
        found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)  # stays a zombie: its pid stays ours
        assert found is not None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _prepare_worker(parent: int) -> None:
    """In the worker's process, before its program: SLURM may send the signal meant for submitit to all."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    die_with_parent(parent)


def check_here() -> None:
    """Raise UserError where no jobs can be submitted from this machine."""
    if find_spec("submitit") is None:
        raise UserError("--launcher slurm needs submitit: pip install 'lightning_tfm[slurm]'")
    if shutil.which("sbatch") is None:
        raise UserError("--launcher slurm: no sbatch on this machine; submit from a login node of the cluster")


def submit(slurm: Slurm, study: str, arguments: list[str], folder: Path, cluster: str = "slurm") -> list[Any]:
    """Submit `slurm.jobs` jobs that run `lightning-tfm work STUDY ARGUMENTS`; logs are in `folder`/slurm.

    Raises UserError where SLURM refuses them. `cluster` local runs them here, for tests.
    """
    import submitit

    executor = submitit.AutoExecutor(folder / "slurm", cluster=cluster, slurm_max_num_timeout=slurm.requeues)
    executor.update_parameters(name=f"tfm-{study}", timeout_min=slurm.minutes, cpus_per_task=slurm.cpus)
    if cluster == "slurm":
        executor.update_parameters(slurm_signal_delay_s=slurm.stop_seconds)
        if slurm.partition:
            executor.update_parameters(slurm_partition=slurm.partition)
    if slurm.gpus:
        executor.update_parameters(gpus_per_node=slurm.gpus)
    command = [sys.executable, "-m", "lightning_tfm.cli.main", "work", study, *arguments]
    return [executor.submit(WorkerJob(command)) for _ in range(slurm.jobs)]


def any_alive(jobs: list[Any]) -> bool:
    """Whether one of the jobs runs or will run again, by squeue, which needs no accounting; True if it is mute."""
    ids = ",".join(job.job_id for job in jobs)
    command = ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={ids}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:  # it forgets jobs that ended long ago, and says so
        return "Invalid job id" not in done.stderr
    return any(state in LIVING for state in done.stdout.split())
