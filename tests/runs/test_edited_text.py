"""Text that is edited while a study runs: no run trains on another text than its name says, and nothing is lost."""

from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.atomic_io import to_json, write_atomic
from lightning_tfm.config import Hardware
from lightning_tfm.data.prepare import prepare
from lightning_tfm.errors import UserError
from lightning_tfm.queue.training import Training
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.process.attempt import Task, attempted
from lightning_tfm.runs.record import Outcome, read_small
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import Fingerprints, Paper, Row
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import file_of, save
from tests.helpers.tiny import experiment, in_child, write_corpus

NOT_PRINTED = Paper(None, None, None)


def begun(root: Path) -> Ablation:
    """2 rows x 2 seeds, as frozen on the text in `root`."""
    base = experiment(write_corpus(root / "text"))
    prepared = prepare(base.data, root)
    rows = [Row("base", "base", {}, NOT_PRINTED, "here:1"), Row("wide", "X", {"model.d_ff": 31}, NOT_PRINTED, "here:2")]
    prints = Fingerprints.of(prepared, base.data)
    return Ablation(
        name="s", base=base, rows=rows, seeds=[1, 2], prints=prints, V=prepared.tokenizer.V, store=prepared.folder.name
    )


def run(study: Ablation, cell: Cell, root: Path) -> int:
    training = Training(study, Hardware(threads=1, accelerator="cpu"), root)
    folder = RunFolder(root, cell.training_hash)
    return attempted(folder, *(lambda a, do=do: do(Task(cell, a, 1, 0)) for do in (training.train, training.score)))


def reverse(path: Path) -> None:
    """The same words, and so the same pieces, in another order of lines."""
    path.write_text("".join(f"{line}\n" for line in reversed(path.read_text().splitlines())))


@pytest.mark.parametrize("edited", ["train.de", "val.de", "test.de"])
def test_cells_of_a_study_whose_text_was_edited_are_refused_until_it_is_back(tmp_path: Path, edited: str) -> None:
    study, text = begun(tmp_path), tmp_path / "text" / edited
    first, *others = study.cells()
    assert in_child(run, study, first, tmp_path) == 0
    reverse(text)
    stores = sorted((tmp_path / "data").iterdir())
    for cell in others:
        assert in_child(run, study, cell, tmp_path) == 2
        folder = RunFolder(tmp_path, cell.training_hash)
        said = read_small(Outcome, folder.outcome)
        assert said is not None and f"changed since: {text};" in said.reason and "to resume" in said.reason
        assert not folder.finished() and not folder.metrics.exists()
    assert sorted((tmp_path / "data").iterdir()) == stores, "the new text was encoded before it was refused"
    reverse(text)
    assert in_child(run, study, others[0], tmp_path) == 0
    found = [RunFolder(tmp_path, cell.training_hash).read_result() for cell in (first, others[0])]
    assert all(record is not None and record.identity["train"] == record.data.train for record in found)


@pytest.mark.parametrize("since", ["today", "before the test set was kept"])
def test_a_study_is_not_continued_on_another_test_text(tmp_path: Path, since: str) -> None:
    study = begun(tmp_path)
    if since != "today":
        study = replace(study, prints=replace(study.prints, test=""))
    save(study, tmp_path)
    assert save(begun(tmp_path), tmp_path).prints.test
    if since != "today":
        write_atomic(file_of(tmp_path, study.name), to_json(study.to_plain()))
    reverse(tmp_path / "text" / "test.en")
    prepared = prepare(study.base.data, tmp_path)
    now = replace(study, prints=Fingerprints.of(prepared, study.base.data), store=prepared.folder.name)
    back = "put the old text back and run the same command to resume, give"
    with pytest.raises(UserError, match=rf"\(the text data\.test=test has changed\): {back}"):
        save(now, tmp_path)


def test_a_killed_run_resumes_on_its_own_text_or_not_at_all(tmp_path: Path) -> None:
    study, text = begun(tmp_path), tmp_path / "text" / "train.en"
    cell = study.cells()[0]
    folder = RunFolder(tmp_path, cell.training_hash)
    assert in_child(run, study, cell, tmp_path) == 0
    folder.result.unlink()  # as if it had been killed before it was scored
    kept = {path.name: path.read_bytes() for path in (folder.metrics, *folder.checkpoints.iterdir())}
    reverse(text)
    assert in_child(run, study, cell, tmp_path) == 2 and not folder.finished()
    assert {path.name: path.read_bytes() for path in (folder.metrics, *folder.checkpoints.iterdir())} == kept
    reverse(text)
    assert in_child(run, study, cell, tmp_path) == 0 and folder.finished()
