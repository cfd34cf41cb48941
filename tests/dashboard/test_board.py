"""What the dashboard makes of a folder: every state, damage included, nothing read twice."""

import json
import os
import shutil
import time
from dataclasses import replace

import pytest

from lightning_tfm.dashboard import curves_page, diff_page, index_page, run_page, study_page
from lightning_tfm.dashboard.board import Board
from lightning_tfm.dashboard.reports import Reports
from lightning_tfm.errors import UserError
from lightning_tfm.results import load_study
from lightning_tfm.runs.folder import GRACE, RunFolder
from lightning_tfm.runs.record import Measure, to_plain
from lightning_tfm.study.rows import Fingerprints, RowData, apply
from lightning_tfm.study.study_file import link, save
from lightning_tfm.sums import with_checksum
from lightning_tfm.watch import run_state
from lightning_tfm.watch.run_state import STATES, thin_points
from lightning_tfm.watch.study_state import Best, CellState, Watch
from lightning_tfm.watch.time_left import Left
from tests.helpers.calling import call
from tests.helpers.studies import (
    PRINTS,
    SMALL,
    Folder,
    own_row,
    record_of,
    rescore,
    write_json,
    write_lines,
)

QUERY = "study = '{}'"


def counts(**found):
    return dict.fromkeys(("finished", "running", "waiting", "failed"), 0) | found


@pytest.fixture
def made(tmp_path):
    return Folder(tmp_path)


def test_every_state_is_told_from_the_files_and_damage_hides_nobody(made):
    study = made.table("table", ["base", "A-h1", "A-h4"], seeds=[1, 2, 3])
    states = [*STATES, "finished"]
    made.fill(study, states)
    broken = made.root / "studies" / "broken"
    broken.mkdir()
    (broken / "study.json").write_text("{")
    seen = Board(made.root, every=0).look()
    found = [seen.runs[run.training_hash[:16]].state for run in seen.outlines["table"].runs]
    assert found == [states[i % len(states)] for i in range(9)]
    assert {name: view.kind for name, view in seen.studies.items()} == {"table": "table", "broken": "damaged"}
    assert "not a study definition" in seen.studies["broken"].words
    view = seen.studies["table"]
    assert view.total == 9 and sum(view.counts.values()) == 9 and view.state == "running"
    words = {view.state: view.words for view in seen.runs.values()}
    assert words["failed"].startswith("out of memory: RuntimeError") and "not valid JSON" in words["damaged"]
    assert "unpromising" in words["stopped early"] and "SIGTERM" in words["interrupted"]


@pytest.mark.parametrize(
    "name", ["progress.json", "outcome.json", "metrics.jsonl", "attempts/0001.json", "identity.json"]
)
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"step": NaN}', b"\xff\xfe", b'{"number": "x"}', b"nul"])
def test_a_half_written_file_of_a_running_run_breaks_nothing(made, name, content):
    folder = made.run(SMALL, "running")
    (folder.path / name).write_bytes(content)
    board = Board(made.root, every=0)
    seen = board.look()
    assert seen.runs[folder.path.name].state in STATES
    made.run(SMALL, "finished")
    assert board.look().runs[folder.path.name].state == "finished"


@pytest.mark.parametrize("value", [1e300, -1, 10**400, "soon", {}])
def test_an_absurd_number_is_damage_that_the_pages_name(made, value):
    folder = made.run(SMALL, "running")
    folder.cell.write_text('{"row": "base", "seed": 1}')
    for name, key in (("progress.json", "time"), ("cell.json", "seed"), ("attempts/0001.json", "time")):
        plain = json.loads((folder.path / name).read_bytes())
        (folder.path / name).write_text(json.dumps(plain | {key: value}))
        board = Board(made.root, every=0)
        seen = board.look()
        index_page.page(made.root, seen, index_page.ALL)
        run_page.page(board, seen, folder.path.name)
        words = seen.runs[folder.path.name].words
        assert name != "progress.json" or f"progress.json: its record is malformed: {key}=" in words
        (folder.path / name).write_text(json.dumps(plain))


def test_a_run_lives_as_long_as_its_heartbeat(made):
    folder = made.run(SMALL, "running")
    board = Board(made.root, every=0)
    view = board.look().runs[folder.path.name]
    assert view.state == "running" and view.left == Left(pytest.approx(0.03 * (view.steps - view.step)), at_least=True)
    old = time.time() - GRACE - 5
    os.utime(folder.attempts / "0001.beat", (old, old))
    view = board.look().runs[folder.path.name]
    assert view.state == "interrupted" and "without a message" in view.words
    os.utime(folder.attempts / "0001.beat")  # it was only asleep
    assert board.look().runs[folder.path.name].state == "running"


