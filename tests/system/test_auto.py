"""`sweep --seeds auto` as a command: killed in the middle and started again, with two workers."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.helpers.calling import Call, begin
from tests.helpers.tiny import miniature
from tests.helpers.waiting import wait_for

SWEEP = """name: tiny
method: grid
parameters:
  row: {values: [base, E-learned]}
  seed: {values: [7]}
command: [lightning-tfm, fit, --config, experiments/miniature.yaml, "${args}"]
"""
AUTO = ["--seeds", "auto", "--first-seeds", "2", "--max-seeds", "3", "--workers", "2"]


def start(folder: Path, *more: str) -> Call:
    return begin("sweep", str(folder / "tiny.yaml"), *miniature(folder), "--out", str(folder), *more)


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_killed_and_started_again_it_comes_to_the_same_end(tmp_path, how):
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    first = start(tmp_path, *AUTO)
    wait_for(lambda: list(tmp_path.glob("runs/*/result.json")) or first.poll() is not None, 120, "a run", pause=0.05)
    os.kill(first.pid, how)
    first.wait()
    looks = tmp_path / "studies/tiny/looks.json"
    assert json.loads(looks.read_bytes())["first"] == 2  # written before anything runs
    again = start(tmp_path, "--seeds", "auto", "--workers", "2").wait()
    assert again.code == 0, again.err
    record = json.loads(looks.read_bytes())
    assert record["asked"] is None and record["looks"][0] == {"base": [7, 8], "E-learned": [7, 8]}
    last = record["looks"][-1]
    assert last["base"] == last["E-learned"] and len(last["base"]) == len(record["looks"]) + 1
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 2 * len(last["base"])
    page = (tmp_path / "studies/tiny/report.html").read_text()
    assert f"{len(record['looks'])} of at most 2 interim analyses so far" in page
    assert again.out.splitlines()[-1] == str(tmp_path / "studies/tiny/report.html")
    fixed = start(tmp_path, "--seeds", "7-9").wait()
    assert "continue with --seeds auto" in fixed.err and fixed.code == 2
    wrong = start(tmp_path, "--seeds", "7-9", "--max-seeds", "4").wait()
    assert "only with --seeds auto" in wrong.err and wrong.code == 2


def test_who_works_along_stays_until_the_last_look(tmp_path):
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    first = start(tmp_path, *AUTO[:-1], "1")
    wait_for(lambda: list(tmp_path.glob("runs/*")) or first.poll() is not None, 120, "a run", pause=0.05)
    os.kill(first.pid, signal.SIGSTOP)  # its run goes on; the next one is for whom comes along
    helper = begin("work", "tiny", "--out", str(tmp_path), "--workers", "1", "--trainer.threads", "1")
    wait_for(lambda: len(list(tmp_path.glob("runs/*"))) > 1 or helper.poll() is not None, 120, "two runs", pause=0.05)
    os.kill(first.pid, signal.SIGCONT)
    helped = helper.wait()
    assert helped.code == 0, helped.err
    assert json.loads((tmp_path / "studies/tiny/looks.json").read_bytes())["asked"] is None
    whole = first.wait()
    assert whole.code == 0, whole.err
    commands = [json.loads(path.read_bytes())["hardware"]["command"][1] for path in tmp_path.glob("runs/*/result.json")]
    assert set(commands) == {"sweep", "work"}
