"""One folder, fed to everything that shows a run or a study: where two of them show a number, it is the same number."""

import csv
import json
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.dashboard import study_page
from lightning_tfm.dashboard.board import Board
from lightning_tfm.metrics import PPL
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.storage import find_storage
from lightning_tfm.queue.view import line
from lightning_tfm.queue.wandb_mirror import STEP, Mirror
from lightning_tfm.report.study_report import make
from lightning_tfm.runs.folder import GRACE, RunFolder
from lightning_tfm.study.sequential import Course, late, looks_to_json
from lightning_tfm.study.study import Ablation
from lightning_tfm.watch.run_state import Curve, RunState
from lightning_tfm.watch.study_state import CellState, StudyState, Watch
from tests.helpers.studies import FAR, Folder, write_json, write_lines

ROWS = ["base", "A-h1", "A-h4", "A-h32"]
ASKED = {"base": [1, 2, 3, 4], "A-h1": [1, 2, 3], "A-h4": [1, 2], "A-h32": [1, 2, 3, 4]}
"""the second look added a seed to base; A-h4 was closed with two"""
STATES = {
    ("base", 1): "finished",
    ("base", 2): "finished",
    ("base", 3): "running",
    ("A-h1", 1): "killed",
    ("A-h1", 2): "damaged at the end",
    ("A-h1", 3): "damaged in the middle",
    ("A-h4", 1): "two dev texts",
    ("A-h4", 2): "paused over night",
    ("A-h32", 1): "finished",
    ("A-h32", 2): "finished",
    ("A-h32", 3): "failed once",
    ("A-h32", 4): "removed",
}
"""cells that were begun; the others wait"""


def spoil(folder: RunFolder, how: str) -> None:
    """What happened to a running run."""
    lines = folder.metrics.read_bytes().splitlines(keepends=True)
    match how:
        case "killed":
            old = time.time() - GRACE - 60
            os.utime(folder.attempts / "0001.beat", (old, old))
        case "damaged at the end":
            folder.metrics.write_bytes(b"".join(lines[:-1]) + lines[-1][:20] + b"\n" + lines[-1][:7])
        case "damaged in the middle":
            lines[3], lines[7] = b'{"step": "x"}\n', b"\x00\xff\n"
            folder.metrics.write_bytes(b"".join(lines))
        case "two dev texts":
            plain = [json.loads(line) for line in lines]
            for line in plain:
                if "dev_ppl" in line:
                    early = line["step"] <= 300
                    line |= {"dev": "a" if early else "d" * 16, "dev_ppl": line["dev_ppl"] / (100 if early else 1)}
            write_lines(folder.metrics, plain)
        case "removed":
            shutil.rmtree(folder.path)
        case "paused over night":
            first, night = folder.attempts / "0001.json", time.time() - 40_000
            write_json(folder.progress, json.loads(folder.progress.read_bytes()) | {"time": night, "attempt": 1})
            write_json(first, json.loads(first.read_bytes()) | {"ended": night})
            again = {"number": 2, "token": "y", "owner": FAR, "time": time.time(), "ended": None}
            write_json(folder.attempts / "0002.json", again)
            (folder.attempts / "0002.beat").touch()


@pytest.fixture
def study(tmp_path: Path) -> Ablation:
    made = Folder(tmp_path)
    study = made.table("t", ROWS, [1, 2, 3, 4])
    folder = tmp_path / "studies" / "t"
    (folder / "looks.json").write_text(json.dumps(looks_to_json(Course(late(2, 4), [], ASKED))))
    queue = Queue("t", find_storage("", folder))
    queue.enqueue([study.cell(row, seed) for row in study.rows for seed in ASKED[row.name]])
    claims = [queue.claim() for _ in range(sum(map(len, ASKED.values())))]
    for claim in claims:
        assert claim is not None
        how = STATES.get((claim.cell.row, claim.cell.seed))
        if how is None:
            assert queue.fail(claim, "interrupted", "returned")
            continue
        state = {"finished": "finished", "removed": "finished", "failed once": "failed"}.get(how, "running")
        run = made.run(study.experiment(claim.cell), state)
        if state == "failed":
            assert queue.fail(claim, "failed", "it will be tried again")
        elif state == "finished":
            result = run.read_result()
            assert result is not None and queue.finish(claim, result.scores["dev"].ppl)
        spoil(run, how)
    return study


def launcher(study: Ablation, root: Path) -> StudyState:
    queue = Queue("t", find_storage("", root / "studies" / "t"))
    return Watch(root, 1, study).look(queue.states())


