"""Storages: journals, and several that share or join a study."""

import os
import resource
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from lightning_tfm.atomic_io import locked
from lightning_tfm.errors import UserError
from lightning_tfm.queue import storage
from lightning_tfm.queue.launch import MORE, _awaits_more, check_shared, publish
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.storage import address_of_queue, find_storage, open_journal, remember
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.study.cell import Cell
from lightning_tfm.watch.run_state import Curve
from tests.helpers.launching import Task, Train, launch
from tests.helpers.studies import leave
from tests.helpers.waiting import wait_for

TORN = b'{"op_code":4,"worker'


@pytest.fixture
def said() -> list[str]:
    return []


def queue(path: Path, said: list[str]) -> Queue:
    return Queue("s", find_storage(str(path), path.parent), said.append)


def cells(count: int) -> list[Cell]:
    return [Cell(f"r{i}", 1, f"{i:064x}", 1.0) for i in range(count)]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_torn_tail_is_cut_off_with_a_message_and_nothing_is_lost(tmp_path: Path, said: list[str]) -> None:
    path = tmp_path / "journal.log"
    queue(path, said).enqueue(cells(3))
    append(path, TORN)
    again = queue(path, said)
    assert said == [f"{path}: removed an unfinished last line of 20 bytes (a crash or a full disk); the rest is intact"]
    assert again.enqueue(cells(4)) == 1
    assert len(queue(path, said).states()) == 4


def test_a_tail_torn_while_the_study_is_open_is_cut_off_by_the_next_writer(tmp_path: Path, said: list[str]) -> None:
    path = tmp_path / "journal.log"
    first, second = queue(path, said), queue(path, said)
    first.enqueue(cells(3))
    append(path, TORN * 5000)
    assert second.claim() is not None
    assert len(said) == 1 and "100000 bytes" in said[0]
    assert len(first.states()) == 3
    append(path, b"x")
    assert first.claim() is not None


def test_a_line_glued_to_a_torn_one_is_repaired(tmp_path: Path, said: list[str]) -> None:
    path = tmp_path / "journal.log"
    queue(path, said).enqueue(cells(2))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], TORN, lines[-1]]))  # what another program's append makes of it
    reader = Queue("s", find_storage(str(path), tmp_path, write=False), said.append, create=False)
    assert len(reader.states()) == 2 and not said
    assert len(queue(path, said).states()) == 2
    assert said == [f"{path}: line {len(lines)}: blanked out 20 bytes of an unfinished record"]


def test_a_damaged_line_is_named(tmp_path: Path, said: list[str]) -> None:
    path = tmp_path / "journal.log"
    queue(path, said).enqueue(cells(2))
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = b"".join([lines[0], b"rubbish\n", *lines[1:]])
    path.write_bytes(damaged)
    with pytest.raises(UserError, match="line 2 is damaged"):
        queue(path, said)
    assert path.read_bytes() == damaged


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, said: list[str]) -> None:
    path = tmp_path / "journal.log"
    path.write_text('{"a": 1}\n')
    with pytest.raises(UserError, match="not a journal"):
        queue(path, said)


def test_a_full_disk_leaves_the_journal_whole(tmp_path: Path, said: list[str]) -> None:
    path = tmp_path / "journal.log"
    mine = queue(path, said)
    mine.enqueue(cells(1))
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with pytest.raises(OSError):
            mine.enqueue(cells(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert mine.enqueue(cells(2)) == 1


def test_a_writer_killed_with_the_lock_delays_nobody(tmp_path: Path, said: list[str], forks) -> None:
    path = tmp_path / "journal.log"
    mine = queue(path, said)

    def holder() -> None:
        with locked(path.with_name("journal.log.flock")):
            (tmp_path / "held").touch()
            time.sleep(30)

    pid = forks.start(holder)
    wait_for((tmp_path / "held").exists)
    forks.kill(pid)
    with locked(path.with_name("journal.log.flock"), timeout=0):  # free at once
        pass
    assert mine.enqueue(cells(1)) == 1


def test_processes_append_at_once_without_mixing_lines(tmp_path: Path, said: list[str], forks) -> None:
    path = tmp_path / "journal.log"
    open_journal(path, said.append)

    def writer() -> None:
        mine = queue(path, said)
        mine.enqueue([Cell(f"r{os.getpid()}", i, f"{i:064x}", 1.0) for i in range(25)])

    assert [forks.join(pid) for pid in [forks.start(writer) for _ in range(4)]] == [0] * 4
    assert len(queue(path, said).states()) == 100 and not said


def test_a_reader_that_looks_again_reads_only_what_is_new_to_it(tmp_path, said, monkeypatch):
    path, split, sizes = tmp_path / "journal.log", storage._lines, []
    monkeypatch.setattr(storage, "_lines", lambda data: sizes.append(len(data)) or split(data))
    writer = queue(path, said)
    writer.enqueue(cells(2))
    reader = Queue("s", find_storage(str(path), tmp_path, write=False), said.append, create=False)
    assert [state.cell.row for state in reader.states()] == ["r0", "r1"]
    before = path.stat().st_size
    writer.enqueue(cells(3))
    append(path, TORN)
    sizes.clear()
    assert [state.cell.row for state in reader.states()] == ["r0", "r1", "r2"]
    assert sizes[0] == path.stat().st_size - before and set(sizes[1:]) <= {len(TORN)}
    with pytest.raises(PermissionError):
        reader.note("written", True)
    path.write_bytes(path.read_bytes().removesuffix(TORN) + b"x\n")
    with pytest.raises(UserError, match="is damaged"):
        reader.states()


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
    check_shared(queue, tmp_path / "home")
    with pytest.raises(UserError, match="not the folder in which the study 's' was started"):
        check_shared(queue, tmp_path / "away")


def test_a_study_keeps_to_its_storage(tmp_path: Path) -> None:
    url = "postgresql+psycopg://me:secret@host/db"
    remember(url, tmp_path)
    assert "secret" not in (tmp_path / "storage").read_text()
    assert address_of_queue("", tmp_path) == "postgresql://me@host/db" and address_of_queue(url, tmp_path) == url
    with pytest.raises(UserError, match="was started on postgresql://me@host/db"):
        address_of_queue("postgresql://me@other/db", tmp_path)


def test_who_has_joined_waits_while_more_runs_may_come(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("lightning_tfm.queue.launch.MORE_EVERY", 0.01)
    launcher = Queue("s", find_storage("", tmp_path))
    helper = Queue("s", find_storage("", tmp_path), create=False)
    assert not _awaits_more(helper)  # a study without rounds
    assert not capsys.readouterr().err

    def after_a_while(act) -> float:
        begin = time.monotonic()
        threading.Timer(0.3, act).start()
        awaited.append(_awaits_more(helper))
        return time.monotonic() - begin

    awaited: list[bool] = []
    launcher.note(MORE, True)
    assert after_a_while(lambda: launcher.enqueue([Cell("base", 1, "0" * 64, 1.0)])) >= 0.3
    launcher.finish(launcher.claim(), 1.0)
    assert after_a_while(lambda: launcher.note(MORE, False)) >= 0.3
    assert awaited == [True, False]
    said = "s: waiting for the runs of the next interim analysis; Ctrl-C leaves\n"
    assert capsys.readouterr().err == said * 2
