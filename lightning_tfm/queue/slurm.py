"""Workers as SLURM jobs, through submitit. A job that is pre-empted or runs out of time is queued again and resumes.

The jobs run `lightning-tfm work`; what they do is decided by the study's queue. Nothing is scheduled here.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from lightning_tfm.errors import UserError
from lightning_tfm.runs.process.forking import die_with_parent

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
    account: str = ""
    """account that the jobs are charged to"""
    qos: str = ""
    """quality of service of the jobs"""
    memory: str = ""
    """memory of each job as SLURM takes it, such as 16G"""
    constraint: str = ""
    """feature that a node must have"""
    array: bool = False
    """submit the jobs as one array"""
    setup: str = ""
    """lines of the script before the command, separated by semicolons, such as 'module load cuda; source env.sh'"""
    more: str = ""
    """further #SBATCH options by name, separated by semicolons, such as 'reservation=night; exclude=n1,n2'"""

    @property
    def lines(self) -> list[str]:
        """Those of `setup`."""
        return [line.strip() for line in self.setup.split(";") if line.strip()]

    def options(self) -> dict[str, str | bool]:
        """Those of `more`; True for one without a value. Raises UserError."""
        found: dict[str, str | bool] = {}
        for option in (text.strip() for text in self.more.split(";") if text.strip()):
            name, equals, value = option.removeprefix("--").partition("=")
            if name in OWN or not re.fullmatch(r"[a-z][a-z-]*", name) or (equals and not value):
                why = f"is --slurm.{OWN[name]}" if name in OWN else "expected NAME or NAME=VALUE; …"
                raise UserError(f"--slurm.more={self.more}: '{option}': {why}")
            found[name] = value if equals else True
        return found


OWN = {"account": "account", "qos": "qos", "mem": "memory", "constraint": "constraint", "partition": "partition"}
OWN |= {"time": "minutes", "cpus-per-task": "cpus", "gpus-per-node": "gpus", "signal": "stop_seconds", "array": "array"}
"""option of sbatch -> the field of Slurm that sets it"""


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


class NotSubmitted(UserError):
    """No job of a study was."""


def check_here() -> None:
    """Raise UserError where no jobs can be submitted from this machine."""
    if find_spec("submitit") is None:
        raise UserError("--launcher slurm needs submitit: pip install 'lightning_tfm[slurm]'")
    if shutil.which("sbatch") is None:
        raise UserError("--launcher slurm: no sbatch on this machine; submit from a login node of the cluster")


def submit(slurm: Slurm, study: str, arguments: list[str], folder: Path, cluster: str = "slurm") -> list[Any]:
    """Submit `slurm.jobs` jobs that run `lightning-tfm work STUDY ARGUMENTS`; logs are in `folder`/slurm.

    Raises UserError where SLURM refuses them: NotSubmitted if it has none. `cluster` local runs them here, for tests.
    """
    from submitit.core.utils import FailedJobError

    executor = _executor(slurm, study, folder, cluster)
    job = WorkerJob([sys.executable, "-m", "lightning_tfm.cli.main", "work", study, *arguments])
    jobs: list[Any] = []
    try:
        with executor.batch() if slurm.array else nullcontext():
            jobs.extend(executor.submit(job) for _ in range(slurm.jobs))
        return jobs
    except FailedJobError as error:
        why = "; ".join(str(error).splitlines())
        if jobs and not slurm.array:
            raise UserError(f"--launcher slurm: {len(jobs)} of {slurm.jobs} jobs were submitted: {why}") from None
        raise NotSubmitted(f"--launcher slurm: {why}; nothing was started") from None


def script(slurm: Slurm, study: str, folder: Path) -> str:
    """What is given to sbatch, as `submit` writes it; nothing is submitted. Raises UserError as `check_here`."""
    check_here()
    executor = _executor(slurm, study, folder, "slurm")._executor
    return executor._make_submission_file_text(executor._submitit_command_str, "ID")


def _executor(slurm: Slurm, study: str, folder: Path, cluster: str) -> Any:
    import submitit

    executor = submitit.AutoExecutor(folder / "slurm", cluster=cluster, slurm_max_num_timeout=slurm.requeues)
    executor.update_parameters(name=f"tfm-{study}", timeout_min=slurm.minutes, cpus_per_task=slurm.cpus)
    if slurm.gpus:
        executor.update_parameters(gpus_per_node=slurm.gpus)
    if cluster == "slurm":
        asked: dict[str, Any] = {
            "partition": slurm.partition,
            "account": slurm.account,
            "qos": slurm.qos,
            "mem": slurm.memory,
        }
        asked |= {"constraint": slurm.constraint, "setup": slurm.lines, "additional_parameters": slurm.options()}
        executor.update_parameters(slurm_signal_delay_s=slurm.stop_seconds)
        executor.update_parameters(**{f"slurm_{name}": value for name, value in asked.items() if value})
    return executor


def any_alive(jobs: list[Any]) -> bool:
    """Whether one of the jobs runs or will run again, by squeue, which needs no accounting; True if it is mute."""
    ids = ",".join(job.job_id for job in jobs)
    command = ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={ids}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:  # it forgets jobs that ended long ago, and says so
        return "Invalid job id" not in done.stderr
    return any(state in LIVING for state in done.stdout.split())
