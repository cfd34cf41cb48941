"""`sweep --seeds auto` as a command: killed in the middle and started again, with two workers."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.family import leads_group, offspring
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
TINY = ["--miniature.width", "64", "--miniature.depth", "6", "--data.pairs", "300", "--data.vocab_size", "300"]
TINY += ["--training.steps", "600", "--training.warmup", "50", "--trainer.threads", "1"]
TINY += ["--evaluation.beam", "1", "--evaluation.extra_len", "4"]
SWEEP = """name: tiny
method: grid
parameters:
  row: {values: [base, E-learned]}
  seed: {values: [7]}
command: [lightning-tfm, fit, --config, experiments/miniature.yaml, "${args}"]
"""
AUTO = ["--seeds", "auto", "--first-seeds", "2", "--max-seeds", "3", "--workers", "2"]


def start(folder: Path, *more: str) -> subprocess.Popen:
    return command("sweep", str(folder / "tiny.yaml"), *TINY, "--out", str(folder), *more)


def command(*argv: str) -> subprocess.Popen:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-m", "lightning_tfm.cli.main", *argv], cwd=ROOT, text=True, stdout=pipe, stderr=pipe
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_killed_and_started_again_it_comes_to_the_same_end(tmp_path, how):
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    first = start(tmp_path, *AUTO)
    wait_for(lambda: list(tmp_path.glob("runs/*/result.json")) or first.poll() is not None, 120, "a run", pause=0.05)
    os.kill(first.pid, how)
    first.communicate()
    looks = tmp_path / "studies/tiny/looks.json"
    assert json.loads(looks.read_bytes())["first"] == 2  # written before anything runs
    again = start(tmp_path, "--seeds", "auto", "--workers", "2")
    out, error = again.communicate()
    assert again.returncode == 0, error
    record = json.loads(looks.read_bytes())
    assert record["asked"] is None and record["looks"][0] == {"base": [7, 8], "E-learned": [7, 8]}
    last = record["looks"][-1]
    assert last["base"] == last["E-learned"] and len(last["base"]) == len(record["looks"]) + 1
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 2 * len(last["base"])
    page = (tmp_path / "studies/tiny/report.html").read_text()
    assert f"{len(record['looks'])} of at most 2 looks so far" in page
    assert out.splitlines()[-1] == str(tmp_path / "studies/tiny/report.html")
    fixed = start(tmp_path, "--seeds", "7-9")
    assert "continue with --seeds auto" in fixed.communicate()[1] and fixed.returncode == 2
    wrong = start(tmp_path, "--seeds", "7-9", "--max-seeds", "4")
    assert "only with --seeds auto" in wrong.communicate()[1] and wrong.returncode == 2


def test_who_works_along_stays_until_the_last_look(tmp_path):
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    first = start(tmp_path, *AUTO[:-1], "1")
    wait_for(lambda: list(tmp_path.glob("runs/*")) or first.poll() is not None, 120, "a run", pause=0.05)
    (worker,) = (pid for pid in offspring(first.pid) if leads_group(pid))
    os.kill(worker, signal.SIGSTOP)  # its run goes on; the next one is for whom comes along, however fast the machine
    helper = command("work", "tiny", "--out", str(tmp_path), "--workers", "1", "--trainer.threads", "1")
    wait_for(lambda: len(list(tmp_path.glob("runs/*"))) > 1 or helper.poll() is not None, 120, "two runs", pause=0.05)
    os.kill(worker, signal.SIGCONT)
    error = helper.communicate()[1]
    assert helper.returncode == 0, error
    assert json.loads((tmp_path / "studies/tiny/looks.json").read_bytes())["asked"] is None
    error = first.communicate()[1]
    assert first.returncode == 0, error
    commands = [json.loads(path.read_bytes())["hardware"]["command"][1] for path in tmp_path.glob("runs/*/result.json")]
    assert set(commands) == {"sweep", "work"}
