"""Commands one after another, at once, and watched."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.cli.train.demo import BEGIN, NEXT
from lightning_tfm.cli.train.fit import _watching
from lightning_tfm.runs.outcome import EXIT_CODES
from lightning_tfm.runs.process.forking import exit_on_signals
from lightning_tfm.study.cell import Cell
from tests.helpers import held
from tests.helpers.calling import Call, begin, call
from tests.helpers.tiny import miniature, write_corpus
from tests.helpers.waiting import wait_for

SWEEP = """name: %s
method: grid
parameters:
  row: {values: [%s]}
  seed: {values: [%d]}
command: [lightning-tfm, fit, %s"${args}"]
"""
MINIATURE = "--config, experiments/miniature.yaml, "


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A results folder with a finished study of three rows."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "tiny.yaml").write_text(SWEEP % ("tiny", "base, D-Pdrop0.0, E-learned", 1, MINIATURE))
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


ROOT = Path(__file__).parents[2]
SIZES = {"model.N": 1, "model.d_model": 16, "model.d_ff": 16, "model.h": 2, "model.d_k": 8, "model.d_v": 8}
SIZES |= {
    "data.corpus": "files",
    "data.vocab_size": 44,
    "training.tokens": 200,
    "training.steps": 180,
    "training.warmup": 18,
}
SIZES |= {"model.positions": held.NAME}
SIZES |= {"evaluation.extra_len": 4, "trainer.log_every": 2, "trainer.threads": 1, "trainer.accelerator": "cpu"}


@pytest.mark.long
@pytest.mark.parametrize("first", ["fit", "sweep"])
def test_one_run_is_trained_once(tmp_path: Path, forks, first: str, monkeypatch) -> None:
    monkeypatch.setenv(held.VARIABLE, str(tmp_path / "go"))
    monkeypatch.setenv("HELD_SECONDS", "0.1")
    (tmp_path / "both.yaml").write_text(SWEEP % ("both", "base", 1, ""))
    out, text = tmp_path / "out", write_corpus(tmp_path / "text")
    options = [f"--{k}={v}" for k, v in (SIZES | {"data.folder": str(text), "out": str(out)}).items()]
    commands = {"fit": ["fit", "--seed=1"], "sweep": ["sweep", str(tmp_path / "both.yaml"), "--workers=1"]}
    started = {}
    for name in sorted(commands, key=lambda name: name != first):
        command = [sys.executable, "-m", "lightning_tfm.cli.main", *commands[name], *options]
        with (tmp_path / name).open("w") as file:
            started[name] = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
        if name == first:
            wait_for(lambda: list(out.glob("runs/*/progress.json")))
    if first == "fit":
        wait_for(lambda: list(out.glob("studies/both/cells/*/*.json")))
    else:
        started["fit"].wait(240)
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
    assert set(range(2, 181, 2)) <= set(steps) and steps == sorted(steps)
    assert "base" in said["sweep"] and "1 of 1" in (out / "studies" / "both" / "report.html").read_text()


AUTO_SWEEP = SWEEP % ("tiny", "base, E-learned", 7, MINIATURE)
AUTO = ["--seeds", "auto", "--first-seeds", "2", "--max-seeds", "3", "--workers", "2"]


def start(folder: Path, *more: str) -> Call:
    return begin("sweep", str(folder / "tiny.yaml"), *miniature(folder), "--out", str(folder), *more)


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_killed_and_started_again_it_comes_to_the_same_end(tmp_path, how):
    (tmp_path / "tiny.yaml").write_text(AUTO_SWEEP)
    first = start(tmp_path, *AUTO)
    wait_for(lambda: list(tmp_path.glob("runs/*/result.json")) or first.poll() is not None, what="a run", pause=0.05)
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
    (tmp_path / "tiny.yaml").write_text(AUTO_SWEEP)
    first = start(tmp_path, *AUTO[:-1], "1")
    wait_for(lambda: list(tmp_path.glob("runs/*")) or first.poll() is not None, what="a run", pause=0.05)
    os.kill(first.pid, signal.SIGSTOP)  # its run goes on; the next one is for whom comes along
    helper = begin("work", "tiny", "--out", str(tmp_path), "--workers", "1", "--trainer.threads", "1")
    wait_for(lambda: len(list(tmp_path.glob("runs/*"))) > 1 or helper.poll() is not None, what="two runs", pause=0.05)
    os.kill(first.pid, signal.SIGCONT)
    helped = helper.wait()
    assert helped.code == 0, helped.err
    assert json.loads((tmp_path / "studies/tiny/looks.json").read_bytes())["asked"] is None
    whole = first.wait()
    assert whole.code == 0, whole.err
    commands = [json.loads(path.read_bytes())["hardware"]["command"][1] for path in tmp_path.glob("runs/*/result.json")]
    assert set(commands) == {"sweep", "work"}


def demo(folder: Path) -> Call:
    return Call(lambda: main(["demo"]), folder=folder)


def test_resume_goes_on_with_it(tmp_path, monkeypatch, capsys):
    begun = []

    def stopped(study, cells, root, resources, start):
        begun.append(root)
        raise KeyboardInterrupt

    monkeypatch.setattr("lightning_tfm.queue.launch.work", stopped)
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--out", "there"]) == main(["resume", "demo", "--out", "there"]) == 130
    said = capsys.readouterr().err
    assert said.splitlines()[-1] == f"stopped; to resume: lightning-tfm resume demo --out {tmp_path}/there"
    assert "`lightning-tfm demo --out there` resumes" in said
    assert begun == [Path("there"), tmp_path / "there"]


def test_no_line_of_it_is_broken_on_80_columns():
    names = {"run": "6c9988d847327cac", "dashboard": "lightning-tfm dashboard"}
    said = BEGIN + NEXT.format(source="Ta kupin no bilsened.", **names)
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.long
def test_the_demo_is_stopped_goes_on_and_is_repeated(tmp_path):
    first = demo(tmp_path)
    wait_for(lambda: list(tmp_path.glob("results/runs/*/checkpoints/step-*.ckpt")), what="a checkpoint")
    os.kill(first.pid, signal.SIGINT)
    said = first.wait()
    assert said.code == 130 and "resumes from the last checkpoint" in said.err and "Traceback" not in said.err
    second = demo(tmp_path).wait()
    assert second.code == 0, second.err
    found = re.search(r"dev PPL ([\d.]+), BLEU ([\d.]+)", second.out)
    assert found and float(found[1]) < 3.5 and float(found[2]) > 35, second.out  # as experiments/demo.yaml says
    assert second.out.count("translation  ") == 3 and "lightning-tfm translate" in second.out
    page = tmp_path / "results/studies/demo/report.html"
    assert page.is_file() and "attention" in page.read_text().lower()
    again = demo(tmp_path).wait()
    unclocked = [re.sub(r"In \d+ seconds", "", said.out) for said in (second, again)]
    assert again.code == 0 and unclocked[0] == unclocked[1]
    assert len(list((tmp_path / "results/runs").iterdir())) == 1


@pytest.mark.parametrize("times", [30, pytest.param(200, marks=pytest.mark.long)])
def test_the_view_ends_with_a_run_that_ends_at_once(tmp_path: Path, times: int) -> None:
    """A signal that reaches a child before Python has set it up after the fork is forgotten."""

    def watched() -> None:
        exit_on_signals()
        for _ in range(times):
            with _watching(tmp_path, Cell("base", 1, "0" * 64, 1.0)):
                pass

    done = Call(watched).wait()
    assert done.code == 0 and "Traceback" not in done.err, done.err