def test_a_process_of_this_machine_that_is_gone_is_known_at_once(made):
    folder = RunFolder(made.root, "ab" * 32)
    attempt = folder.claim()
    board = Board(made.root, every=0)
    assert board.look().runs[folder.path.name].state == "running"
    record = json.loads(attempt.file.read_bytes())
    record["owner"]["start"] += 1
    attempt.file.write_text(json.dumps(record))
    assert board.look().runs[folder.path.name].state == "interrupted"
    attempt.pulse.unlink()


def test_what_has_ended_is_not_read_again_and_versions_rise_where_something_differs(made, monkeypatch):
    study = made.table("table", ["base", "A-h1"], seeds=[1, 2])
    made.fill(study, ["finished", "failed"])
    going = made.run(replace(SMALL, training=replace(SMALL.training, seed=99)), "running")
    damaged = made.run(replace(SMALL, training=replace(SMALL.training, seed=98)), "damaged")
    read = []
    kept = run_state.read_record
    monkeypatch.setattr(run_state, "read_record", lambda path: read.append(path.parent.name) or kept(path))
    board = Board(made.root, every=0)
    first = board.look()
    assert sorted(read) == sorted(first.runs) and len(read) == 6
    read.clear()
    assert board.look() is first and read == [going.path.name]
    damaged.result.write_text('{"status": ')
    read.clear()
    assert board.look() != first and sorted(read) == sorted([going.path.name, damaged.path.name]), "once more"
    first = board.look()
    with going.metrics.open("a") as file:
        file.write('{"step": 1999, "dev_ppl": 1.5}\n')
    second = board.look()
    assert second.version == first.version + 1
    assert [key for key, version in second.since.items() if version == second.version] == [f"run/{going.path.name}"]
    shutil.rmtree(going.path)
    third = board.look()
    assert going.path.name not in third.runs and third.version == second.version + 1


def test_a_study_says_what_is_best_and_when_it_will_be_done(made):
    study = made.table("table", ["base", "A-h1"], seeds=[1, 2])
    for seed in (1, 2):
        made.run(apply(study.base, study.rows[0], seed))
    running = made.run(apply(study.base, study.rows[1], 1), "running")
    board = Board(made.root, every=0)
    seen = board.look()
    assert board.look() is seen, "nothing is different"
    view, outline = seen.studies["table"], seen.outlines["table"]
    ppl = [seen.runs[run.training_hash[:16]].ppl for run in outline.runs[:2]]
    assert (
        view.best == Best("base", None, "dev/ppl", pytest.approx((ppl[0] * ppl[1]) ** 0.5))
        and view.counts["waiting"] == 1
    )
    of_run, costs = seen.runs[running.path.name], [run.cost for run in outline.runs]
    left = (of_run.steps - of_run.step) * 0.03 * (1 + 3.5 / 62) + 4.0
    assert of_run.left == Left(pytest.approx(left)), "with what finished runs took beside and after their steps"
    assert view.left.seconds == pytest.approx(left + costs[3] * 2 * 69.5 / (costs[0] + costs[1]))


