"""Workers as jobs: what can be checked without a cluster, through submitit's local one, and on a real SLURM."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.config import Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.queue import clusters
from lightning_tfm.queue.clusters import CLUSTERS, Slurm, WorkerJob
from lightning_tfm.queue.launch import job_arguments
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.resources import Resources, make_resources
from lightning_tfm.queue.storage import find_storage
from lightning_tfm.watch.study_state import CellState
from tests.helpers import held
from tests.helpers.tiny import miniature, write_corpus
from tests.helpers.waiting import free_ports, wait_for

ROOT = Path(__file__).parents[2]


def resources(hardware: Hardware, runs: int = 0, **asked: int) -> Resources:
    options = {"workers": 0, "no_shared_files": False, "storage": "", "devices_per_run": 0, "wandb": "off"}
    options |= {"runs_per_device": runs, "launcher": "slurm", "slurm": vars(Slurm(**asked))}
    return make_resources(options, hardware)


def test_workers_of_a_job_are_those_of_its_gpus() -> None:
    gpu = Hardware(accelerator="gpu")
    assert resources(gpu, gpus=4, cpus=8).workers == 4
    assert resources(replace(gpu, devices=2), gpus=4).workers == 2
    shared = resources(gpu, gpus=2, runs=8)
    assert (shared.workers, shared.devices) == (16, None), "the job finds its devices"
    arguments = job_arguments("s", Path("results"), shared)
    assert arguments[arguments.index("--runs-per-device") + 1] == "8" and "--trainer.accelerator=gpu" in arguments


def test_a_job_that_has_to_end_stops_its_worker_and_comes_back(tmp_path: Path, forks) -> None:
    ready = tmp_path / "ready"
    program = f"import pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(250)"
    job = WorkerJob([sys.executable, "-c", program])
    again = []

    def near_the_limit(number: int, frame: object) -> None:  # submitit's handler, called while the job waits
        assert job.process.poll() is None, "SLURM's signal is not for the worker"
        again.append(job.checkpoint())

    def tell() -> None:
        wait_for(ready.exists)
        for pid in (job.process.pid, os.getpid()):
            os.kill(pid, signal.SIGUSR2)

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)]
    signal.signal(signal.SIGUSR2, near_the_limit)
    thread = threading.Thread(target=tell)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="exit code -15"):
            job()
        job.process.wait()
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGUSR2), before, strict=True):
            signal.signal(number, handler)
        thread.join(30)
    assert again[0].function.command == job.command and again[0].function.process is None


def test_a_job_that_is_told_to_end_tells_its_worker_and_leaves_the_rest_to_slurm(tmp_path: Path, forks) -> None:
    ready, told = tmp_path / "ready", tmp_path / "told"
    program = (
        "import pathlib, signal, sys, time\n"
        f"def end(*_): pathlib.Path({str(told)!r}).touch(); sys.exit(0)\n"
        f"signal.signal(signal.SIGTERM, end); pathlib.Path({str(ready)!r}).touch(); time.sleep(250)"
    )
    pid = forks.start(lambda: WorkerJob([sys.executable, "-c", program])())
    wait_for(ready.exists)
    os.kill(pid, signal.SIGTERM)
    assert forks.join(pid) == 143 and told.exists()


@pytest.mark.parametrize("verb", ["sweep sweeps/table3.yaml", "tune sweeps/search.yaml"])
def test_without_slurm_it_says_so_and_leaves_no_study(tmp_path: Path, monkeypatch, capsys, verb: str) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([*verb.split(), "--launcher", "slurm", "--out", str(tmp_path / "out")]) == 2
    assert "no sbatch on this machine" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("array", ["true", "false"])
def test_jobs_that_slurm_refuses_leave_no_study(tmp_path: Path, monkeypatch, capsys, array: str) -> None:
    (sbatch := tmp_path / "bin" / "sbatch").parent.mkdir()
    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: no' >&2\necho 'sbatch: fatal: such account' >&2\nexit 1\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(sbatch.parent), prepend=":")
    asked = ["sweep", "sweeps/table3.yaml", "--only", "base", "--launcher", "slurm", f"--slurm.array={array}"]
    command = [*asked, *miniature(tmp_path), "--out", str(tmp_path / "out")]
    assert main(command) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith("lightning-tfm: --launcher slurm: sbatch: error: no; sbatch: fatal: such account")
    assert told[-1].endswith("; nothing was started") and not (tmp_path / "out" / "studies" / "table3").exists()
    (tmp_path / "out" / "studies" / "table3").mkdir()
    assert main(command) == 2 and (tmp_path / "out" / "studies" / "table3").is_dir(), "it was there before"


@pytest.mark.parametrize("verb", ["sweep sweeps/table3.yaml", "tune sweeps/search.yaml", "demo", "work mine"])
def test_a_study_under_torchrun_is_refused_in_a_line(tmp_path: Path, monkeypatch, capsys, verb: str) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, str(int("SIZE" in name)))
    assert main([*verb.split(), "--out", str(tmp_path / "out")]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "type the same without torchrun, --workers N" in line and not (tmp_path / "out").exists()


SCRIPT = """
#SBATCH --account=physics
#SBATCH --constraint=a100
#SBATCH --cpus-per-task=4
#SBATCH --exclude=n1,n2
#SBATCH --exclusive
#SBATCH --gpus-per-node=2
#SBATCH --mem=16G
#SBATCH --partition=long
#SBATCH --qos=high
#SBATCH --reservation=night
#SBATCH --signal=USR2@60
#SBATCH --time=240
module load cuda
source env.sh
"""


def test_the_script_asks_for_what_the_user_named(tmp_path: Path, monkeypatch, capsys) -> None:
    for name in ("sbatch", "srun"):
        (tmp_path / name).write_text("#!/bin/sh\necho error: invalid account >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    options = "--launcher slurm --slurm.account physics --slurm.constraint a100 --slurm.cpus 4 --slurm.memory 16G "
    options += "--slurm.qos high --slurm.partition long --slurm.stop_seconds 60 --slurm.minutes 240 "
    options += "--trainer.accelerator gpu --devices-per-run 2"
    setup = ["--slurm.setup", "module load cuda; source env.sh"]
    more = "reservation=night; --exclude=n1,n2; exclusive"
    command = ["sweeps/table3.yaml", *options.split(), *setup, f"--out={tmp_path / 'out'}"]
    assert main(["plan", *command, f"--slurm.more={more}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in SCRIPT.strip().splitlines() if line not in lines] == []
    assert lines.index("source env.sh") < next(i for i, line in enumerate(lines) if line.startswith("srun"))
    assert main(["sweep", *command, "--slurm.more=mem=4G"]) == 2
    assert "--slurm.more=mem=4G: 'mem=4G': is --slurm.memory" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"^--launcher slurm: error: invalid account"):
        Slurm().submit("s", [], tmp_path)


def test_the_jobs_of_a_study_are_one_array_where_asked(tmp_path: Path, monkeypatch) -> None:
    given = tmp_path / "given"
    (tmp_path / "sbatch").write_text(f'#!/bin/sh\ncat "$1" >> {given}\necho Submitted batch job 7\n')
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    for name in ("sbatch", "srun"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert Slurm(jobs=3, array=True).submit("s", [], tmp_path) == ["7_0", "7_1", "7_2"]
    assert given.read_text().count("#SBATCH --array=0-2") == 1
    assert Slurm(jobs=3, array=True).script("s", [], tmp_path).count("#SBATCH --array=0-2") == 1
    assert len(Slurm(jobs=2).submit("s", [], tmp_path)) == 2 and given.read_text().count("--array") == 1


def test_launcher_none_prints_what_a_job_runs_and_then_shows_what_the_jobs_left(tmp_path: Path, capsys) -> None:
    auto = ["--seeds", "auto", "--first-seeds", "2", "--max-seeds", "2", "--only", "A-h1"]
    command = ["sweep", "sweeps/table3.yaml", *auto, "--launcher", "none", *miniature(tmp_path), f"--out={tmp_path}"]
    assert main(command) == 0
    told = capsys.readouterr()
    (line,) = told.out.splitlines()
    assert str(Path.cwd()) in told.err and f"lightning-tfm status table3 --out {tmp_path}" in told.err
    program, *words = shlex.split(line)
    assert program == "lightning-tfm" and words[:2] == ["work", "table3"] and "--trainer.threads=1" in words
    assert main(["status", "table3", f"--out={tmp_path}"]) == 0
    assert "0 finished, 0 running, 4 waiting" in capsys.readouterr().out
    assert main(words) == 0
    assert main(command) == 0
    told = capsys.readouterr()
    assert "lightning-tfm work" not in told.out and "A-h1" in told.out and "the runs are queued" not in told.err


@dataclass(frozen=True)
class Printer(clusters.Cluster):
    """A cluster of printers."""

    name = "printer"
    paper: str = "A4"
    """size of the paper"""

    def submit(self, study: str, arguments: Sequence[str], folder: Path) -> list[str]:
        (folder / "printed").write_text(f"{self.paper}: {shlex.join(arguments)}")
        return ["7"]

    def alive(self, jobs: Sequence[str]) -> bool:
        return jobs != ["7"]


def test_a_launcher_is_a_class_and_a_line(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(CLUSTERS, Printer.name, Printer)
    monkeypatch.setattr("lightning_tfm.queue.launch.JOBS_EVERY", 0.0)
    short = ["--only", "base", *miniature(tmp_path), f"--out={tmp_path / 'out'}"]
    assert main(["sweep", "sweeps/table3.yaml", *short, "--printer.paper", "A5"]) == 2
    assert "--printer.paper=A5 needs --launcher printer" in capsys.readouterr().err
    assert main(["sweep", "sweeps/table3.yaml", *short, "--launcher", "printer", "--printer.paper", "A5"]) == 2
    assert "jobs 7; Ctrl-C ends this view" in (err := capsys.readouterr().err) and "all jobs ended before" in err
    study = tmp_path / "out" / "studies" / "table3"
    assert (study / "printed").read_text().startswith("A5: table3 --out ")
    assert json.loads((study / "workers.json").read_text())["options"]["printer"] == {"paper": "A5"}


def test_jobs_ask_for_the_gpus_that_their_runs_take() -> None:
    def gpus(hardware: Hardware, runs: int = 0, **asked: int) -> int:
        return resources(hardware, runs, **asked).cluster.gpus

    gpu = Hardware(accelerator="gpu")
    assert [gpus(gpu), gpus(gpu, gpus=4), gpus(replace(gpu, devices=2)), gpus(Hardware())] == [1, 4, 2, 0]


def test_the_state_of_jobs_is_asked_of_squeue(tmp_path: Path, monkeypatch) -> None:
    fake = tmp_path / "squeue"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for script, alive in (
        ("echo CANCELLED; echo RUNNING", True),
        ("echo CANCELLED; echo COMPLETED", False),
        ("echo PENDING", True),
        ("echo 'Invalid job id specified' >&2; exit 1", False),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", True),
    ):
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        assert Slurm().alive(["7"]) == alive, script


@pytest.mark.alone
@pytest.mark.long
def test_a_submitted_job_runs_the_verb_work(tmp_path: Path) -> None:
    (job,) = Slurm(minutes=5).submitit_jobs("nothing", ["nothing", "--out", str(tmp_path)], tmp_path, cluster="local")
    wait_for(job.done, pause=0.2)
    with pytest.raises(Exception, match="exit code 2"):
        job.result()
    assert "no study 'nothing'" in (job.stderr() or "")


PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
PATIENCE = 60.0
TEMPLATE = Path(__file__).with_name("slurm.conf")


class NoSlurm(Exception):
    """Its programs are not installed; the message names them. One that is installed and does not start is a failure."""


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Start it; yields the environment in which its commands find it. Raises NoSlurm."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        raise NoSlurm(f"{', '.join(missing)} not found (Debian: slurm-wlm)")
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    configuration = folder / "slurm.conf"
    port, node = free_ports(2)
    configuration.write_text(TEMPLATE.read_text().format(host=host, user=user, folder=folder, port=port, node=node))
    environment = os.environ | {"SLURM_CONF": str(configuration), "PATH": path}
    with ExitStack() as stack:
        for command in (["slurmctld", "-D"], ["slurmd", "-D", "-N", "node1"]):
            stack.enter_context(_daemon(command, environment, folder / f"{'-'.join(command)}.log"))
        _wait_for_node(environment, folder)
        yield environment


@contextmanager
def _daemon(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("w") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_node(environment: dict[str, str], folder: Path) -> None:
    def found() -> subprocess.CompletedProcess:
        asked = ["sinfo", "--noheader", "--Node", "--format=%t"]
        return subprocess.run(asked, env=environment, capture_output=True, text=True)

    def logs() -> str:
        last = found()
        return "\n".join(
            [last.stdout, last.stderr, *(path.read_text()[-600:] for path in sorted(folder.glob("*.log")))]
        )

    wait_for(lambda: found().stdout.split() == ["idle"], PATIENCE, logs, pause=0.5)


STEPS = 480
TINY = {"model.N": 1, "model.d_model": 16, "model.d_ff": 16, "model.h": 2, "model.d_k": 8, "model.d_v": 8}
TINY |= {"model.positions": held.NAME, "data.corpus": "files", "data.vocab_size": 44, "training.tokens": 200}
TINY |= {"training.steps": STEPS, "training.warmup": 50, "evaluation.extra_len": 4, "evaluation.beam": 1}
TINY |= {"trainer.checkpoint_every": 20, "trainer.log_every": 10, "trainer.threads": 1, "trainer.accelerator": "cpu"}
SWEEP = """name: cluster
method: grid
parameters:
  row: {values: [base]}
  seed: {values: [1, 2, 3, 4, 5, 6]}