def status(capsys: Any, root: Path, *words: str) -> Any:
    assert main(["status", *words, "--json", "--out", str(root)]) == 0
    return json.loads(capsys.readouterr().out)


def shown(run: Any) -> tuple[Any, ...]:
    """What several views show of a run that is under way."""
    return run.step, run.steps, run.tokens_per_second, run.loss, run.ppl, run.best_ppl


def test_counts_best_and_time_left_are_the_same_everywhere(study: Ablation, tmp_path: Path, capsys) -> None:
    counts = {"finished": 4, "running": 5, "waiting": 2, "failed": 1, "interrupted": 1}
    now, said = launcher(study, tmp_path), status(capsys, tmp_path, "t")
    assert now.counts == said["counts"] == counts
    (listed,) = status(capsys, tmp_path)
    assert listed["counts"] == {word: number for word, number in counts.items() if number}
    seen = Board(tmp_path, every=0).look()
    view = seen.studies["t"]
    assert view.counts == counts and (view.ended, view.total) == (5, listed["whole"])
    assert now.state == view.state == listed["state"] == "running"
    assert Counter(s.state for s in now.cells) == Counter(s.state for s in view.cells)
    assert main(["runs", "list", "--json", "--out", str(tmp_path)]) == 0
    states = Counter(run["state"] for run in json.loads(capsys.readouterr().out))
    assert states == {word: counts[word] for word in ("finished", "running", "failed", "interrupted")}
    assert now.best == view.best and vars(now.best) == said["best"]
    assert now.left is not None and now.left.seconds == said["seconds_left"] == view.left.seconds
    assert now.share == pytest.approx(said["share"], abs=1e-4)
    assert line("t", now).startswith("t: 4 finished, 5 running, 2 waiting, 1 failed, 1 interrupted, ")
    page = study_page.page(Board(tmp_path), seen, "t")
    assert page.data["counts"] == list(listed["counts"].items())


