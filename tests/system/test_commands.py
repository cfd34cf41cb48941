"""A study from its sweep file to its table, and what the other verbs make of its runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TINY = ["--miniature.width", "64", "--miniature.depth", "6", "--data.pairs", "300", "--data.vocab_size", "300"]
TINY += ["--training.steps", "600", "--training.warmup", "50", "--trainer.threads", "1"]
TINY += ["--evaluation.beam", "1", "--evaluation.extra_len", "4"]  # untrained models do not end their sentences
SWEEP = """name: tiny
method: grid
parameters:
  row: {values: [base, D-Pdrop0.0, E-learned]}
  seed: {values: [1]}
command: [lightning-tfm, fit, --config, experiments/miniature.yaml, "${args}"]
"""


def run(*argv: str, code: int = 0, given: str = "") -> subprocess.CompletedProcess:
    done = subprocess.run(
        [sys.executable, "-m", "lightning_tfm.cli.main", *argv],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "80"},
        input=given,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A results folder with a finished study of three rows."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "tiny.yaml").write_text(SWEEP)
    done = run("sweep", str(folder / "tiny.yaml"), *TINY, "--out", str(folder), "--workers", "2")
    assert "E-learned" in done.stdout and "–" not in done.stdout
    report = folder / "studies" / "tiny" / "report.html"
    assert done.stdout.splitlines()[-1] == str(report) and "3 of 3 runs finished" in report.read_text()
    return folder


def results(out: Path) -> list[dict]:
    return [json.loads(path.read_bytes()) for path in sorted(out.glob("runs/*/result.json"))]


def test_every_cell_ran_once_and_the_table_is_reproduced(out):
    assert [r["attempts"] for r in results(out)] == [1, 1, 1]
    folder = out / "studies" / "tiny"
    before = {name: (folder / name).read_bytes() for name in ("table.md", "table.csv", "table.json")}
    rows = json.loads(before["table.json"])["rows"]
    scores = {r["experiment"]["model"]["positions"]: r["scores"]["dev"]["ppl"] for r in results(out)}
    assert rows[2]["row"] == "E-learned" and rows[2]["dev PPL"]["mean"] == scores["learned"]
    assert run("table", "tiny", "--format", "markdown", "--out", str(out)).stdout.encode() == before["table.md"]
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_a_seed_added_later_runs_alone(out):
    done = run("sweep", str(out / "tiny.yaml"), *TINY, "--out", str(out), "--seeds", "1,2")
    assert "± " in done.stdout
    assert [r["attempts"] for r in results(out)] == [1] * 6


def test_another_base_under_the_same_name_is_refused(out):
    done = run("sweep", str(out / "tiny.yaml"), *TINY, "--training.warmup", "60", "--out", str(out), code=2)
    assert "training.warmup is 60, the study has 50" in done.stderr and "--name" in done.stderr


def test_the_same_row_by_fit_is_the_same_run(out):
    argv = ["--config", "experiments/miniature.yaml", *TINY, "--row", "D-Pdrop0.0", "--out", str(out)]
    before = len(results(out))
    assert "is trained already" in run("fit", *argv).stderr
    assert len(results(out)) == before


def test_scoring_with_another_beam_retrains_nothing(out):
    (record,) = [r for r in results(out) if r["experiment"]["model"]["positions"] == "learned"][:1]
    name = record["training_hash"][:16]
    done = run("validate", name, "--evaluation.beam", "2", "--out", str(out))
    assert "dev (val): PPL" in done.stdout
    assert len(list((out / "runs" / name / "scores").glob("*/val.json"))) == 2
    assert "only evaluation" in run("test", name, "--model.h", "2", "--out", str(out), code=2).stderr


def test_translate_keeps_the_lines_apart(out):
    folder = next(out.glob("runs/*"))
    done = run("translate", str(folder), "--evaluation.extra_len", "3", given="one two\n\nthree\n")
    assert len(done.stdout.split("\n")) == 4 and done.stdout.split("\n")[1] == ""


def test_runs_and_doctor(out):
    listed = run("runs", "list", "--out", str(out)).stdout
    assert listed.count("finished") == len(results(out)) and "tiny/base/1" in listed
    assert "deterministic" in run("doctor").stdout


SEARCH = """name: found
method: random
metric: {name: dev/ppl, goal: minimize}
parameters:
  training.lr_factor: {distribution: log_uniform_values, min: 0.1, max: 2.0}
  model.h: {values: [1, 2]}
command: [lightning-tfm, fit, --config, experiments/miniature.yaml, "${args}"]
"""


def test_a_search_ends_with_its_best_configuration_and_its_page(tmp_path):
    (tmp_path / "found.yaml").write_text(SEARCH)
    asked = ["tune", str(tmp_path / "found.yaml"), *TINY, "--trials", "3", "--out", str(tmp_path)]
    done = run(*asked, "--workers", "2")
    page = tmp_path / "studies" / "found" / "report.html"
    assert done.stdout.splitlines()[-1] == str(page)
    assert all(f"t000{number}" in page.read_text() for number in range(3))
    made = sorted(tmp_path.glob("runs/*/result.json"))
    assert len(made) == 3
    run("fit", "--config", str(page.with_name("best.yaml")), "--trainer.threads", "1", "--out", str(tmp_path))
    assert sorted(tmp_path.glob("runs/*/result.json")) == made, "its run is there already"
