"""`sweep --tune`: rows at their own best values, chosen at seeds apart from those that are reported."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.config import Experiment
from lightning_tfm.errors import UserError
from lightning_tfm.queue import row_tuning
from lightning_tfm.queue.resources import Resources
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.study.rows import Fingerprints, all_rows
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import load_as
from lightning_tfm.watch.study_state import CellState
from tests.helpers.studies import leave
from tests.study.test_plan import TABLE, call

KEY = "training.lr_factor"
ROWS = [all_rows()[name] for name in ("base", "A-h1", "C-N2")]
STUDY = Ablation(
    name="mine", base=Experiment(), rows=ROWS, seeds=[1, 2], prints=Fingerprints("t", "d"), V=300, store="store"
)
BEST = {"base": 1.0, "A-h1": 0.5, "C-N2": 1.0}


@pytest.fixture
def trained(monkeypatch):
    """Instead of training: a row is at its best at BEST."""
    asked = []

    def work(study, cells, root, resources, start):
        asked.append(study)
        for cell in cells:
            row, _, value = cell.row.partition(", lr_factor=")
            if not (folder := RunFolder(root, cell.training_hash)).finished():
                attempt = folder.claim()
                ppl = 5 + abs(float(value) - BEST[row]) + 0.01 * cell.seed
                leave(attempt, ppl=ppl, evaluation_hash=study.evaluation(cell, root))
                attempt.release()
        return [CellState(cell, "done", "", None, 1, 1.0) for cell in cells]

    monkeypatch.setattr("lightning_tfm.queue.launch.work", work)
    return asked


def test_every_row_takes_its_best_value_and_base_its_own(tmp_path: Path, trained, capsys) -> None:
    tuning = row_tuning.asked_tuning(f"{KEY}=0.5,1.0,2.0", [11, 12], STUDY)
    found = row_tuning.tuned(STUDY, tuning, tmp_path, Resources())
    assert found.base.training.lr_factor == 1.0 and found.seeds == [1, 2]
    assert [row.change for row in found.rows] == [{}, STUDY.rows[1].change | {KEY: 0.5}, STUDY.rows[2].change]
    (tried,) = trained
    assert (tried.name, len(tried.cells()), tried.seeds) == ("mine-tuning", 3 * 3 * 2, [11, 12])
    assert load_as(Ablation, tmp_path, "mine-tuning").rows == tried.rows
    written = json.loads((tmp_path / "studies/mine/tuning.json").read_bytes())
    assert {row["row"]: row["value"] for row in written["rows"]} == BEST
    assert written["cost"] == {"runs": 18, "seconds": 18 * 7.0, "flops": 18 * 10**11}
    said = capsys.readouterr().err
    assert "the best of 3 for every row, by dev PPL at seed 11, 12 (18 runs)" in said
    assert "A-h1: 0.5 (at the edge of what was tried); 0.5: 5.115, 1.0: 5.615, 2.0: 6.615" in said
    assert row_tuning.tuned(STUDY, tuning, tmp_path, Resources()) == found, "the same command chooses the same"


def test_a_base_that_is_best_elsewhere_moves_all_rows_with_it(tmp_path: Path, trained, monkeypatch) -> None:
    monkeypatch.setitem(BEST, "base", 2.0)
    found = row_tuning.tuned(STUDY, row_tuning.asked_tuning(f"{KEY}=1.0,2.0", [11], STUDY), tmp_path, Resources())
    assert found.base.training.lr_factor == 2.0
    assert [row.change.get(KEY) for row in found.rows] == [None, 1.0, 1.0], "what was best for them, not base's"


@pytest.mark.parametrize(
    ("text", "seeds", "message"),
    [
        ("training.lr_factor", [11], "two values at least"),
        ("training.lr_factor=1", [11], "two values at least"),
        ("training.lr_factor=1,1", [11], "a value appears twice"),
        ("training.lr_facto=1,2", [11], "did you mean 'training.lr_factor'|lr_factor"),
        ("training.lr_factor=1,fast", [11], "expected a number"),
        ("training.lr_factor=1,1:30", [11], "training.lr_factor='1:30': expected a number"),
        ("data.pairs=100,200", [11], "the same for all rows"),
        ("training.lr_factor=1,2", [2], "seed 2 is also reported"),
        ("model.h=2,4", [11], "row 'A-h1' changes model.h itself"),
    ],
)
def test_what_cannot_be_tuned_is_refused(text, seeds, message) -> None:
    with pytest.raises(UserError, match=message):
        row_tuning.variants(row_tuning.asked_tuning(text, seeds, STUDY), ROWS)


@pytest.mark.parametrize("more, seed", [(["--max-seeds=6"], 6), (["--max-seeds=5"], 0), ([], 8), (["--seeds=1-2"], 0)])
def test_seeds_that_looks_may_add_are_reported_too(tmp_path: Path, capsys, monkeypatch, trained, more, seed) -> None:
    monkeypatch.setattr("lightning_tfm.cli.train.sweep.tuned", lambda *study: sys.exit(9))
    tune = [f"--tune={KEY}=1,2", f"--tune-seeds={seed or 6}", "--seeds=auto", *more]
    if not seed:
        with pytest.raises(SystemExit, match="9"):
            call("sweep", tmp_path, TABLE, *tune)
        return
    assert call("sweep", tmp_path, TABLE, *tune) == 2
    assert f"--tune-seeds: seed {seed} is also reported" in capsys.readouterr().err


def test_seeds_that_the_study_has_already_are_reported_too(tmp_path: Path, capsys, monkeypatch, trained) -> None:
    monkeypatch.setattr("lightning_tfm.queue.launch.work", lambda *study, **how: [])
    call("sweep", tmp_path, TABLE, "--seeds=7")
    assert call("sweep", tmp_path, TABLE, f"--tune={KEY}=1,2", "--tune-seeds=7", "--seeds=1") == 2
    assert "--tune-seeds: seed 7 is also reported" in capsys.readouterr().err


def test_without_base_nothing_is_tuned() -> None:
    with pytest.raises(UserError, match="base is not among the rows"):
        row_tuning.asked_tuning(f"{KEY}=1,2", [11], replace(STUDY, rows=ROWS[1:]))
