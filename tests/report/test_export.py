"""Records in other people's dashboards, read back by their own readers."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.cli.show import export as cli_export
from lightning_tfm.config import evaluation_hash
from lightning_tfm.errors import UserError
from lightning_tfm.inference.export import _new
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.sampling import optuna_params
from lightning_tfm.queue.storage import find_storage
from lightning_tfm.report import curve_export
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.record import RunRecord
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import Fingerprints
from lightning_tfm.study.study_file import link, save
from lightning_tfm.watch.run_state import Curve
from tests.helpers.studies import BASE, SPACE, Generator, ablation, leave, own_row, search

PRINTS = Fingerprints("t", "d")


def write_run(root: Path, cell: Cell, whole: bool = True) -> None:
    folder = RunFolder(root, cell.training_hash)
    attempt = folder.claim()
    attempt.write_json(folder.experiment, {"model": {"h": 4}})
    attempt.write_json(folder.cell, {"row": cell.row, "seed": cell.seed})
    attempt.write_json(folder.identity, {})
    for step in range(1, 6):
        attempt.append_metrics({"step": step, "loss": 5 / step, "nll": 4 / step, "lr": 0.1, "seconds": step / 10})
    attempt.append_metrics({"step": 5, "dev_ppl": 2.5, "dev_nll": 0.9})
    attempt.release()
    if whole:
        end_run(folder)


def end_run(folder: RunFolder) -> None:
    attempt = folder.claim()
    leave(attempt, ppl=2.5, bleu=11.0, steps=5, evaluation_hash=evaluation_hash(BASE, PRINTS.dev))
    attempt.release()


def test_a_study_without_a_format_and_a_folder_that_is_there_are_told_which_option(tmp_path: Path, capsys) -> None:
    write_table(tmp_path)
    assert main(["export", "two", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "lightning-tfm: two is a study: --to csv or tensorboard\n"
    assert main(["translate", "two", "--out", str(tmp_path)]) == 2
    assert "two is a study: name one of its runs: lightning-tfm runs list" in capsys.readouterr().err
    with pytest.raises(UserError, match="give another folder with --folder"):
        _new(tmp_path)


def write_table(root: Path) -> list[Cell]:
    """Four cells; the last one is unfinished, and a fifth has not begun."""
    rows = [own_row("base", group="base"), own_row("h4, wide", {"model.h": 4})]
    cells = save(ablation(rows, [1, 2], name="two", base=BASE, prints=PRINTS), root).cells()
    for cell in cells[:3]:
        write_run(root, cell, whole=cell is not cells[2])
    return cells


def call(*argv: str) -> None:
    assert main(["export", *argv]) == 0


def test_csv_has_a_line_for_each_run_and_for_each_step(tmp_path: Path, capsys) -> None:
    cells = write_table(tmp_path)
    call("two", "--to", "csv", "--out", str(tmp_path))
    assert capsys.readouterr().out.startswith("3 runs: ")
    folder = tmp_path / "studies" / "two" / "csv"
    runs, curves = (
        list(csv.DictReader((folder / f"{name}.csv").read_text().splitlines())) for name in ("runs", "curves")
    )
    assert [(r["row"], r["seed"], r["finished"], r["model.h"]) for r in runs] == [
        ("base", "1", "True", "8"), ("base", "2", "True", "8"), ("h4, wide", "1", "False", "4"),
    ]  # fmt: skip
    assert [r["dev/ppl"] for r in runs] == ["2.5", "2.5", ""] and runs[0]["run"] == cells[0].training_hash[:16]
    nll = [line["dev/nll"] for line in curves if line["run"] == runs[0]["run"]]
    assert [float(value) for value in nll if value] == pytest.approx([0.9, 0.693]), "per token, the final one too"
    mine = [line for line in curves if line["row"] == "h4, wide"]
    assert [line["train/loss"] for line in mine] == ["5.0", "2.5", str(5 / 3), "1.25", "1.0", ""]
    call(cells[0].training_hash[:8], "--to=csv", "--folder", str(tmp_path / "one"), "--out", str(tmp_path))
    (alone,) = csv.DictReader((tmp_path / "one" / "runs.csv").read_text().splitlines())
    assert (alone["study"], alone["row"], alone["dev/bleu"]) == ("fit", "base", "11.0")


def test_a_run_that_was_resumed_began_with_its_first_attempt(tmp_path: Path) -> None:
    write_run(tmp_path, cell := Cell("base", 1, "ab" * 32, 1.0), whole=False)
    folder = RunFolder(tmp_path, cell.training_hash)
    first = folder.attempts / "0001.json"
    first.write_text(json.dumps(json.loads(first.read_bytes()) | {"time": 1.7e9}))
    again = folder.claim()
    again.write_json(folder.experiment, {"model": {"h": 4}})
    again.release()
    (found,) = curve_export.exported_runs(folder.path.name, tmp_path)
    assert found.curves()[0][1] == 1.7e9 + 0.1, "train/seconds count from there"


def test_a_finished_curve_is_read_once(tmp_path: Path, monkeypatch) -> None:
    write_table(tmp_path)
    read: list[Path] = []

    def of(folder: Path, record: RunRecord | None, text: str) -> Curve:
        read.append(folder)
        return Curve(folder / "metrics.jsonl").look()

    monkeypatch.setattr(curve_export.Curve, "of", of)
    found = curve_export.exported_runs("two", tmp_path)
    curve_export.Csv(tmp_path / "csv").write(found)
    assert len(read) == len(found) > 1 and all(run.curve.lines for run in found)


def test_rows_of_other_data_bring_their_own_runs_and_what_was_scored_otherwise_is_left_out(tmp_path, capsys) -> None:
    rows = [own_row("base", group="base"), own_row("half", {"data.share": 0.5})]
    base = replace(BASE, data=replace(BASE.data, byte_fallback=True, vocab_size=600))
    made = Generator(tmp_path, rows, [1, 2, 3], by_word=True, base=base)
    made.write_all({"half": 0.7}, skip=[("half", 3)])
    made.write(rows[1], 3, 0.0, ppl=99.0, evaluation_hash="f" * 64)
    found = {(run.row, run.seed): run for run in curve_export.exported_runs("made", tmp_path)}
    cells = {(row.name, seed): made.study.cell(row, seed) for row in made.study.rows for seed in (1, 2, 3)}
    assert found.keys() == cells.keys() - {("half", 3)}
    assert "half, seed 3 is left out: scored by a different evaluation" in capsys.readouterr().err
    for key, run in found.items():
        assert run.record is not None and run.record.training_hash == cells[key].training_hash


def test_a_live_export_follows_a_run_to_its_end(tmp_path: Path, monkeypatch, capsys) -> None:
    cells = write_table(tmp_path)
    looks = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            end_run(RunFolder(tmp_path, cells[2].training_hash))

    monkeypatch.setattr(cli_export, "sleep", wait)
    name = cells[2].training_hash
    call(name, "--to", "csv", "--out", str(tmp_path), "--live")
    assert looks == [cli_export.EVERY] * 2
    lines = list(csv.DictReader((tmp_path / "runs" / name[:16] / "csv" / "runs.csv").read_text().splitlines()))
    assert [line["finished"] for line in lines] == ["True"]
    assert capsys.readouterr().out.startswith("live, until everything is finished: ")


def test_a_search_brings_its_parameters_and_the_trials_that_were_stopped(tmp_path: Path, capsys) -> None:
    found, folder = save(search(space=SPACE[2:3], trials=4), tmp_path), tmp_path / "studies" / "found"
    queue = Queue("found", find_storage("", folder), budget=4)
    cells = [found.cell(number, {"model.N": n}) for number, n in enumerate((2, 4))]
    queue.enqueue(cells, params_of=optuna_params(found))
    for cell in cells:
        claim = queue.claim()
        link(folder, claim.cell)
        write_run(tmp_path, claim.cell, whole=claim.cell.row == "t0000")
        assert queue.finish(claim, 2.5) if claim.cell.row == "t0000" else queue.prune(claim, "median at step 4")
        assert cell.change
    call("found", "--to", "csv", "--out", str(tmp_path))
    runs = list(csv.DictReader((folder / "csv" / "runs.csv").read_text().splitlines()))
    assert [(r["row"], r["finished"], r["model.N"]) for r in runs] == [("t0000", "True", "2"), ("t0001", "False", "4")]


def test_what_is_not_there_and_what_is_not_installed_is_said(tmp_path: Path, monkeypatch, capsys) -> None:
    write_table(tmp_path)
    for what, words in (("tow", "'tow' is not a study, search or run below"), ("zzz", "studies: two")):
        assert main(["export", what, "--to", "csv", "--out", str(tmp_path)]) == 2
        assert words in capsys.readouterr().err
    save(ablation(seeds=[9], name="none", base=BASE), tmp_path)
    with pytest.raises(UserError, match="no run of it has a record yet"):
        curve_export.exported_runs("none", tmp_path)


@pytest.mark.long
def test_tensorboard_reads_curves_and_hyperparameters(tmp_path: Path, capsys) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write_table(tmp_path)
    for _ in range(2):  # again: nothing is doubled
        call("two", "--to", "tensorboard", "--out", str(tmp_path))
    folder = tmp_path / "studies" / "two" / "tensorboard"
    assert capsys.readouterr().out.splitlines()[-1] == f"3 runs: tensorboard --logdir {folder}"
    found = EventAccumulator(str(folder / "base" / "1"))
    found.Reload()
    loss = found.Scalars("train/loss")
    assert [(e.step, e.value) for e in loss] == [(s, pytest.approx(5 / s)) for s in range(1, 6)]
    assert [loss[1].wall_time - loss[0].wall_time, loss[0].wall_time] == pytest.approx([0.1, 1.7e9 + 0.1], abs=1e-4)
    assert {e.value for e in found.Scalars("dev/ppl")} == {2.5} and found.Scalars("dev/bleu")[0].value == 11.0
    assert "_hparams_/session_start_info" in found.PluginTagToContent("hparams")
    unfinished = EventAccumulator(str(folder / "h4,wide" / "1"))
    unfinished.Reload()
    assert "dev/bleu" not in unfinished.Tags()["scalars"] and len(unfinished.Scalars("train/nll")) == 5


@pytest.mark.long
def test_a_live_tensorboard_is_continued_and_begins_anew_where_training_went_back(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    cells = write_table(tmp_path)
    folder = RunFolder(tmp_path, cells[2].training_hash)
    place = tmp_path / "live" / "h4,wide" / "1"
    target = curve_export.TensorBoard(tmp_path / "live")

    def steps() -> list[int]:
        target.write(curve_export.exported_runs("two", tmp_path))
        found = EventAccumulator(str(place))
        found.Reload()
        return [event.step for event in found.Scalars("train/loss")]

    assert steps() == [1, 2, 3, 4, 5]
    first = list(place.iterdir())
    with folder.metrics.open("a") as file:
        file.write(json.dumps({"step": 6, "loss": 0.5, "seconds": 0.6}) + "\n")
    assert steps() == [1, 2, 3, 4, 5, 6] and list(place.iterdir()) == first
    folder.metrics.write_text("".join(folder.metrics.read_text().splitlines(keepends=True)[:3]))
    assert steps() == [1, 2, 3] and list(place.iterdir()) != first
    target.close()
