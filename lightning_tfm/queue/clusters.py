"""Workers as jobs of a cluster: SLURM's, or of any system that runs a command (--launcher slurm | none).

The jobs run `lightning-tfm work`; what they do is decided by the study's queue. Nothing is scheduled here. A launcher
is a class of Cluster and its line in CLUSTERS.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Self

from lightning_tfm.config_validation import check_ranges
from lightning_tfm.errors import UserError
from lightning_tfm.model.config import AT_LEAST_1, NOT_NEGATIVE
from lightning_tfm.runs.process.forking import die_with_parent
from lightning_tfm.schema import Schema

STOP_SECONDS = 90
"""how long before its time limit SLURM warns a job, for the checkpoints of its runs"""
LIVING = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "PREEMPTED", "STOPPED", "SIGNALING"}
LIVING |= {"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "SPECIAL_EXIT", "STAGE_OUT"}
"""states of a job, as squeue prints them, that may run again"""


class Cluster(Schema, ABC):
    """Starts jobs that run one worker each. The fields of a class are its options, `--NAME.field`."""

    name: ClassVar[str]
    """of --launcher"""
    jobs: int = 1
    """how many are submitted"""
    cpus: int = 1
    """CPUs of each"""
    gpus: int = 0
    """GPUs of each"""

    def with_gpus(self, count: int) -> Self:
        """For runs that take `count` GPUs at once per job."""
        return self

    def check_here(self) -> None:
        """Raise UserError where no jobs can be submitted from this machine."""
        return

    @abstractmethod
    def submit(self, study: str, arguments: Sequence[str], folder: Path) -> list[str]:
        """Submit jobs that run `lightning-tfm work ARGUMENTS`, with logs in `folder`/NAME; their ids.

        An empty list where somebody else submits them. Raises UserError; NotSubmitted where no job was.
        """

    @abstractmethod
    def alive(self, jobs: Sequence[str]) -> bool:
        """Whether one of the jobs runs, or will run."""

    def script(self, study: str, arguments: Sequence[str], folder: Path) -> str:
        """What a job runs; nothing is submitted. Raises UserError as `check_here`."""
        return shlex.join(["lightning-tfm", "work", *arguments]) + "\n"


class Elsewhere(Cluster):
    """Jobs that the user starts (--launcher none)."""

    name = "none"

    def submit(self, study: str, arguments: Sequence[str], folder: Path) -> list[str]:
        about = "the runs are queued; start this line in as many jobs as you like, with the working directory"
        print(f"{study}: {about} {Path.cwd()}:", file=sys.stderr)
        print(self.script(study, arguments, folder), end="", flush=True)
        return []

    def alive(self, jobs: Sequence[str]) -> bool:
        return False


@dataclass(frozen=True)
class Slurm(Cluster):
    """What each job requests from SLURM (--launcher slurm)."""

    name = "slurm"
    partition: str = ""
    """partition of the jobs; empty for the cluster's default"""
    minutes: int = field(default=60, metadata=AT_LEAST_1)
    """time limit of a job"""
    jobs: int = field(default=1, metadata=AT_LEAST_1)
    """jobs to submit, one worker each"""
    cpus: int = field(default=1, metadata=AT_LEAST_1)
    """CPUs of each task"""
    gpus: int = field(default=0, metadata=NOT_NEGATIVE)
    """GPUs of each job"""
    requeues: int = field(default=100, metadata=NOT_NEGATIVE)
    """how often a job that runs out of time is queued again"""
    stop_seconds: int = field(default=STOP_SECONDS, metadata=NOT_NEGATIVE)
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

    def __post_init__(self) -> None:
        check_ranges(self, "--slurm")
        self.options()

    def with_gpus(self, count: int) -> Self:
        return replace(self, gpus=self.gpus or count)

    def options(self) -> dict[str, str | bool]:
        """Those of `more`; True for one without a value. Raises UserError."""
        options: dict[str, str | bool] = {}
        for option in (text.strip() for text in self.more.split(";") if text.strip()):
            name, equals, value = option.removeprefix("--").partition("=")
            if name in OWN or not re.fullmatch(r"[a-z][a-z-]*", name) or (equals and not value):
                why = f"is --slurm.{OWN[name]}" if name in OWN else "expected NAME or NAME=VALUE; …"
                raise UserError(f"--slurm.more={self.more}: '{option}': {why}")
            options[name] = value if equals else True
        return options

    def check_here(self) -> None:
        if find_spec("submitit") is None:
            raise UserError("--launcher slurm needs submitit: pip install 'lightning_tfm[slurm]'")
        if shutil.which("sbatch") is None:
            raise UserError("--launcher slurm: no sbatch on this machine; submit from a login node of the cluster")

    def submit(self, study: str, arguments: Sequence[str], folder: Path) -> list[str]:
        return [job.job_id for job in self.submitit_jobs(study, arguments, folder)]

    def submitit_jobs(self, study: str, arguments: Sequence[str], folder: Path, cluster: str = "slurm") -> list[Any]:
        """`jobs` of submitit. Raises UserError as `submit`. `cluster` local runs them here, for tests."""
        from submitit.core.utils import FailedJobError

        executor = self._executor(study, folder, cluster)
        job = WorkerJob([sys.executable, "-m", "lightning_tfm.cli.main", "work", *arguments])
        jobs: list[Any] = []
        try:
            with executor.batch() if self.array else nullcontext():
                jobs.extend(executor.submit(job) for _ in range(self.jobs))
            return jobs
        except FailedJobError as error:
            why = "; ".join(str(error).splitlines())
            if jobs and not self.array:
                raise UserError(f"--launcher slurm: {len(jobs)} of {self.jobs} jobs were submitted: {why}") from None
            raise NotSubmitted(f"--launcher slurm: {why}; nothing was started") from None

    def script(self, study: str, arguments: Sequence[str], folder: Path) -> str:
        """What is given to sbatch, as `submit` writes it."""
        self.check_here()
        executor = self._executor(study, folder, "slurm")._executor
        if self.array and self.jobs > 1:
            executor.parameters["map_count"] = self.jobs  # as submitit does where it submits several
        return executor._make_submission_file_text(executor._submitit_command_str, "ID")

    def _executor(self, study: str, folder: Path, cluster: str) -> Any:
        import submitit

        executor = submitit.AutoExecutor(folder / self.name, cluster=cluster, slurm_max_num_timeout=self.requeues)
        executor.update_parameters(name=f"tfm-{study}", timeout_min=self.minutes, cpus_per_task=self.cpus)
        if self.gpus:
            executor.update_parameters(gpus_per_node=self.gpus)
        if cluster == "slurm":
            lines = [line.strip() for line in self.setup.split(";") if line.strip()]
            parameters: dict[str, Any] = {"partition": self.partition, "account": self.account, "qos": self.qos}
            parameters |= {"mem": self.memory, "constraint": self.constraint, "setup": lines}
            parameters |= {"additional_parameters": self.options()}
            executor.update_parameters(slurm_signal_delay_s=self.stop_seconds)
            executor.update_parameters(**{f"slurm_{name}": value for name, value in parameters.items() if value})
        return executor

    def alive(self, jobs: Sequence[str]) -> bool:
        """By squeue, which needs no accounting; True if it is mute."""
        command = ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={','.join(jobs)}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:  # it forgets jobs that ended long ago, and says so
            return "Invalid job id" not in done.stderr
        return any(state in LIVING for state in done.stdout.split())


CLUSTERS: dict[str, type[Cluster]] = {cls.name: cls for cls in (Slurm, Elsewhere)}
"""by the name of --launcher"""

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
        ended = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)  # stays a zombie: its pid stays ours
        assert ended is not None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _prepare_worker(parent: int) -> None:
    """In the worker's process, before its program: SLURM may send the signal meant for submitit to all."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    die_with_parent(parent)


class NotSubmitted(UserError):
    """No job of a study was."""