command: [lightning-tfm, fit, "${args}"]
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, str]]:
    try:
        with slurm(tmp_path / "slurm") as environment:
            yield environment
    except NoSlurm as why:
        warnings.warn(f"NOT TESTED, no SLURM could be started: {why}", stacklevel=1)
        pytest.skip(f"no SLURM: {why}")


class Cluster:
    """A study on it, watched from outside."""

    def __init__(self, out: Path, environment: dict[str, str]) -> None:
        self.out, self.environment = out, environment
        self.folder = out / "studies" / "cluster"

    def call(self, *command: str) -> str:
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout

    def states(self) -> list[CellState]:
        if not (self.folder / "journal.log").exists():
            return []
        return Queue("cluster", find_storage("", self.folder), lambda text: None, create=False).states()

    def at_work(self) -> dict[str, int]:
        """SLURM job -> seed of the run that it trains, once it has a checkpoint."""
        found = {}
        for state in self.states():
            if state.owner is None or not list(self._run(state).glob("checkpoints/step-*.ckpt")):
                continue
            try:
                variables = Path(f"/proc/{state.owner.pid}/environ").read_bytes().split(b"\0")
            except FileNotFoundError:  # gone in this moment
                continue
            job = next(v.partition(b"=")[2].decode() for v in variables if v.startswith(b"SLURM_JOB_ID="))
            found[job] = state.cell.seed
        return found

    def _run(self, state: CellState) -> Path:
        return self.out / "runs" / state.cell.training_hash[:16]

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted((self.folder / "slurm").glob("*_log.*")))