def test_perplexities_of_different_pieces_are_not_compared(made):

    vocabulary = own_row("v", {"data.vocab_size": 500}, "V")
    data = {"data.vocab_size=500": RowData(Fingerprints("u" * 64, "e" * 64), 500, "other")}
    study = replace(made.table("table", ["base", "A-h1"], seeds=[1]), name="pieces", data=data)
    study = save(replace(study, rows=[*study.rows, vocabulary]), made.root)
    own = made.run(apply(study.base, vocabulary, 1))
    record = json.loads(own.result.read_bytes())
    record["data"]["dev"], record["training_hash"] = "e" * 64, study.cells()[2].training_hash
    record["scores"]["dev"]["evaluation_hash"] = study.evaluation_of(vocabulary)
    own.result.write_text(json.dumps(record))
    own.path.rename(made.root / "runs" / study.cells()[2].training_hash[:16])
    for row in study.rows[:2]:
        made.run(apply(study.base, row, 1))
    board = Board(made.root, every=0)
    seen = board.look()
    assert seen.studies["pieces"].best is None and seen.studies["table"].best is not None
    page = study_page.page(Board(made.root), seen, "pieces")
    assert [row["against"] is None for row in page.data["rows"]] == [True, False, True]
    assert page.data["rows"][2]["ppl"]["mean"] is not None
    assert [curve.name for curve in page.charts["chart-dev"].curves] == ["base", "one head"]
    assert "without rows that have another vocabulary" in page.charts["chart-dev"].note
    names = [cell.training_hash[:16] for cell in study.cells()]
    scores = dict(diff_page.page(board, seen, names).data["scores"])
    assert ["(" in text for text in scores["dev PPL"]] == [False, True, False]
    assert ["(" in text for text in scores["dev BLEU"]] == [False, True, True]
    rescore(made.root / "runs" / names[2] / "result.json", words=7)
    scores = dict(diff_page.page(board, seen, names).data["scores"])
    assert ["(" in text for text in scores["dev BLEU"]] == [False, True, False], "of another text"
    rescore(made.root / "runs" / names[2] / "result.json", words=None)
    rescore(made.root / "runs" / names[1] / "result.json", signature="nrefs:1|tok:zh")
    scores = dict(diff_page.page(board, seen, names).data["scores"])
    assert ["(" in text for text in scores["dev BLEU"]] == [False, False, True]


def name_dev_text(folder: RunFolder) -> list[float]:
    """Mark a curve's perplexities as those of the text of PRINTS; returns them."""
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    write_lines(folder.metrics, [line | ({"dev": PRINTS.dev[:16]} if "dev_ppl" in line else {}) for line in lines])
    return [line["dev_ppl"] for line in lines if "dev_ppl" in line]


def queried(made: Folder, study: str, *more: str) -> list[dict]:
    """What `runs query` prints of a study's runs."""
    return json.loads(call("runs", "query", f"study = '{study}'", *more, "--json", f"--out={made.root}").out)


def test_a_run_of_two_studies_has_in_each_the_score_on_its_dev_text_or_none(made):
    study = made.table("one", ["base", "A-h1"], seeds=[1, 2])
    made.fill(study)
    prints = Fingerprints("t" * 64, "f" * 64)
    two = save(replace(study, name="two", prints=prints), made.root)
    folders = [RunFolder(made.root, cell.training_hash) for cell in study.cells()]
    for folder in folders:
        name_dev_text(folder)
    anew = folders[0].scores(two.evaluation_of(two.rows[0])) / "val.json"
    anew.parent.mkdir()
    other = record_of(two.experiment(two.cells()[0]), prints, ppl=77.0, nll=10.0, tokens=4).scores["dev"]
    anew.write_text(json.dumps(with_checksum(to_plain(replace(other, run=folders[0].path.name)))))

    seen = Board(made.root, every=0).look()
    own = {view.name: view.ppl for view in seen.runs.values()}
    one_run, *others = (folder.path.name for folder in folders)
    assert {line["run"]: line["ppl"] for line in queried(made, "two")} == {one_run: 77.0} | dict.fromkeys(others)
    assert {line["run"]: line["ppl"] for line in queried(made, "one")} == own
    assert {*own.values()}.isdisjoint({77.0, None})

    board = Board(made.root, every=0)
    assert len(curves_page.page(board, seen, QUERY.format("one"), "", "dev_ppl").charts["chart-curves"].curves) == 4
    assert not curves_page.page(board, seen, QUERY.format("two"), "", "dev_ppl").charts, "curves on the text of one"
    assert "chart-dev" not in study_page.page(Board(made.root), seen, "two").charts
    view = seen.studies["two"].runs[folders[0].path.name]
    assert (view.ppl, view.best_ppl, view.curve) == (77.0, None, ())

    found = load_study("two", made.root)
    assert found.run("base", 1).record.scores["dev"].ppl == 77.0
    assert len(found.curves("loss")) and not len(found.curves("dev_ppl"))
    assert not len(found.run("base", 1).curve("dev_ppl"))
    assert load_study("one", made.root).run("base", 1).record.scores["dev"].ppl == own[folders[0].path.name]
    with pytest.raises(UserError, match="two, row 'base' at seed 2: scored by a different evaluation"):
        found.run("base", 2)


