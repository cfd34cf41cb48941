"""Rows hidden, runs removed and kept."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.queue import rounds
from lightning_tfm.queue.housekeeping import gc, list_runs, remove, retry
from lightning_tfm.queue.launch import publish
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.resources import Resources
from lightning_tfm.queue.sampling import optuna_params as params_of
from lightning_tfm.queue.storage import remember
from lightning_tfm.queue.studies import hide, make_queue, open_queue, show
from lightning_tfm.runs.folder import Attempt, RunFolder, RunIsOwned, StaleAttempt
from lightning_tfm.runs.record import Measure, Texts
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.row_tuning import FILE, read_tuning
from lightning_tfm.study.sequential import Course, Look, late, looks_to_json
from lightning_tfm.study.study_file import folder_of, link, load, save
from lightning_tfm.study.sweeps import Parameter
from tests.helpers.launching import Task, launch
from tests.helpers.studies import Generator, leave
from tests.queue.test_sampling import search
from tests.study.test_plan import HEAD, call


def run(root: Path, digits: str, finished: bool = True) -> Attempt:
    attempt = RunFolder(root, digits * 32).claim()
    folder = attempt.folder
    attempt.write_progress(5, 10, 1.0, "train")
    attempt.write(folder.checkpoints / "step-5.ckpt", b"x" * 1000)
    attempt.write(folder.checkpoints / "step-6.ckpt", b"x")
    attempt.write(folder.snapshots / "step-10.pt", b"weights")
    if finished:
        leave(attempt, data=Texts(store="used"))
        attempt.release()
    return attempt


def age(path: Path, seconds: float = 7200) -> None:
    past = time.time() - seconds
    os.utime(path, (past, past))


def names(root: Path, **how: bool) -> list[str]:
    return [str(path.relative_to(root)) for path, _, _ in gc(root, **how)]


def test_runs_are_listed_with_state_and_cells(tmp_path: Path) -> None:
    def train(task: Task) -> None:
        if task.cell.row == "bad":
            raise FloatingPointError("loss is nan")
        task.attempt.write_progress(10, 10, 1.0, "done")
        leave(task.attempt, steps=10)

    cells = [Cell("good", 1, "aa" * 32, 1.0), Cell("bad", 2, "bb" * 32, 1.0)]
    with (tmp_path / "shown").open("w") as stream:
        launch("s", cells, tmp_path, train, stream)
    run(tmp_path, "cc", finished=False)
    found = listed(tmp_path)
    assert {key: (run["state"], run["step"], run["cells"]) for key, run in found.items()} == {
        "aa": ("finished", 10, ["s/good/1"]),
        "bb": ("failed", None, ["s/bad/2"]),
        "cc": ("running", 5, []),
    }
    assert found["bb"]["reason"] == "nan_loss: FloatingPointError: loss is nan" and found["cc"]["owner"] is not None
    assert retry(tmp_path, "bb") == 1 and retry(tmp_path, "bb") == 0 and retry(tmp_path, "cc") == 0


@pytest.mark.parametrize(
    ("kind", "sampler", "objectives"),
    [
        ("journal", "grid", {"dev/bleu": "maximize"}),
        ("journal", "random", {"dev/ppl": "minimize", "dev/bleu": "maximize"}),
        pytest.param("postgres", "random", {"dev/bleu": "maximize"}, marks=pytest.mark.long),
    ],
)
def test_a_failed_trial_of_a_search_is_queued_again(tmp_path, kind, sampler, objectives, request):
    def train(task: Task) -> None:
        raise FloatingPointError("loss is nan")

    storage = request.getfixturevalue("postgres").url if kind == "postgres" else ""
    made = search(sampler=sampler, objectives=objectives, trials=2, space=[Parameter("model.N", "categorical", [1, 2])])
    save(made, tmp_path)
    remember(storage, tmp_path / "studies" / "s")
    with (tmp_path / "shown").open("w") as stream:
        states = launch(made, made.cells(), tmp_path, train, stream, storage=storage)
    assert [state.state for state in states] == ["failed", "failed"]
    name = states[1].cell.training_hash
    same = [state.cell.row for state in states if state.cell.training_hash == name]
    assert retry(tmp_path, name) == len(same) and retry(tmp_path, name) == 0
    waiting = [state.cell.row for state in open_queue(tmp_path, "s").states() if state.state == "waiting"]
    assert sorted(waiting) == sorted(same)
    assert kind == "journal" or not (tmp_path / "studies" / "s" / "journal.log").exists()


def listed(root: Path) -> dict[str, dict]:
    return {run["run"][:2]: run for run in list_runs(root)}


def test_the_list_is_in_the_order_of_time_with_scores_and_names(tmp_path: Path, capsys) -> None:
    for number, digits in enumerate(("cc", "aa", "bb")):
        attempt = RunFolder(tmp_path, digits * 32).claim()
        attempt.write_json(attempt.folder.cell, {"row": f"mine-{digits}", "seed": 7})
        leave(attempt, ppl=3.25, bleu=41.5, ended=1e9 + 3600 * number)
        attempt.release()
    found = list_runs(tmp_path)
    assert [run["run"][:2] for run in found] == ["cc", "aa", "bb"]
    assert all((run["ppl"], run["scores"]) == (3.25, {"bleu": 41.5}) for run in found) and found[0]["cells"] == [
        "mine-cc/7"
    ]
    assert main(["runs", "list", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "2001-09-0" in lines[1] and "3.250" in lines[1] and "41.5" in lines[1] and "mine-cc/7" in lines[1]


def test_a_run_is_listed_by_what_it_was_asked_to_be_scored_by(tmp_path: Path, capsys) -> None:
    asked = {"exact": 12.34, "f1": 60.66, "chrf": 71.0}
    for digits, scores in {"aa": {}, "bb": asked}.items():
        attempt = RunFolder(tmp_path, digits * 32).claim()
        leave(attempt, measures={name: Measure(value, "by hand") for name, value in scores.items()})
        attempt.release()
    assert main(["runs", "list", "--out", str(tmp_path)]) == 0
    head, of_text, of_trees = capsys.readouterr().out.splitlines()
    assert head.split()[5:8] == ["PPL", "BLEU", "F1"]
    assert " 50.0 " in of_text and " 60.7 " in of_trees and "50.0" not in of_trees and "71.0" not in of_trees
    assert main(["runs", "list", "--json", "--out", str(tmp_path)]) == 0
    (without, found) = json.loads(capsys.readouterr().out)
    assert [*without][-2:] == ["ppl", "bleu"] and asked.items() < found.items() and found["bleu"] == 50.0
    assert main(["runs", "query", "f1 > 60", "--out", str(tmp_path)]) == 0
    assert "1 of 2 runs" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 1}', '{"status": "finished", "scores": null}'])
@pytest.mark.parametrize("name", ["result.json", "outcome.json", "progress.json"])
def test_a_damaged_record_spoils_one_line_and_gc_leaves_the_run_alone(tmp_path: Path, name: str, content: str) -> None:
    run(tmp_path, "aa")
    broken = run(tmp_path, "bb", finished=False)
    broken.release()
    (broken.folder.path / name).write_text(content)
    found = listed(tmp_path)
    assert found["aa"]["state"] == "finished"
    assert (
        found["bb"]["state"] == ("interrupted" if name == "progress.json" else "damaged")
        and name in found["bb"]["reason"]
    )
    if name == "result.json" and "finished" not in content:
        assert all("b" * 16 not in item for item in names(tmp_path))


def test_a_run_that_was_stopped_early_has_not_failed(tmp_path: Path) -> None:
    attempt = run(tmp_path, "aa", finished=False)
    attempt.write_outcome("pruned", "median at step 4", 5)
    attempt.release()
    assert [listed(tmp_path)["aa"][key] for key in ("state", "reason")] == ["stopped early", "median at step 4"]


def test_a_run_that_a_study_uses_is_removed_by_force_alone(tmp_path: Path, capsys) -> None:
    folder = run(tmp_path, "aa").folder
    link(tmp_path / "studies" / "mine", Cell("A-h1", 3, folder.training_hash, 1.0))
    assert main(["runs", "remove", "aa", "--out", str(tmp_path)]) == 2
    assert "is used by mine/A-h1/3" in capsys.readouterr().err and folder.finished()
    assert main(["runs", "remove", "aa", "--force", "--out", str(tmp_path)]) == 0
    assert not folder.path.exists()


def test_a_removed_run_is_gone_and_closed_to_its_old_process(tmp_path: Path) -> None:
    attempt = run(tmp_path, "aa")
    assert remove(tmp_path, "aaa") == attempt.folder.path
    assert not list((tmp_path / "runs").iterdir())
    with pytest.raises(StaleAttempt):
        attempt.write(attempt.folder.result, b"{}")
    assert not list((tmp_path / "runs").iterdir())


def test_a_run_that_is_worked_on_is_not_removed(tmp_path: Path) -> None:
    attempt = run(tmp_path, "aa", finished=False)
    with pytest.raises(RunIsOwned):
        remove(tmp_path, "aa")
    attempt.write(attempt.folder.result, b"{}")


def test_a_name_must_fit_one_run(tmp_path: Path) -> None:
    for digits in ("aa", "ab"):
        run(tmp_path, digits)
    for start, words in (("a", "several; valid: aaa"), ("ac", "none")):
        with pytest.raises(UserError, match=words):
            remove(tmp_path, start)
    with pytest.raises(UserError, match="none"):
        remove(tmp_path / "nowhere", "aa")


def test_what_a_run_removes_while_it_is_listed_ends_no_list(tmp_path: Path, monkeypatch) -> None:
    """Temporary files are renamed, and old checkpoints removed, at any moment."""
    run(tmp_path, "bb", finished=False)
    whole = Path.rglob

    def vanishing(path: Path, pattern: str) -> Iterator[Path]:
        for file in whole(path, pattern):
            yield file
            if file.name == "progress.json.tmp":
                file.unlink()

    folder = RunFolder(tmp_path, "bb" * 32).path
    bytes_of_all = list_runs(tmp_path)[0]["bytes"]
    (folder / "progress.json.tmp").write_bytes(b"12345")
    monkeypatch.setattr(Path, "rglob", vanishing)
    assert list_runs(tmp_path)[0]["bytes"] in (bytes_of_all, bytes_of_all + 5)
    assert list_runs(tmp_path)[0]["bytes"] == bytes_of_all


def test_gc_names_what_can_go_and_touches_nothing_unless_told(tmp_path: Path, capsys) -> None:
    run(tmp_path, "aa")
    run(tmp_path, "bb", finished=False)
    crashed = RunFolder(tmp_path, "cc" * 32)
    crashed.path.mkdir()
    half, fresh = crashed.path / ".x.0123456789ab.tmp", crashed.path / ".y.0123456789ab.tmp"
    of_study = tmp_path / "studies" / "two" / ".z.0123456789ab.tmp"
    of_study.parent.mkdir(parents=True)
    for path in (half, fresh, of_study):
        path.write_bytes(b"half")
    age(half)
    age(of_study)
    for store in ("used", "unused", "new"):
        (tmp_path / "data" / store).mkdir(parents=True)
        (tmp_path / "data" / store / "ids").write_bytes(b"123")
    for store in ("used", "unused", "new"):
        (tmp_path / "data" / store / "card.json").write_text(f'{{"train": "{store.ljust(64, "0")}"}}')
    (tmp_path / "data" / "card").mkdir()
    (tmp_path / "data" / "card" / "card.json").write_text(f'{{"train": "{"ee" * 32}"}}')
    (tmp_path / "runs" / ("b" * 16) / "identity.json").write_text(f'{{"train": "{"ee" * 32}"}}')
    for store in ("used", "unused", "card", "new"):
        for path in [*(tmp_path / "data" / store).iterdir(), tmp_path / "data" / store]:
            age(path)
    age(tmp_path / "data" / "new" / "ids", 0)
    (tmp_path / "runs" / ".trash-dd").mkdir()
    done = f"runs/{'a' * 16}/checkpoints"
    expected = [f"{done}/step-5.ckpt", f"{done}/step-6.ckpt"]
    expected += [f"runs/{'c' * 16}/.x.0123456789ab.tmp", "runs/.trash-dd"]
    expected += ["studies/two/.z.0123456789ab.tmp", "data/unused"]
    before = sorted(tmp_path.rglob("*"))
    assert names(tmp_path) == expected
    assert sorted(p for p in tmp_path.rglob("*") if p.name != "now") == before
    assert gc(tmp_path)[0][1] == 1000
    assert main(["runs", "gc", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(f"would be freed by: lightning-tfm runs gc --yes --out {tmp_path}\n")
    assert names(tmp_path, dry_run=False) == expected
    assert names(tmp_path) == []
    assert main(["runs", "gc", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "nothing to remove\n"
    left = RunFolder(tmp_path, "aa" * 32)
    assert left.finished() and (left.snapshots / "step-10.pt").exists()
    assert (tmp_path / "runs" / ("b" * 16) / "checkpoints/step-5.ckpt").exists() and fresh.exists()


def test_gc_keeps_the_only_weights_of_a_finished_run(tmp_path: Path) -> None:
    folder = run(tmp_path, "aa").folder
    (folder.snapshots / "step-10.pt").unlink()
    gc(tmp_path, dry_run=False)
    assert [path.name for path in folder.checkpoints.iterdir()] == ["step-6.ckpt"]


def test_where_no_runs_are_it_is_said_whether_the_folder_exists(tmp_path: Path, capsys) -> None:
    assert main(["runs", "list", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no runs in {tmp_path / 'runs'}: {tmp_path / 'runs'} does not exist\n"
    missing = tmp_path / "missing"
    assert main(["runs", "query", "h = 8", "--out", str(missing)]) == 0
    assert main(["runs", "gc", "--out", str(missing)]) == 0
    nowhere = f": {missing} does not exist\n"
    assert capsys.readouterr().out == f"none of 0 runs{nowhere}nothing to remove{nowhere}"
    (tmp_path / "runs").mkdir()
    assert main(["runs", "list", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no runs in {tmp_path / 'runs'}\n"


ROWS = ["base", "A-h1", "A-h4"]


@pytest.fixture(params=["journal", pytest.param("postgres", marks=pytest.mark.long)])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Queue]:
    """A study whose runs are finished, but for one seed of A-h4, which waits."""
    one = Generator(tmp_path, ROWS, [1, 2, 3], "made")
    one.write_all(skip=[("A-h4", 3)])
    folder, storage = folder_of(tmp_path, "made"), ""
    if request.param == "postgres":
        storage = request.getfixturevalue("postgres").url
        remember(storage, folder)
    queue = make_queue(one.study, tmp_path, Resources(storage=storage), print)
    publish(queue, folder, one.study.to_plain())
    queue.enqueue(one.study.cells(), params_of=params_of(one.study))
    for cell in one.study.cells()[:-1]:
        link(folder, cell)
        claim = queue.claim(skip=lambda run, cell=cell: run != cell.training_hash)
        assert claim is not None and queue.finish(claim, 5.0)
    return tmp_path, queue


def said(capsys, *argv: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(list(argv)) == code
    found = capsys.readouterr()
    return found.err if code else found.out


def cells(queue: Queue) -> dict[tuple[str, int], str]:
    return {(state.cell.row, state.cell.seed): state.state for state in queue.states()}


def test_a_hidden_row_leaves_the_table_and_comes_back_with_its_runs(made, capsys) -> None:
    root, queue = made
    runs, before = sorted((root / "runs").iterdir()), cells(queue)
    table = said(capsys, "table", "made", "--out", str(root))
    assert "'A-h4 (hidden)'" in said(capsys, "study", "hide", "made", "A-h4", "--out", str(root))
    shown = said(capsys, "table", "made", "--out", str(root))
    assert "1 row hidden (A-h4 (hidden))" in shown and "\nA-h4" not in shown
    assert said(capsys, "status", "made", "--out", str(root)).startswith("made: 6 finished, 0 running, 0 waiting")
    hidden = load(root, "made").hidden[0]
    assert (hidden.name, hidden.change) == ("A-h4 (hidden)", {"model.h": 4, "model.d_k": 128, "model.d_v": 128})
    assert queue.claim() is None and queue.done(), "it trains no further"
    assert [row["name"] for row in queue.note_of("definition")["rows"]] == ["base", "A-h1"]
    assert not (root / "studies/made/cells/A-h4").exists() and sorted((root / "runs").iterdir()) == runs
    for action, row, words in (
        ("hide", "A-h4", "A-h4 is hidden already, as 'A-h4 (hidden)'"),
        ("hide", "A-h7", "no row 'A-h7'"),
        ("hide", "base", "so it stays"),
        ("show", "A-h1", "the hidden ones are 'A-h4 (hidden)'"),
    ):
        assert words in said(capsys, "study", action, "made", row, "--out", str(root), code=2)
    said(capsys, "study", "show", "made", "A-h4", "--out", str(root))
    assert said(capsys, "table", "made", "--out", str(root)) == table
    whole = load(root, "made")
    queue.enqueue(whole.cells(), params_of=params_of(whole))
    assert cells(queue) == before | {("A-h4", 1): "waiting", ("A-h4", 2): "waiting"}, "whose runs are finished"


def test_the_file_brings_a_hidden_row_not_back_and_its_name_is_free_for_another(made, capsys) -> None:
    root, queue = made
    whole = load(root, "made")
    hide(root, "made", "A-h4")
    again = save(whole, root)
    assert [row.name for row in again.rows] == ["base", "A-h1"] and len(again.hidden) == 1
    rows = [row if row.name != "A-h4" else replace(row, change={"model.N": 4}) for row in whole.rows]
    other = save(replace(whole, rows=rows), root)
    assert queue.enqueue(other.cells(), params_of=params_of(other)) == 3
    assert load(root, "made").rows[-1].change == {"model.N": 4}
    assert "has another row A-h4 now" in said(capsys, "study", "show", "made", "A-h4", "--out", str(root), code=2)
    claim = queue.claim()
    assert claim is not None
    row = claim.cell.row
    assert "is being trained" in said(capsys, "study", "hide", "made", row, "--out", str(root), code=2)
    assert queue.finish(claim, 5.0)
    assert hide(root, "made", "A-h4") == "A-h4 (hidden 2)"
    names = {row.name: row.change for row in load(root, "made").hidden}
    assert names["A-h4 (hidden)"] != names["A-h4 (hidden 2)"] == {"model.N": 4}


def test_hiding_losers_buys_nothing(tmp_path: Path, capsys) -> None:
    """p, intervals and verdicts of the rows that stay are those of before, and exports still hold the hidden row."""
    one = Generator(tmp_path, ["base", "A-h1", "A-h4", "B-dk16", "D-Pdrop0.0"], [1, 2, 3, 4, 5], "made")
    one.write_all()

    def report() -> dict:
        return json.loads(said(capsys, "report", "made", "--format", "json", "--out", str(tmp_path)))

    before = report()
    for row in ("A-h4", "B-dk16"):
        hide(tmp_path, "made", row)
    after = report()
    rows = {row["row"]: row for row in before["rows"]}
    assert after["rows"] == [rows[name] for name in ("base", "A-h1", "D-Pdrop0.0")]
    assert [row | {"row": ""} for row in after["hidden"]] == [rows[name] | {"row": ""} for name in ("A-h4", "B-dk16")]
    assert after.keys() == before.keys() | {"hidden"}
    for key in ("claims", "finished", "cells"):
        assert json.dumps(after[key]) == json.dumps(before[key]), key
    lines = said(capsys, "report", "made", "--format", "csv", "--out", str(tmp_path)).splitlines()
    assert lines[0].endswith(",hidden")
    assert [line.rpartition(",")[2] for line in lines[1:]] == ["", "", "", "hidden", "hidden"]
    file = tmp_path / "made.tar.xz"
    said(capsys, "records", "pack", "made", str(file), "--out", str(tmp_path))
    assert "25 runs unpacked" in said(capsys, "records", "unpack", str(file), "--out", str(tmp_path / "there"))
    assert [row.name for row in load(tmp_path / "there", "made").hidden] == ["A-h4 (hidden)", "B-dk16 (hidden)"]


def test_a_row_under_looks_stays_and_what_it_was_tuned_to_follows(tmp_path: Path) -> None:
    one = Generator(tmp_path, ROWS, [1, 2, 3])
    folder = folder_of(tmp_path, "made")
    looks = Course(late(3, 8), [Look({name: [1, 2, 3] for name in ROWS})], {name: [1, 2, 3, 4] for name in ROWS})
    (folder / "looks.json").write_text(json.dumps(looks_to_json(looks)))
    save(one.study, tmp_path)
    with pytest.raises(UserError, match="its rows are fixed"):
        hide(tmp_path, "made", "A-h4")
    (folder / "looks.json").unlink()
    hide(tmp_path, "made", "A-h4")
    with pytest.raises(UserError, match="it has hidden rows, which no look would count"):
        rounds.begin(one.study, {"first_seeds": 3, "max_seeds": 8}, tmp_path)
    show(tmp_path, "made", "A-h4")
    assert [row.name for row in load(tmp_path, "made").rows] == list(ROWS), "in its place"
    rows = [{"row": row, "value": 2, "ppl": {"2": 1.0, "4": 2.0}} for row in ROWS]
    plain = {"key": "model.N", "values": [2, 4], "seeds": [9], "study": "made-tuning", "cost": {}, "rows": rows}
    (folder / FILE).write_text(json.dumps(plain))
    for act, name in ((hide, "A-h4 (hidden)"), (show, "A-h4")):
        act(tmp_path, "made", "A-h4")
        tuning = read_tuning(folder)
        assert tuning is not None and [row.row for row in tuning.rows] == ["base", "A-h1", name]


def test_a_row_that_only_leaves_out_need_not_fit_base(tmp_path: Path, monkeypatch) -> None:
    table = HEAD.format(method="grid") + "parameters:\n  row: {values: [base, A-h1, C-N2]}\n  seed: {values: [1]}\n"
    monkeypatch.setattr("lightning_tfm.queue.launch.work", lambda *study, **how: [])
    assert call("sweep", tmp_path, table, "--only", "A-h1", "--model.N", "2") == 0
    assert call("sweep", tmp_path, table, "--name", "all", "--model.N", "2") == 2


def test_a_row_that_the_sweep_file_lost_is_named_by_sweep(tmp_path: Path, capsys, monkeypatch) -> None:
    table = HEAD.format(method="grid") + "parameters:\n  row: {values: [base, A-h1, A-h4]}\n  seed: {values: [1]}\n"
    monkeypatch.setattr("lightning_tfm.queue.launch.work", lambda *study, **how: [])
    out = tmp_path / "out"
    assert call("sweep", tmp_path, table, "--only", "A-h1") == call("sweep", tmp_path, table) == 0
    assert "kept" not in capsys.readouterr().err, "what --only leaves out is in the file"
    assert call("sweep", tmp_path, table, "--only", "A-h3") == 2
    assert "small.yaml has no row 'A-h3': near it: A-h4, A-h1" in capsys.readouterr().err
    make_queue(load(out, "small"), out, Resources(), print)
    words = f"small: kept, though {tmp_path}/small.yaml does not name it: A-h1 "
    words += f"(lightning-tfm study hide small A-h1 --out {out})"
    assert call("sweep", tmp_path, table.replace("A-h1, ", "")) == 0 and words in capsys.readouterr().err
    assert "metric" not in capsys.readouterr().err
    assert call("sweep", tmp_path, table.replace("dev/ppl, goal: minimize", "dev/bleu").replace("A-h1, ", "")) == 0
    assert f"{tmp_path}/small.yaml: metric dev/bleu is only for W&B" in capsys.readouterr().err
    said(capsys, "study", "hide", "small", "A-h1", "--out", str(out))
    given = []
    monkeypatch.setattr("lightning_tfm.queue.launch.work", lambda study, cells, *rest, **how: given.extend(cells) or [])
    assert call("sweep", tmp_path, table) == call("plan", tmp_path, table) == 0
    assert {cell.row for cell in given} == {"base", "A-h4"}, "the file names it, and it trains no further"
    capsys.readouterr()
    assert main(["status", "small", "--out", str(out)]) == 0
    assert (
        f"small: 1 row hidden: A-h1 (hidden) (lightning-tfm study show small ROW --out {out})"
        in capsys.readouterr().err
    )
    rows = tmp_path / "rows.yaml"
    rows.write_text("mine: {group: X, change: {model.h: 4}}\n")
    own = table.replace("A-h1, A-h4", "mine").replace("name: small", "name: own")
    assert call("sweep", tmp_path, own, "--rows", str(rows)) == 0
    make_queue(load(out, "own"), out, Resources(), print)
    rows.write_text("mine: {group: X, change: {model.h: 2}}\n")
    words = "row 'mine' changes {'model.h': 2}, the study has {'model.h': 4}: put the old change back, "
    words += f"give the new one another name, or hide the old one (lightning-tfm study hide own mine --out {out};"
    capsys.readouterr()
    assert call("sweep", tmp_path, own, "--rows", str(rows)) == 2
    assert f"{out}/studies/own/study.json: {words}" in capsys.readouterr().err
    said(capsys, "study", "hide", "own", "mine", "--out", str(out))
    assert call("sweep", tmp_path, own, "--rows", str(rows)) == 0
    assert [row.change for row in load(out, "own").rows] == [{}, {"model.h": 2}]