@pytest.mark.alone
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_study_on_a_real_slurm_outlives_a_requeue_a_time_limit_and_a_cancellation(tmp_path: Path, cluster) -> None:
    (tmp_path / "cluster.yaml").write_text(SWEEP)
    out, text = tmp_path / "out", write_corpus(tmp_path / "text", longest=22)
    environment = cluster | {"PYTHONPATH": str(ROOT), "COLUMNS": "80", held.VARIABLE: str(tmp_path / "never")}
    options = [f"--{key}={value}" for key, value in (TINY | {"data.folder": str(text), "out": str(out)}).items()]
    options += ["--workers=1", "--launcher=slurm", "--slurm.jobs=3", "--slurm.minutes=1", "--slurm.stop_seconds=5"]
    command = [sys.executable, "-m", "lightning_tfm.cli.main", "sweep", str(tmp_path / "cluster.yaml"), *options]
    study = Cluster(out, environment)
    shown = tmp_path / "shown"
    with shown.open("w") as file:
        launcher = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=file, stderr=file)
    try:
        wait_for(lambda: launcher.poll() is not None or len(study.at_work()) >= 2, pause=0.5)
        (requeued, first), (cancelled, second), *_ = study.at_work().items()
        study.call("scontrol", "requeue", requeued)
        study.call("scancel", cancelled)
        assert launcher.wait(400) == 0, shown.read_text() + study.logs()
    finally:
        if launcher.poll() is None:
            launcher.terminate()
            launcher.wait()
        subprocess.run(["scancel", "--user", study.call("id", "-un").strip()], env=environment)
    states = {state.cell.seed: state for state in study.states()}
    assert {state.state for state in states.values()} == {"finished"} and sorted(states) == [1, 2, 3, 4, 5, 6]
    assert states[first].attempt > 1 and states[second].attempt > 1
    jobs = study.call("scontrol", "show", "job")
    describe = {block.split()[0].partition("=")[2]: block for block in jobs.split("\n\n") if block.strip()}
    assert "JobState=CANCELLED" in describe[cancelled] and "Restarts=0" in describe[cancelled]
    assert "Restarts=0" not in describe[requeued]
    assert "this job is timed-out" in study.logs(), "a time limit was meant to be met"
    for state in states.values():
        folder = out / "runs" / state.cell.training_hash[:16]
        steps = [record["step"] for record in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())]
        losses = [step for step in steps if step % 10 == 0]
        assert json.loads((folder / "result.json").read_text())["steps"] == STEPS
        assert sorted(set(losses)) == list(range(10, STEPS + 1, 10))