def test_a_run_in_training_of_two_studies_has_a_perplexity_where_its_dev_text_is_the_study_s(made):
    study = made.table("one", ["base", "A-h1"], seeds=[1])
    made.fill(study)
    save(replace(study, name="two", prints=Fingerprints("t" * 64, "f" * 64)), made.root)
    other, running = (RunFolder(made.root, cell.training_hash) for cell in study.cells())
    running.result.unlink()
    _, last = name_dev_text(other), name_dev_text(running)

    seen = Board(made.root, every=0).look()
    one, two = (seen.studies[name].runs[running.path.name] for name in ("one", "two"))
    assert (one.ppl, one.best_ppl) == (last[-1], min(last)) and one.curve
    assert (two.ppl, two.best_ppl, two.curve) == (None, None, ()) and two.loss == one.loss
    board = Board(made.root, every=0)
    assert len(curves_page.page(board, seen, QUERY.format("one"), "", "dev_ppl").charts["chart-curves"].curves) == 2
    assert not curves_page.page(board, seen, QUERY.format("two"), "", "dev_ppl").charts
    for name, ppl in (("one", last[-1]), ("two", None)):
        assert {line["run"]: line["ppl"] for line in queried(made, name)}[running.path.name] == ppl


@pytest.mark.parametrize(("linked", "started"), [(2000, 3000), (1050, 1050), (900, 1000), (9000, 1000)])
def test_a_study_began_with_its_own_first_run(made, linked, started):
    """Base was there half an hour before the study; went on in it; was begun in it; all of them are copies."""
    study = made.table("one", ["base", "A-h1"], seeds=[1])
    made.fill(study)
    for cell, (first, last) in zip(study.cells(), ((1000.0, 1100.0), (3000.0, 3100.0)), strict=True):
        path = RunFolder(made.root, cell.training_hash).result
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"started": first, "ended": last}))
        link(made.root / "studies" / "one", cell)
        os.utime(made.root / "studies" / "one" / "cells" / cell.row / "1.json", (linked, linked))
    assert Board(made.root, every=0).look().studies["one"].started == started


def test_a_test_score_is_shown_in_no_study_of_another_test_text(made):
    study = made.table("one", ["base"], seeds=[1])
    made.fill(study)
    known = replace(study.prints, test="1" * 64)
    one = save(replace(study, name="two", prints=known), made.root)
    save(replace(study, name="three", prints=replace(known, test="2" * 64)), made.root)
    (path,) = made.root.glob("runs/*/result.json")
    record = json.loads(path.read_bytes())
    hashed = one.evaluation_of_text(one.texts(one.cells()[0], made.root).test)
    record["scores"]["test"] = record["scores"]["dev"] | {"split": "test", "ppl": 66.0, "evaluation_hash": hashed}
    path.write_text(json.dumps(record))
    for name, ppl in (("two", 66.0), ("three", None)):
        (found,) = queried(made, name, "--columns", "test.ppl")
        assert found["test.ppl"] == ppl and found["ppl"] is not None
        scores = load_study(name, made.root).run("base", 1).record.scores
        assert ("test" in scores) == (ppl is not None)


def test_a_score_that_came_later_is_seen_though_its_run_is_as_it_was(made):
    study = made.filled("one", ["base"], [1])
    (cell,) = study.cells()
    folder, board, reports = RunFolder(made.root, cell.training_hash), Board(made.root, every=0), Reports(made.root)
    first, version = board.look(), reports.version("one")
    score = replace(folder.read_result().scores["dev"], measures={"chrf": Measure(61.5, "by hand")})
    attempt = folder.claim()
    attempt.write_json(
        folder.scores(study.evaluation_of(study.rows[0])) / "val.json",
        with_checksum(to_plain(replace(score, run=folder.path.name))),
    )
    attempt.release()
    seen = board.look()
    assert seen.studies["one"].runs[folder.path.name].scores["chrf"] == 61.5 and seen.runs == first.runs
    assert reports.version("one") != version and board.look() is seen


def test_a_run_that_ended_before_its_first_step_says_when(made):
    attempt = RunFolder(made.root, "ab" * 32).claim()
    attempt.write_outcome("failed", "UserError: no", None)
    attempt.release()
    ended = json.loads(attempt.file.read_bytes())["ended"]
    assert Board(made.root, every=0).look().runs["ab" * 8].changed == ended


