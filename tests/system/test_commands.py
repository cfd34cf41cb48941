"""A study from its sweep file to its table, and what the other verbs make of its runs."""

import json
from pathlib import Path

import pytest

from tests.helpers.calling import call
from tests.helpers.tiny import miniature

SWEEP = """name: tiny
method: grid
parameters:
  row: {values: [base, D-Pdrop0.0, E-learned]}
  seed: {values: [1]}
command: [lightning-tfm, fit, --config, experiments/miniature.yaml, "${args}"]
"""


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A results folder with a finished study of three rows."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "tiny.yaml").write_text(SWEEP)
    done = call("sweep", str(folder / "tiny.yaml"), *miniature(folder), "--out", str(folder), "--workers", "2")
    assert "E-learned" in done.out and "–" not in done.out
    report = folder / "studies" / "tiny" / "report.html"
    assert done.out.splitlines()[-1] == str(report) and "3 of 3 runs finished" in report.read_text()
    return folder


def results(out: Path) -> list[dict]:
    return [json.loads(path.read_bytes()) for path in sorted(out.glob("runs/*/result.json"))]


def test_every_cell_ran_once_and_the_table_is_reproduced(out):
    assert [r["attempts"] for r in results(out)] == [1, 1, 1]
    folder = out / "studies" / "tiny"
    before = {name: (folder / name).read_bytes() for name in ("table.md", "table.csv", "table.json")}
    rows = json.loads(before["table.json"])["rows"]
    scores = {r["experiment"]["model"]["positions"]: r["scores"]["dev"]["ppl"] for r in results(out)}
    assert rows[2]["row"] == "E-learned" and rows[2]["ppl"]["mean"] == pytest.approx(scores["learned"], rel=1e-9)
    assert call("table", "tiny", "--format", "markdown", "--out", str(out)).out.encode() == before["table.md"]
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_a_seed_added_later_runs_alone_and_rows_may_be_picked(out):
    call("sweep", str(out / "tiny.yaml"), *miniature(out), "--out", str(out), "--seeds", "1,2", "--only", "D-Pdrop0.0")
    assert len(results(out)) == 5, "the second seed of base and of the row"
    call("resume", "tiny", "--out", str(out))
    assert len(results(out)) == 5, "resumed, it asks for no more than was asked for"
    done = call("sweep", str(out / "tiny.yaml"), *miniature(out), "--out", str(out), "--seeds", "1,2")
    assert "± " in done.out
    assert [r["attempts"] for r in results(out)] == [1] * 6


def test_another_base_under_the_same_name_is_refused(out):
    done = call("sweep", str(out / "tiny.yaml"), *miniature(out), "--training.warmup", "6", "--out", str(out), code=2)
    assert "training.warmup is 6, the study has 5" in done.err and "--name" in done.err


def test_the_same_row_by_fit_is_the_same_run(out):
    argv = ["--config", "experiments/miniature.yaml", *miniature(out), "--row", "D-Pdrop0.0", "--out", str(out)]
    before = len(results(out))
    assert "is already trained" in call("fit", *argv).err
    assert len(results(out)) == before


def test_scoring_with_another_beam_retrains_nothing(out):
    (record,) = [r for r in results(out) if r["experiment"]["model"]["positions"] == "learned"][:1]
    name = record["training_hash"][:16]
    done = call("validate", name, "--evaluation.beam", "2", "--out", str(out))
    assert "dev (val): PPL" in done.out
    assert len(list((out / "runs" / name / "scores").glob("*/val.json"))) == 2
    assert "only evaluation" in call("test", name, "--model.h", "2", "--out", str(out), code=2).err


def test_a_study_that_scores_otherwise_scores_finished_runs_anew_and_trains_nothing(out):
    before = {r["training_hash"]: r["steps"] for r in results(out)}
    scored = {path: path.read_bytes() for path in out.glob("runs/*/scores/*/val.json")}
    wide = [*miniature(out), "--evaluation.beam", "3", "--name", "wide", "--out", str(out)]
    done = call("sweep", str(out / "tiny.yaml"), *wide)
    assert "–" not in done.out and "3 of 3 runs finished" in (out / "studies/wide/report.html").read_text()
    table = json.loads((out / "studies/wide/table.json").read_bytes())
    later = [path for path in out.glob("runs/*/scores/*/val.json") if path not in scored]
    assert len(later) == 3 and {r["training_hash"]: r["steps"] for r in results(out)} == before
    assert {path: path.read_bytes() for path in scored} == scored
    bleu = sorted(json.loads(path.read_bytes())["bleu"] for path in later)
    assert sorted(row["bleu"]["mean"] for row in table["rows"]) == pytest.approx(bleu, abs=1e-3)
    call("export", "wide", "--to", "csv", "--out", str(out))
    runs = (out / "studies/wide/csv/runs.csv").read_text().splitlines()
    place = runs[0].split(",").index("dev/bleu")
    assert sorted(float(line.split(",")[place]) for line in runs[1:]) == bleu


def test_translate_keeps_the_lines_apart(out):
    folder = next(out.glob("runs/*"))
    done = call("translate", str(folder), "--evaluation.extra_len", "3", given="one two\n\nthree\n")
    assert len(done.out.split("\n")) == 4 and done.out.split("\n")[1] == ""


def test_runs_and_doctor(out):
    listed = call("runs", "list", "--out", str(out)).out
    assert listed.count("finished") == len(results(out)) and "tiny/base/1" in listed
    assert "deterministic" in call("doctor").out


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
    asked = ["tune", str(tmp_path / "found.yaml"), *miniature(tmp_path), "--trials", "3", "--out", str(tmp_path)]
    done = call(*asked, "--workers", "2")
    page = tmp_path / "studies" / "found" / "report.html"
    assert done.out.splitlines()[-1] == str(page)
    trials = json.loads(page.with_name("trials.json").read_bytes())
    assert [trial["trial"] for trial in trials] == ["base", "t0001", "t0002"]
    assert all(trial["trial"] in page.read_text() for trial in trials)
    made = sorted(tmp_path.glob("runs/*/result.json"))
    assert len(made) == 3
    call("fit", "--config", str(page.with_name("best.yaml")), "--trainer.threads", "1", "--out", str(tmp_path))
    assert sorted(tmp_path.glob("runs/*/result.json")) == made, "its run is there already"
