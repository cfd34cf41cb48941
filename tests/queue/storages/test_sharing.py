"""Two machines on one study that share a database but no files."""

import time
from collections import Counter
from pathlib import Path

import pytest

from lightning_tfm.errors import UserError
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.storages.backends import find_storage, remember, remembered
from lightning_tfm.queue.storages.sharing import check_shared, publish, shares_files
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.process.attempt import Task
from lightning_tfm.study.cell import Cell
from lightning_tfm.watch.run_state import Curve
from tests.helpers.launching import Train, launch
from tests.helpers.studies import leave
from tests.helpers.waiting import wait_for

CELLS = [Cell(f"r{i}", 1, f"{i:03d}".ljust(64, "0"), 1.0) for i in range(8)]


def train(task: Task) -> None:
    with (task.folder.root / "ended").open("a") as file:
        file.write(f"{task.cell.row}\n")
    time.sleep(0.3)
    task.attempt.write_json(task.folder.identity, {"row": task.cell.row})
    task.attempt.write_json(task.folder.experiment, {})
    leave(task.attempt, identity={"row": task.cell.row})


def train_together(task: Task) -> None:
    """`train`, which nobody begins before both machines have a run: none takes them all."""
    root = task.folder.root
    (root / "here").touch()
    wait_for(lambda: all((root.parent / name / "here").exists() for name in ("home", "away")))
    train(task)


def here(root: Path, url: str, cells: list[Cell], carry: bool, train: Train = train) -> None:
    with (root / "shown").open("a") as stream:
        launch("travel", cells, root, train, stream, storage=url, share_files=not carry)


def test_results_come_home_and_every_run_ends_once(tmp_path: Path, postgres, forks) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir(), away.mkdir()
    queue = Queue("travel", find_storage(postgres.url, home))
    queue.enqueue(CELLS)
    pids = [
        forks.start(lambda r=root, c=carry: here(r, postgres.url, [], c, train_together))
        for root, carry in ((home, 0), (away, 1))
    ]
    assert [forks.join(pid) for pid in pids] == [0, 0]
    ended = Counter((home / "ended").read_text().split() + (away / "ended").read_text().split())
    assert ended == {cell.row: 1 for cell in CELLS}
    assert (away / "ended").exists() and all(RunFolder(home, cell.training_hash).finished() for cell in CELLS)
    here(home, postgres.url, CELLS, False)
    assert len((home / "ended").read_text().split() + (away / "ended").read_text().split()) == 8


def test_a_record_that_comes_home_replaces_what_a_lost_try_left_there(tmp_path: Path, postgres, forks) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir(), away.mkdir()
    lost = RunFolder(home, CELLS[0].training_hash).claim()
    lost.append_metrics({"step": 1, "loss": 9.0})
    lost.write(lost.folder.checkpoints / "step-1.ckpt", b"early")
    lost.release()
    Queue("travel", find_storage(postgres.url, home)).enqueue(CELLS[:1])
    assert forks.join(forks.start(lambda: here(away, postgres.url, [], True))) == 0
    here(home, postgres.url, [], False)
    folder = RunFolder(home, CELLS[0].training_hash)
    assert folder.finished() and Curve.of(folder.path).lines == [] and not folder.checkpoints.exists()


def test_sharing_is_proved_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(), (tmp_path / "away").mkdir()
    queue = Queue("s", find_storage(str(tmp_path / "journal"), tmp_path))
    publish(queue, tmp_path / "home", {"a": 1})
    assert shares_files(queue, tmp_path / "home")
    with pytest.raises(UserError, match="not the folder in which the study 's' was started"):
        check_shared(queue, tmp_path / "away")


def test_a_study_keeps_to_its_storage(tmp_path: Path) -> None:
    url = "postgresql+psycopg://me:secret@host/db"
    remember(url, tmp_path)
    assert "secret" not in (tmp_path / "storage").read_text()
    assert remembered("", tmp_path) == "postgresql://me@host/db" and remembered(url, tmp_path) == url
    with pytest.raises(UserError, match="was started on postgresql://me@host/db"):
        remembered("postgresql://me@other/db", tmp_path)