def test_a_run_to_be_tried_again_failed_and_a_removed_one_waits_in_every_view(
    study: Ablation, tmp_path: Path, capsys
) -> None:
    once, removed = ("A-h32", 3), ("A-h32", 4)
    words = {once: "failed", removed: "waiting"}
    now, seen = launcher(study, tmp_path), Board(tmp_path, every=0).look()
    of_launcher = {(s.cell.row, s.cell.seed): s for s in now.cells}
    of_dashboard = {(s.cell.row, s.cell.seed): s for s in seen.studies["t"].cells}
    of_status = {(cell["row"], cell["seed"]): cell for cell in status(capsys, tmp_path, "t")["cells"]}
    for key, word in words.items():
        assert of_launcher[key].state == of_dashboard[key].state == of_status[key]["state"] == word
    assert of_status[once]["reason"].endswith("; will be tried again")
    assert of_status[removed]["reason"] == "it was finished, but its folder is gone"
    assert main(["status", "t", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("A-h32" in line for line in lines if line.startswith(("failed ", "waiting "))) == 2
    assert make("t", tmp_path).cells.empty[once].reason.startswith("out_of_memory at step ")


def test_a_run_is_at_the_same_step_with_the_same_values_everywhere(study: Ablation, tmp_path: Path, capsys) -> None:
    now, seen = launcher(study, tmp_path), Board(tmp_path, every=0).look()
    said = {(cell["row"], cell["seed"]): cell for cell in status(capsys, tmp_path, "t")["cells"]}
    assert main(["runs", "list", "--json", "--out", str(tmp_path)]) == 0
    listed = {run["run"]: run for run in json.loads(capsys.readouterr().out)}
    report = make("t", tmp_path)
    folders = {(run.row, run.seed): RunFolder(tmp_path, run.training_hash) for run in seen.outlines["t"].runs}
    assert len(now.running) == 5
    for s, run in now.running:
        place = s.cell.row, s.cell.seed
        name, cell = folders[place].path.name, said[place]
        on_page, alone = seen.runs[name], RunState.of(folders[place].path)
        assert shown(run) == shown(on_page) == shown(alone) == shown(SimpleNamespace(**cell))
        assert run.left == on_page.left and run.left.seconds == cell["seconds_left"]
        assert run.left.seconds > alone.left.seconds and alone.left.at_least, "without what comes after its steps"
        assert [listed[name][key] for key in ("step", "steps", "ppl")] == [alone.step, alone.steps, alone.ppl]
        ((_, of_fit),) = Watch(tmp_path, 1).look([CellState(s.cell, "running")]).running
        assert shown(of_fit) == shown(alone) and of_fit.left == alone.left
        assert report.cells.empty[place].reason == f"running at step {alone.step} of {alone.steps}"
        assert cell.get("damaged_lines", 0) == alone.damaged == on_page.damaged
    killed = RunState.of(folders["A-h1", 1].path)
    assert report.cells.empty["A-h1", 1].reason == f"interrupted at step {killed.step} of {killed.steps}"
    assert said["A-h1", 1]["state"] == listed[killed.name]["state"] == killed.state == "interrupted"
    damaged = {key: RunState.of(folder.path).damaged for key, folder in folders.items() if folder.path.exists()}
    assert {key: number for key, number in damaged.items() if number} == {("A-h1", 2): 1, ("A-h1", 3): 2}
    assert "metrics.jsonl: 2 damaged lines left out, the first is line 4" in line("t", now)
    night = next(run for s, run in now.running if (s.cell.row, s.cell.seed) == ("A-h4", 2))
    assert night.phase == "starting" and night.left.seconds < 300
    texts = next(run for s, run in now.running if (s.cell.row, s.cell.seed) == ("A-h4", 1))
    assert texts.best_ppl > 0.5 and len(texts.curve) == texts.step // 250 - 1, "of the last text alone"
    base = [RunState.of(folders["base", seed].path).ppl for seed in (1, 2)]
    rows = {row["name"]: row for row in study_page.page(Board(tmp_path), seen, "t").data["rows"]}
    assert rows["base"]["ppl"]["mean"] == pytest.approx((base[0] * base[1]) ** 0.5)
    other = [RunState.of(folders["A-h32", seed].path).ppl for seed in (1, 2)]
    tested = fmean(map(PPL.transform, other)) - fmean(map(PPL.transform, base))
    assert rows["A-h32"]["against"] == pytest.approx(PPL.in_units(tested)), "as the report estimates it"


def test_curves_hold_the_same_lines_wherever_they_are_sent(
    study: Ablation, tmp_path: Path, capsys, monkeypatch
) -> None:
    assert main(["export", "t", "--to", "csv", "--folder", str(tmp_path / "csv"), "--out", str(tmp_path)]) == 0
    assert "A-h1, seed 3: metrics.jsonl: 2 damaged lines left out" in capsys.readouterr().err
    exported: dict[str, list[tuple[int, float]]] = {}
    for one in csv.DictReader((tmp_path / "csv" / "curves.csv").read_text().splitlines()):
        if one["dev/ppl"] and not one["dev/bleu"]:
            exported.setdefault(one["run"], []).append((int(one["step"]), float(one["dev/ppl"])))
    sent: dict[str, list[tuple[int, float]]] = {}

    def open_run(mirror: Mirror, id: str, *rest: Any) -> Any:
        def log(values: dict[str, Any]) -> None:
            if "dev/ppl" in values and "dev/bleu" not in values:
                sent.setdefault(id, []).append((values[STEP], values["dev/ppl"]))

        nothing = lambda *args, **more: None  # noqa: E731
        return SimpleNamespace(id=id, log=log, summary={}, define_metric=nothing, finish=nothing)

    monkeypatch.setattr(Mirror, "_init", open_run)
    mirror = Mirror(tmp_path / "wandb", "online", "t")
    mirror.look(tmp_path, [cell for cell in study.cells() if (cell.row, cell.seed) in STATES])
    for cell in study.cells():
        if STATES.get((cell.row, cell.seed), "removed") != "removed":
            name = cell.training_hash[:16]
            points = list(Curve.of(RunFolder(tmp_path, cell.training_hash).path).validations.items())
            assert exported[name] == points
            assert sent[name] == points[: len(sent[name])] and len(points) - len(sent[name]) < 2


def test_plan_and_status_agree_on_what_is_left_to_do(study: Ablation, tmp_path: Path, capsys) -> None:
    from lightning_tfm.cli.train.plan import forecast, pace_of

    cells = [cell for cell in study.cells() if cell.seed in ASKED[cell.row]]
    planned = forecast(cells, tmp_path, 1, pace_of(tmp_path))
    assert f"{len(cells)} runs: 4 finished, {len(cells) - 4} to run" in planned
    assert planned.count("running now") == status(capsys, tmp_path, "t")["counts"]["running"]
    assert "as 4 finished runs here took" in planned
