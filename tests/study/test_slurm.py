"""Workers as jobs: what can be checked without a cluster, and through submitit's local one."""

import sys
import time
from pathlib import Path

import pytest

from lightning_tfm.errors import UserError
from lightning_tfm.study.slurm import Slurm, WorkerJob, submit

submitit = pytest.importorskip("submitit", reason="submitit is not installed (extra 'slurm')")


def test_a_job_that_has_to_end_stops_its_worker_and_comes_back(tmp_path: Path, forks) -> None:
    ready = tmp_path / "ready"
    program = f"import pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    job = WorkerJob([sys.executable, "-c", program])
    import threading

    ended: list[str] = []

    def call() -> None:
        try:
            job()
        except RuntimeError as error:
            ended.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    forks.until(ready.exists, 60)
    again = job.checkpoint()
    thread.join(30)
    assert job.process.returncode == -15 and "exit code -15" in ended[0]
    assert again.function.command == job.command and again.function.process is None


def test_without_slurm_it_says_so(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no sbatch on this machine"):
        submit(Slurm(), "s", [], tmp_path)
    assert not (tmp_path / "slurm").exists()


@pytest.mark.long
def test_a_submitted_job_runs_the_verb_work(tmp_path: Path) -> None:
    (job,) = submit(Slurm(minutes=5), "nothing", ["--out", str(tmp_path)], tmp_path, cluster="local")
    end = time.monotonic() + 120
    while not job.done():
        assert time.monotonic() < end
        time.sleep(0.2)
    with pytest.raises(Exception, match="exit code 2"):
        job.result()
    assert "no study 'nothing'" in (job.stderr() or "")