def test_a_study_whose_runs_are_only_to_be_scored_again_does_not_take_as_long_as_their_training(made):
    study = made.filled("one", ["base"], [1, 2, 3])
    two = replace(study, name="two", prints=Fingerprints("t" * 64, "f" * 64))
    first = two.cells()[0]
    score = record_of(two.experiment(first), two.prints).scores["dev"]
    path = RunFolder(made.root, first.training_hash).scores(two.evaluation_of(two.rows[0])) / "val.json"
    write_json(path, with_checksum(to_plain(replace(score, run=first.training_hash[:16]))))
    seen = Watch(made.root, 1, two).look([CellState(cell, "waiting") for cell in two.cells()])
    assert seen.counts == counts(finished=1, waiting=2) and seen.share == 1.0
    assert seen.left == Left(2 * 4.0), "4 s is what scoring took, 69.5 s all of it"


def test_a_search_counts_the_trials_that_are_still_to_come(made):
    search = made.search("search", 10)
    for number, state in enumerate(["finished", "stopped early", "running"]):
        made.trial(search, number, state, training__lr_factor=0.5 + number)
    board = Board(made.root, every=0)
    view = board.look().studies["search"]
    assert view.total == 10 and view.counts == counts(finished=1, running=1, waiting=1) | {"stopped early": 1}
    assert view.coming == 6 and view.state == "running"
    assert view.best is not None and view.best.row == "t0000"
    charts = study_page.page(Board(made.root), board.look(), "search").charts
    stood = {curve.name: curve.hollow for curve in charts["chart-history"].curves}
    assert stood == {"stopped early": True, "trials": False, "best": False}
    assert {c.name for c in charts["chart-dev"].curves if c.hollow} == {"t0001"}
    assert "x0" not in charts["chart-dev"].plain(), "curves begin at the frame, not in mid-air"
    made.trial(search, 3, "finished", training__lr_factor=0.1)
    assert board.look().studies["search"].counts["finished"] == 2


def test_a_search_of_several_seeds_counts_trials_and_ranks_means(made):
    search = made.search("search", 3, seeds=[1, 2])
    for number, state in enumerate(["finished", "running"]):
        for seed in search.seeds:
            made.trial(search, number, state, training__lr_factor=0.5 + number, training__seed=seed)
    board = Board(made.root, every=0)
    seen = board.look()
    view = seen.studies["search"]
    assert view.total == 3 and view.counts == counts(finished=1, running=1, waiting=1)
    found = [one.ppl for one in seen.runs.values() if one.state == "finished"]
    assert view.best == Best("t0000", None, "dev/ppl", pytest.approx(sum(found) / 2))
    page = study_page.page(Board(made.root), seen, "search")
    assert [(trial["name"], trial["state"], len(trial["runs"])) for trial in page.data["trials"][1:]] == [
        ("t0000", "finished", 2),
        ("t0001", "running", 2),
    ]
    made.trial(search, 1, "finished", training__lr_factor=1.5, training__seed=1)
    assert board.look().studies["search"].counts["running"] == 1, "its other seed runs"


def test_a_run_of_no_study_is_called_as_it_was_asked_for(made):
    folder = made.run(SMALL)
    board = Board(made.root, every=0)
    assert board.look().called(folder.path.name) == folder.path.name
    folder.cell.write_text('{"row": "A-h1", "seed": 5}')
    assert board.look().called(folder.path.name) == "A-h1, seed 5"
    folder.cell.write_text('{"row": ')
    assert board.look().called(folder.path.name) in ("A-h1, seed 5", folder.path.name)


def test_runs_that_did_not_finish_have_their_row_s_plain_name_and_a_study_its_own_once(made):
    study = made.table("table", ["base", "A-h1"], seeds=[1])
    again = replace(study.rows[1], name="again")  # a second cell of the same run
    made.fill(save(replace(study, rows=[*study.rows, again]), made.root), ["failed"])
    seen = Board(made.root, every=0).look()
    assert study_page.page(Board(made.root), seen, "table").data["failures"][1][1] == "one head, seed 1"
    assert index_page.runs(seen, index_page.ALL).count("<bdi>table</bdi>, <bdi>table</bdi>") == 0


def test_curves_of_different_length_are_thinned_to_common_steps():
    long, short = [(float(s), 1.0) for s in range(1, 101)], [(float(s), 1.0) for s in range(1, 60)]
    steps = [{x for x, _ in thin_points(curve)} for curve in (long, short)]
    assert len(steps[0]) <= 34 and 100 in steps[0] and len(steps[0] & steps[1]) > 10
