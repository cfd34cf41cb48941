"""What a board knows of finished runs from an earlier one is what their files say, and no longer than they say it."""

import json
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.dashboard import serve
from lightning_tfm.dashboard.app import Dashboard
from lightning_tfm.dashboard.board import Board
from lightning_tfm.study.study_file import file_of
from lightning_tfm.sums import signed
from lightning_tfm.watch import run_cache, run_state
from tests.helpers.studies import SMALL, Folder


@pytest.fixture
def made(tmp_path):
    found = Folder(tmp_path / "results")
    study = found.table("table", ["base", "A-h1", "A-h4"], seeds=[1, 2, 3])
    found.fill(study, ["finished"] * 6 + ["running", "failed", "damaged"])
    return found


@pytest.fixture
def read(monkeypatch):
    """Names of the runs whose records were read."""
    found = []
    kept = run_state.read_record
    monkeypatch.setattr(run_state, "read_record", lambda path: found.append(path.parent.name) or kept(path))
    return found


def looked(made, file):
    board = Board(made.root, every=0, cache=file)
    return board, board.look()


def test_a_second_start_reads_no_finished_run_and_sees_the_same(made, tmp_path, read):
    file = tmp_path / "own" / "kept.jsonl"
    lost = next(path for path in made.root.glob("runs/*/result.json") if path.stat().st_size > 100)
    plain = json.loads(lost.read_bytes())
    plain["scores"]["dev"] |= {"ppl": "Infinity", "nll": 812_000.0}
    lost.write_text(json.dumps(signed(plain)))
    (lost.parent / "cell.json").write_text('{"row": "base", "seed": 3}')
    board, first = looked(made, file)
    assert len(read) == 9 and not file.exists()
    board.keep()
    read.clear()
    again, second = looked(made, file)
    running = [name for name, view in first.runs.items() if view.state != "finished"]
    assert sorted(read) == sorted(running) and len(running) == 3
    assert second.runs == first.runs and second.studies == first.studies
    view = second.runs[lost.parent.name]
    assert view.ppl == float("inf") and view.diverged
    assert view.called.seed == 3 and view.experiment["model"]["d_model"] == plain["experiment"]["model"]["d_model"]
    written = file.stat().st_mtime_ns
    again.keep()
    assert file.stat().st_mtime_ns == written, "nothing new, nothing written"


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "experiment.json", "cell.json"])
def test_what_changed_since_is_read_again(made, tmp_path, read, name):
    file = tmp_path / "kept.jsonl"
    board, first = looked(made, file)
    board.keep()
    finished = [view.name for view in first.runs.values() if view.state == "finished"]
    path = made.root / "runs" / finished[0] / name
    path.write_bytes(path.read_bytes() + b"\n" if path.exists() else b'{"row": "base", "seed": 7}')
    read.clear()
    board, second = looked(made, file)
    assert finished[0] in read and not {*finished[1:]} & {*read}
    board.keep()
    read.clear()
    assert looked(made, file)[1].runs == second.runs and finished[0] not in read


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]\n{", b"\xff\x00", b'{"made_by": "another", "sections": []}\n{}\n']
)
def test_a_damaged_file_or_another_version_s_is_as_none(made, tmp_path, read, content):
    file = tmp_path / "kept.jsonl"
    file.write_bytes(content)
    board, seen = looked(made, file)
    assert len(read) == 9 and seen.runs == Board(made.root, every=0).look().runs
    board.keep()
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole.replace(b'"mark":', b'"mrak":', 1), whole + b'{"mark": 3}\n'):
        file.write_bytes(damaged)
        assert looked(made, file)[1].runs == seen.runs


def test_another_reading_of_records_is_another_version(made, tmp_path, read, monkeypatch):
    file = tmp_path / "kept.jsonl"
    looked(made, file)[0].keep()
    monkeypatch.setattr(run_cache, "READERS", run_cache.READERS[:1])
    read.clear()
    looked(made, file)
    assert len(read) == 9


def test_of_equal_parts_one_is_kept(made, tmp_path):
    study = made.table("again", ["base"], seeds=[11, 12])
    made.fill(study)
    runs = [looked(made, None)[1].runs[cell.training_hash[:16]] for cell in study.cells()]
    assert runs[0].experiment["model"] == runs[1].experiment["model"]
    for file in (None, tmp_path / "kept.jsonl", tmp_path / "kept.jsonl"):
        board, seen = looked(made, file)
        one, two = (seen.runs[cell.training_hash[:16]] for cell in study.cells())
        assert one.experiment["model"] is two.experiment["model"]
        assert one.experiment["training"]["seed"] != two.experiment["training"]["seed"]
        board.keep()


def test_a_run_that_is_gone_leaves_the_file(made, tmp_path):
    file = tmp_path / "kept.jsonl"
    board, seen = looked(made, file)
    board.keep()
    assert file.read_bytes().count(b'"mark"') == 6
    gone = next(view.name for view in seen.runs.values() if view.state == "finished")
    os.rename(made.root / "runs" / gone, tmp_path / "elsewhere")
    made.run(replace(SMALL, training=replace(SMALL.training, seed=99)))
    board, seen = looked(made, file)
    board.keep()
    assert gone not in seen.runs and gone.encode() not in file.read_bytes()
    assert file.read_bytes().count(b'"mark"') == 6 and file_of(made.root, "table").is_file()


def test_the_dashboard_keeps_it_outside_the_results_and_says_where_it_cannot(made, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(serve, "serve", lambda app, port, say: Dashboard.index(app.state.dashboard))
    monkeypatch.setattr(Dashboard, "app", lambda self, token: SimpleNamespace(state=SimpleNamespace(dashboard=self)))
    before = sorted(made.root.rglob("*"))
    assert main(["dashboard", "--out", str(made.root), "--port", "0"]) == 0
    (file,) = (tmp_path / "cache").rglob("*.jsonl")
    assert file == run_cache.cache_file(made.root / ".." / "results") and file.read_bytes().count(b'"mark"') == 6
    assert file.parent.stat().st_mode & 0o077 == 0 and sorted(made.root.rglob("*")) == before
    shutil.rmtree(file.parent)
    file.parent.write_text("in the way")
    assert main(["dashboard", "--out", str(made.root), "--port", "0"]) == 0
    assert "the next start will read all runs again" in capsys.readouterr().err
