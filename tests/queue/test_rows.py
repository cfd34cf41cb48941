"""`study drop` and `study rename`: a row leaves the tables or is called otherwise, and no run is lost."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.queue.open import make_queue
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.resources import Resources
from lightning_tfm.queue.rows import move
from lightning_tfm.queue.sampling import shown
from lightning_tfm.queue.sharing import publish
from lightning_tfm.queue.storage import remember
from lightning_tfm.study.looks import Course, Look, late, looks_to_json, read_looks
from lightning_tfm.study.study import folder_of, link, load, save
from lightning_tfm.study.tuned import FILE, read_tuning
from tests.report.synthetic import Generator
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
    queue.enqueue(one.study.cells(), shown=shown(one.study))
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


def test_a_row_that_is_dropped_leaves_every_view_and_comes_back_with_its_runs(made, capsys) -> None:
    root, queue = made
    whole, runs, before = load(root, "made"), sorted((root / "runs").iterdir()), cells(queue)
    assert "A-h4" in said(capsys, "table", "made", "--out", str(root))
    said(capsys, "study", "drop", "made", "A-h4", "--out", str(root))
    assert "A-h4" not in said(capsys, "table", "made", "--out", str(root))
    assert said(capsys, "status", "made", "--out", str(root)).startswith("made: 6 finished, 0 running, 0 waiting")
    assert queue.claim() is None and queue.done() and queue.retry(before and whole.cells()[-1].training_hash) == 0
    assert [row["name"] for row in queue.noted("definition")["rows"]] == ["base", "A-h1"]
    assert not (root / "studies/made/cells/A-h4").exists() and sorted((root / "runs").iterdir()) == runs
    for row, words in (("A-h4", "no row 'A-h4'"), ("base", "so it stays")):
        assert words in said(capsys, "study", "drop", "made", row, "--out", str(root), code=2)

    save(whole, root)  # the row is in the file again
    queue.enqueue(whole.cells(), shown=shown(whole))
    assert cells(queue) == before | {("A-h4", 1): "waiting", ("A-h4", 2): "waiting"}, "whose runs are finished"


def test_a_row_may_come_back_as_another_change(made) -> None:
    root, queue = made
    whole = load(root, "made")
    move(root, "made", "A-h4", None)
    rows = [row if row.name != "A-h4" else replace(row, change={"model.N": 4}) for row in whole.rows]
    other = save(replace(whole, rows=rows), root)
    assert queue.enqueue(other.cells(), shown=shown(other)) == 3
    assert load(root, "made").rows[-1].change == {"model.N": 4}


def test_a_renamed_row_keeps_what_it_has(made, capsys) -> None:
    root, queue = made
    before = said(capsys, "table", "made", "--out", str(root))
    states = [(s.state, s.seconds, s.values, s.cell.training_hash) for s in queue.states()]
    said(capsys, "study", "rename", "made", "A-h4", "four", "--out", str(root))
    assert " ".join(said(capsys, "table", "made", "--out", str(root)).split()) == " ".join(
        before.replace("A-h4", "four").split()
    )
    assert cells(queue).keys() == {(row, seed) for row in ("base", "A-h1", "four") for seed in (1, 2, 3)}
    assert [(s.state, s.seconds, s.values, s.cell.training_hash) for s in queue.states()] == states
    assert queue.enqueue(load(root, "made").cells()) == 0, "nothing runs again"
    assert json.loads((root / "studies/made/cells/four/1.json").read_text())["row"] == "four"
    claim = queue.claim()
    assert claim is not None and (claim.cell.row, claim.cell.seed) == ("four", 3)
    for argv, words in (
        (["four", "A-h1"], "has a row A-h1, which changes"),
        (["four", "a/b"], "not a valid name"),
        (["four", "five"], "row four, seed 3 is being trained"),
        (["four"], "needs a new name"),
    ):
        assert words in said(capsys, "study", "rename", "made", *argv, "--out", str(root), code=2)
    assert [row.name for row in load(root, "made").rows] == ["base", "A-h1", "four"], "a refusal writes nothing"


def test_a_row_that_was_renamed_in_the_file_first_takes_the_place_of_the_old_one(made) -> None:
    root, queue = made
    study = load(root, "made")
    both = save(replace(study, rows=[*study.rows, replace(study.rows[1], name="one")]), root)
    queue.enqueue(both.cells())
    move(root, "made", "A-h1", "one")
    assert [row.name for row in load(root, "made").rows] == ["base", "A-h4", "one"]
    assert {row for row, _ in cells(queue)} == {"base", "A-h4", "one"}


def test_looks_and_tuning_follow_the_name(tmp_path: Path) -> None:
    one = Generator(tmp_path, ROWS, [1, 2, 3])
    folder = folder_of(tmp_path, "made")
    looks = Course(late(3, 8), [Look({name: [1, 2, 3] for name in ROWS})], {name: [1, 2, 3, 4] for name in ROWS})
    (folder / "looks.json").write_text(json.dumps(looks_to_json(looks)))
    tried = [replace(row, name=f"{row.name}, N={n}") for row in one.study.rows for n in (2, 4)]
    save(replace(one.study, name="made-tuning", rows=tried), tmp_path)
    rows = [{"row": row, "value": 2, "ppl": {"2": 1.0, "4": 2.0}} for row in ROWS]
    plain = {"key": "model.N", "values": [2, 4], "seeds": [9], "study": "made-tuning", "cost": {}, "rows": rows}
    (folder / FILE).write_text(json.dumps(plain))
    move(tmp_path, "made", "A-h4", "four")
    course, tuning = read_looks(folder), read_tuning(folder)
    assert course is not None and list(course.looks[0].seeds) == list(course.asked or ()) == ["base", "A-h1", "four"]
    assert tuning is not None and [row.row for row in tuning.rows] == ["base", "A-h1", "four"]
    assert [row.name for row in load(tmp_path, "made-tuning").rows][-2:] == ["four, N=2", "four, N=4"]
    with pytest.raises(Exception, match="its rows are fixed"):
        move(tmp_path, "made", "four", None)
    (folder / "looks.json").unlink()
    move(tmp_path, "made", "four", None)
    tuning = read_tuning(folder)
    assert tuning is not None and [row.row for row in tuning.rows] == ["base", "A-h1"]
    assert len(load(tmp_path, "made-tuning").rows) == 4


def test_a_row_that_the_sweep_file_lost_is_named_by_sweep_status_and_table(tmp_path: Path, capsys, monkeypatch) -> None:
    table = HEAD.format(method="grid") + "parameters:\n  row: {values: [base, A-h1, A-h4]}\n  seed: {values: [1]}\n"
    monkeypatch.setattr("lightning_tfm.queue.launch.work", lambda *study, **how: [])
    out = tmp_path / "out"
    assert call("sweep", tmp_path, table, "--only", "A-h1") == call("sweep", tmp_path, table) == 0
    assert "kept" not in capsys.readouterr().err, "what --only leaves out is in the file"
    assert call("sweep", tmp_path, table, "--only", "A-h3") == 2
    assert "small.yaml has no row 'A-h3': near it: A-h4, A-h1" in capsys.readouterr().err
    make_queue(load(out, "small"), out, Resources(), print)
    words = f"small: kept, though {tmp_path}/small.yaml does not name it: A-h1 "
    words += f"(lightning-tfm study drop small A-h1 --out {out}; "
    assert call("sweep", tmp_path, table.replace("A-h1, ", "")) == 0 and words in capsys.readouterr().err
    assert "metric" not in capsys.readouterr().err
    assert call("sweep", tmp_path, table.replace("dev/ppl, goal: minimize", "dev/bleu").replace("A-h1, ", "")) == 0
    assert f"{tmp_path}/small.yaml: metric dev/bleu is only for W&B" in capsys.readouterr().err
    for verb in ("table", "status"):
        assert main([verb, "small", "--out", str(out)]) == 0 and words in capsys.readouterr().err
    assert "back" not in said(capsys, "study", "rename", "small", "A-h1", "one", "--out", str(out))
    assert "still has A-h4" in said(capsys, "study", "drop", "small", "A-h4", "--out", str(out))
    rows = tmp_path / "rows.yaml"
    rows.write_text("mine: {group: X, change: {model.h: 4}}\n")
    own = table.replace("A-h1, A-h4", "mine").replace("name: small", "name: own")
    assert call("sweep", tmp_path, own, "--rows", str(rows)) == 0
    make_queue(load(out, "own"), out, Resources(), print)
    rows.write_text("mine: {group: X, change: {model.h: 2}}\n")
    words = "row 'mine' changes {'model.h': 2}, the study has {'model.h': 4}: put the old change back, "
    words += f"give the new one another name, or take the old one out (lightning-tfm study drop own mine --out {out};"
    capsys.readouterr()
    assert call("sweep", tmp_path, own, "--rows", str(rows)) == 2
    assert f"{out}/studies/own/study.json: {words}" in capsys.readouterr().err
    for verb in ("table", "status"):
        assert main([verb, "own", "--out", str(out)]) == 0
        assert f"{rows}:1 differs from study 'own': {words}" in capsys.readouterr().err
    said(capsys, "study", "drop", "own", "mine", "--out", str(out))
    assert call("sweep", tmp_path, own, "--rows", str(rows)) == 0
    assert [row.change for row in load(out, "own").rows] == [{}, {"model.h": 2}]
    assert main(["status", "own", "--out", str(out)]) == 0 and "differs" not in capsys.readouterr().err
    (tmp_path / "small.yaml").unlink()
    assert main(["table", "small", "--out", str(out)]) == 0 and "kept" not in capsys.readouterr().err
