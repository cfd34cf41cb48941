"""`fit` and `sweep` ask for one run at the same time: it is trained once, and both have its result."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_tfm.runs.outcome import EXIT_CODES
from tests.helpers import held
from tests.helpers.tiny import write_corpus
from tests.helpers.waiting import wait_for

ROOT = Path(__file__).parents[2]
SIZES = {"model.N": 1, "model.d_model": 16, "model.d_ff": 16, "model.h": 2, "model.d_k": 8, "model.d_v": 8}
SIZES |= {
    "data.corpus": "files",
    "data.vocab_size": 44,
    "training.tokens": 200,
    "training.steps": 900,
    "training.warmup": 90,
}
SIZES |= {"model.positions": held.NAME}
SIZES |= {"evaluation.extra_len": 4, "trainer.log_every": 10, "trainer.threads": 1, "trainer.accelerator": "cpu"}
SWEEP = """name: both
method: grid
parameters:
  row: {values: [base]}
  seed: {values: [1]}
command: [lightning-tfm, fit, "${args}"]
"""


@pytest.mark.long
@pytest.mark.parametrize("first", ["fit", "sweep"])
def test_one_run_is_trained_once(tmp_path: Path, forks, first: str, monkeypatch) -> None:
    monkeypatch.setenv(held.VARIABLE, str(tmp_path / "go"))
    (tmp_path / "both.yaml").write_text(SWEEP)
    out, text = tmp_path / "out", write_corpus(tmp_path / "text")
    options = [f"--{k}={v}" for k, v in (SIZES | {"data.folder": str(text), "out": str(out)}).items()]
    commands = {"fit": ["fit", "--seed=1"], "sweep": ["sweep", str(tmp_path / "both.yaml"), "--workers=1"]}
    started = {}
    for name in sorted(commands, key=lambda name: name != first):
        command = [sys.executable, "-m", "lightning_tfm.cli.main", *commands[name], *options]
        with (tmp_path / name).open("w") as file:
            started[name] = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
        if name == first:
            wait_for(lambda: list(out.glob("runs/*/progress.json")), 90)
    if first == "fit":
        wait_for(lambda: list(out.glob("studies/both/cells/*/*.json")), 90)
    else:
        started["fit"].wait(90)
    (tmp_path / "go").touch()
    codes = {name: process.wait(200) for name, process in started.items()}
    said = {name: (tmp_path / name).read_text() for name in commands}
    assert codes["sweep"] == 0, said
    if first == "fit":
        assert codes["fit"] == 0, said
    else:
        assert codes["fit"] == EXIT_CODES["owned"] and "is working on this run" in said["fit"], said
    (run,) = out.glob("runs/*")
    assert json.loads((run / "result.json").read_text())["attempts"] == 1
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert set(range(10, 901, 10)) <= set(steps) and steps == sorted(steps)
    assert "base" in said["sweep"] and "1 of 1" in (out / "studies" / "both" / "report.html").read_text()
