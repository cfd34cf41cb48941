"""`study hide` and `study show`: a row leaves the table and comes back, no run is lost and no test changes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.errors import UserError
from lightning_tfm.queue import rounds
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.resources import Resources
from lightning_tfm.queue.rows import hide, show
from lightning_tfm.queue.searches.sampling import optuna_params as shown_of
from lightning_tfm.queue.storages.backends import remember
from lightning_tfm.queue.storages.open import make_queue
from lightning_tfm.queue.storages.sharing import publish
from lightning_tfm.study.row_tuning import FILE, read_tuning
from lightning_tfm.study.sequential import Course, Look, late, looks_to_json
from lightning_tfm.study.study_file import folder_of, link, load, save
from tests.helpers.studies import Generator
from tests.study.test_plan import HEAD, call

ROWS = ["base", "A-h1", "A-h4"]


@pytest.fixture(params=["journal", "postgres"])
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
    queue.enqueue(one.study.cells(), shown=shown_of(one.study))
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
    assert [row["name"] for row in queue.noted("definition")["rows"]] == ["base", "A-h1"]
    assert not (root / "studies/made/cells/A-h4").exists() and sorted((root / "runs").iterdir()) == runs
    for action, row, words in (
        ("hide", "A-h4", "no row 'A-h4'"),
        ("hide", "base", "so it stays"),
        ("show", "A-h1", "the hidden ones are 'A-h4 (hidden)'"),
    ):
        assert words in said(capsys, "study", action, "made", row, "--out", str(root), code=2)
    said(capsys, "study", "show", "made", "A-h4", "--out", str(root))
    assert said(capsys, "table", "made", "--out", str(root)) == table
    whole = load(root, "made")
    queue.enqueue(whole.cells(), shown=shown_of(whole))
    assert cells(queue) == before | {("A-h4", 1): "waiting", ("A-h4", 2): "waiting"}, "whose runs are finished"


def test_the_file_brings_a_hidden_row_not_back_and_its_name_is_free_for_another(made, capsys) -> None:
    root, queue = made
    whole = load(root, "made")
    hide(root, "made", "A-h4")
    again = save(whole, root)
    assert [row.name for row in again.rows] == ["base", "A-h1"] and len(again.hidden) == 1
    rows = [row if row.name != "A-h4" else replace(row, change={"model.N": 4}) for row in whole.rows]
    other = save(replace(whole, rows=rows), root)
    assert queue.enqueue(other.cells(), shown=shown_of(other)) == 3
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
