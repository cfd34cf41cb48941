"""Files that grow, are replaced or half-written are read once; what is kept of finished runs is what they say."""

import json
import os
import shutil
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.dashboard import app as dashboard_app
from lightning_tfm.dashboard.app import Dashboard
from lightning_tfm.dashboard.board import Board
from lightning_tfm.study.study_file import file_of
from lightning_tfm.sums import with_checksum
from lightning_tfm.watch import run_cache, run_state
from lightning_tfm.watch.file_cache import Cached, Lines, read_object, tail
from lightning_tfm.watch.run_state import Curve
from tests.helpers.studies import SMALL, Folder


def test_a_line_is_read_once_and_not_before_it_is_whole(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = Lines(path)
    lines.look()
    assert lines.records == []
    path.write_text('{"step": 1}\n{"st')
    for _ in range(2):
        lines.look()
        assert lines.records == [{"step": 1}] and not lines.damaged
    with path.open("a") as file:
        file.write('ep": 2}\n')
    lines.look()
    assert lines.records == [{"step": 1}, {"step": 2}] and lines.words == ""


def test_a_file_that_is_replaced_is_read_anew(tmp_path):
    """As a run does that resumes from a checkpoint before its last lines."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n7\n')
    lines = Lines(path)
    lines.look()
    assert lines.damaged == 1
    half = tmp_path / "half"
    half.write_text('{"step": 1}\n{"step": 3}\n{"step": 4}\n')
    os.replace(half, path)
    lines.look()
    assert lines.records == [{"step": 1}, {"step": 3}, {"step": 4}] and not lines.damaged
    path.write_text('{"step": 9}\n')  # shorter, in place
    lines.look()
    assert lines.records == [{"step": 9}]
    path.unlink()
    lines.look()
    assert lines.records == []


def test_damaged_lines_are_named_counted_and_the_others_kept(tmp_path):
    path = tmp_path / "metrics.jsonl"
    good = b'{"step": 1, "dev_ppl": 3}\n', b'{"step": 2, "dev_ppl": "Infinity"}\n', b' \t{"step": 3, "dev_ppl": 2} \r\n'
    bad = [b'{"step": 1}, {"step": 5}', b'{"step": 6} x', b"", b"\xff\x00{", b"[1]", b'{"loss": 3}', b'{"step": true}']
    bad += [b'{"step": 7, "lr": null}', b'{"step": -1}', b'{"step": 2.5}', b'{"step": 4, "loss": "x"}']
    path.write_bytes(good[0] + b"".join(line + b"\n" for line in bad) + good[1] + good[2])
    curve = Curve(path).look()
    assert curve.points("dev_ppl") == [(1, 3), (3, 2)] and curve.damaged == curve.look().damaged == 11
    assert curve.words == "metrics.jsonl: 11 damaged lines left out, the first is line 2"


def test_a_curve_keeps_finite_numbers_and_thins_long_series(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": s, "loss": 5.0 - s / 1000, "seconds": s * 0.5, "note": "x", "flag": True} for s in range(1, 1001)]
    rows[900]["seconds"] = 40_000.0  # a night
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 1001, "loss": NaN}\n')
    curve = Curve(path).look()
    assert len(curve.every("loss")) == 1000 and curve.every("note") == curve.every("flag") == []
    points = curve.points("loss", most=100)
    assert len(points) <= 100 and points[0] == (6, pytest.approx(sum(row["loss"] for row in rows[:11]) / 11))
    assert points[-1] == (1000, 4.0), "the last one as it is"
    assert curve.per_step == 0.5 and curve.last("grad_norm") is None and curve.damaged == 0


def test_what_was_read_is_kept_until_the_file_is_another(tmp_path):
    path, read = tmp_path / "a.json", []
    path.write_text("1")
    kept = Cached(lambda p: read.append(p) or p.read_text(), "none", most=1)
    assert [kept(path), kept(path)] == ["1", "1"] and len(read) == 1
    half = tmp_path / "half"
    half.write_text("2")
    os.replace(half, path)
    assert kept(path) == "2" and len(read) == 2
    half.write_text("3")
    kept(half)
    assert kept(path) == "2" and len(read) == 4  # one was kept, and it was the other
    path.unlink()
    assert kept(path) == "none" and len(read) == 4


def test_objects_and_tails_of_what_is_not_there(tmp_path):
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    assert [read_object(tmp_path / f"{name}.json") for name in ("none", "list", "deep")] == [{}, {}, {}]
    (tmp_path / "log.txt").write_text("\n".join(map(str, range(50_000))))
    assert tail(tmp_path / "log.txt", 2) == "49998\n49999" and tail(tmp_path / "none", 2) == ""


@pytest.mark.parametrize(
    "bad",
    [
        [b'{"step": 3, "a": "x}', b'{", "b": 1}'],
        [b'{"step": 3, "a": [1', b"{}]}"],
        [b'{"step": 3, "a": [1]', b'{"step": 4}}'],
        [b'{"step": 3}, 5', b'{"step": 4'],
        [b'{"step": 3},'],
        [b'{"step": 3', b'"loss": 2}, {"step": 4}'],
        [b'{"step": 3}, {"step": 4}'],
        [b'{"step": 3, "a": "\xff"}'],
        [b'{"step": 3, "a": }', b'{"step": 4, "a": {}'],
    ],
)
def test_lines_that_make_sense_only_together_are_damaged(tmp_path, bad):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in [b'{"step": 1}', *bad, b'{"step": 2}']))
    lines = Lines(path)
    lines.look()
    assert lines.records == [{"step": 1}, {"step": 2}] and lines.damaged == len(bad)


# --- finished runs, kept for the next start ---


@pytest.fixture
def made(tmp_path):
    found = Folder(tmp_path / "results")
    states = ["finished"] * 6 + ["running", "failed", "damaged"]
    found.fill(found.table("table", ["base", "A-h1", "A-h4"]), states)
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
    lost.write_text(json.dumps(with_checksum(plain)))
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
    for damaged in (whole[: len(whole) // 2], whole.replace(b'"ppl":2', b'"ppl":3', 1), whole + b"\n"):
        assert damaged != whole
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


def test_an_experiment_that_holds_anything_is_kept_as_it_is(made, tmp_path):
    result = next(path for path in made.root.glob("runs/*/result.json") if path.stat().st_size > 100)
    plain = json.loads(result.read_bytes()) | {"experiment": {"model": [1], "data": {"train": ["a"]}, "training": 5}}
    result.write_text(json.dumps(with_checksum(plain)))
    for _ in range(2):
        board, seen = looked(made, tmp_path / "kept.jsonl")
        assert seen.runs[result.parent.name].experiment == plain["experiment"]
        board.keep()


def test_a_run_that_is_gone_leaves_the_file(made, tmp_path):
    file = tmp_path / "kept.jsonl"
    board, seen = looked(made, file)
    board.keep()
    assert file.read_bytes().count(b'"training_hash"') == 6
    gone = next(view.name for view in seen.runs.values() if view.state == "finished")
    os.rename(made.root / "runs" / gone, tmp_path / "elsewhere")
    made.run(replace(SMALL, training=replace(SMALL.training, seed=99)))
    board, seen = looked(made, file)
    board.keep()
    assert gone not in seen.runs and gone.encode() not in file.read_bytes()
    assert file.read_bytes().count(b'"training_hash"') == 6 and file_of(made.root, "table").is_file()


def test_the_dashboard_keeps_it_outside_the_results_and_says_where_it_cannot(made, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(dashboard_app, "serve", lambda app, port, say: Dashboard.index(app.state.dashboard))
    monkeypatch.setattr(Dashboard, "app", lambda self, token: SimpleNamespace(state=SimpleNamespace(dashboard=self)))
    before = sorted(made.root.rglob("*"))
    assert main(["dashboard", "--out", str(made.root), "--port", "0"]) == 0
    (file,) = (tmp_path / "cache").rglob("*.jsonl")
    assert (
        file == run_cache.cache_file(made.root / ".." / "results") and file.read_bytes().count(b'"training_hash"') == 6
    )
    assert file.parent.stat().st_mode & 0o077 == 0 and sorted(made.root.rglob("*")) == before
    for thread in threading.enumerate():
        if "(read)" in thread.name:  # which writes the file, too
            thread.join()
    shutil.rmtree(file.parent)
    file.parent.write_text("in the way")
    assert main(["dashboard", "--out", str(made.root), "--port", "0"]) == 0
    assert "the next start will read all runs again" in capsys.readouterr().err
