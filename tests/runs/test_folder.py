"""Attempts: one owner at a time, at once free when it dies, and no word from the dead."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lightning_tfm.atomic_io import LockTimeout, locked
from lightning_tfm.errors import UserError
from lightning_tfm.runs.folder import RunFolder, RunIsOwned, StaleAttempt
from lightning_tfm.runs.process.process_id import ProcessId, this_process
from lightning_tfm.runs.record import Outcome, Progress, read_small
from lightning_tfm.watch.run_state import Curve
from tests.helpers.studies import leave
from tests.helpers.waiting import wait_for

HASH = "ab" * 32


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path, HASH)


def test_a_living_owner_keeps_the_run(folder: RunFolder) -> None:
    folder.claim()
    with pytest.raises(RunIsOwned) as refused:
        folder.claim()
    assert refused.value.owner == this_process()


def test_racing_claimers_have_one_winner(folder: RunFolder, forks) -> None:
    for _ in range(5):
        gate, go = os.pipe()

        def claimer(gate: int = gate, go: int = go) -> None:
            os.close(go)
            os.read(gate, 1)
            try:
                folder.claim()
            except RunIsOwned:
                raise SystemExit(7) from None
            time.sleep(30)  # the winner stays alive

        pids = [forks.start(claimer) for _ in range(6)]
        os.close(go)
        os.close(gate)
        losers: list[int] = []

        def collect(pids: list[int] = pids, losers: list[int] = losers) -> bool:
            losers += [pid for pid in pids if pid not in losers and not forks.alive(pid)]
            return len(losers) == 5

        wait_for(collect)
        winner = next(pid for pid in pids if pid not in losers)
        assert folder.owner() is not None and folder.owner().pid == winner
        assert [forks.join(pid) for pid in losers] == [7] * 5
        assert forks.kill(winner) == -signal.SIGKILL
    assert folder.newest() == 5


def test_a_killed_owner_loses_the_run_at_once_even_as_a_zombie(folder: RunFolder, forks) -> None:
    pid = forks.start(lambda: (folder.claim(), time.sleep(30)))
    wait_for(lambda: folder.owner() is not None)
    os.kill(pid, signal.SIGKILL)  # not collected: a zombie
    wait_for(lambda: not forks.alive(pid))
    assert folder.claim().number == 2


def test_a_pid_used_again_is_not_the_owner(folder: RunFolder) -> None:
    attempt = folder.claim()
    record = json.loads(attempt.file.read_bytes())
    record["owner"]["start"] -= 1
    attempt.file.write_text(json.dumps(record))
    assert folder.claim().number == 2


def test_an_owner_elsewhere_is_dead_after_the_grace_period(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, HASH, grace=60, beat=60)
    attempt = folder.claim()
    record = json.loads(attempt.file.read_bytes())
    record["owner"] |= {"host": "elsewhere", "pid": 2**22 + 1}
    attempt.file.write_text(json.dumps(record))
    with pytest.raises(RunIsOwned, match="process 4194305 on elsewhere"):
        folder.claim()
    past = time.time() - 61
    os.utime(attempt.pulse, (past, past))
    assert folder.claim().number == 2


def test_a_half_written_claim_belongs_to_the_dead(folder: RunFolder) -> None:
    folder.attempts.mkdir(parents=True)
    (folder.attempts / "0001.json").write_text('{"number": 1, "tok')
    assert folder.claim().number == 2


def test_a_released_run_may_be_claimed_and_is_closed_to_the_old_attempt(folder: RunFolder) -> None:
    first = folder.claim()
    first.release()
    assert folder.owner() is None
    folder.claim()
    with pytest.raises(StaleAttempt):
        first.write(folder.path / "x", b"")


def test_a_stopped_owner_past_the_grace_period_can_write_nothing(tmp_path: Path, forks) -> None:
    folder = RunFolder(tmp_path, HASH, grace=2.0, beat=0.05)
    marks = tmp_path / "marks"
    marks.mkdir()

    def owner() -> None:
        attempt = folder.claim()
        attempt.write(folder.result, b"mine")
        (marks / "ready").touch()
        wait_for((marks / "go").exists)
        half = folder.path / "half.ckpt"
        half.write_bytes(b"late")
        refused = 0
        for write in (
            lambda: attempt.commit(half, folder.path / "late.ckpt"),
            lambda: attempt.write(folder.result, b"late"),
            lambda: attempt.append_metrics({"step": 1}),
            lambda: attempt.write_progress(1, 2, 3.0, "train"),
            lambda: attempt.write_outcome("failed", "late", 1),
            lambda: attempt.truncate_metrics(0),
            attempt.release,
        ):
            try:
                write()
            except StaleAttempt:
                refused += 1
        raise SystemExit(refused)

    pid = forks.start(owner)
    wait_for((marks / "ready").exists)
    (pulse,) = folder.attempts.glob("*.beat")
    began = pulse.stat().st_mtime
    wait_for(lambda: pulse.stat().st_mtime > began + 2.2)
    with pytest.raises(RunIsOwned):  # silent it is not: its heart beats
        folder.claim()
    os.kill(pid, signal.SIGSTOP)
    time.sleep(2.2)
    attempt = folder.claim()
    attempt.write(folder.result, b"new")
    attempt.append_metrics({"step": 5})
    (marks / "go").touch()
    os.kill(pid, signal.SIGCONT)
    assert forks.join(pid) == 7
    assert folder.result.read_bytes() == b"new"
    assert Curve.of(folder.path).lines == [{"step": 5}]
    left = {path.name for path in folder.path.iterdir()}
    assert left == {"attempts", "result.json", "metrics.jsonl", "half.ckpt"}


def test_an_owner_stopped_inside_a_write_keeps_the_run_until_it_is_killed(folder, forks, monkeypatch):
    def owner() -> None:
        with folder.claim().guard():
            (folder.path / "inside").touch()
            time.sleep(60)

    pid = forks.start(owner)
    wait_for((folder.path / "inside").exists)
    with pytest.raises(LockTimeout), locked(folder.attempts / "lock", timeout=0.1):
        pass
    forks.kill(pid)
    assert folder.claim().number == 2


def test_what_an_interrupted_lock_left_is_unlocked_by_the_same_threads_next_one(tmp_path):
    def take() -> bool:
        try:
            with locked(tmp_path / "lock", timeout=0):
                return True
        except LockTimeout:
            return False

    def free() -> bool:
        with ThreadPoolExecutor() as other:
            return other.submit(take).result()

    left = locked(tmp_path / "lock")
    left.__enter__()  # a signal's exception came here, before the block
    assert not free()
    with locked(tmp_path / "lock", timeout=1):
        left.__exit__(None, None, None)  # its traceback was collected
        assert not free()
    assert free()


def test_a_removed_and_remade_run_is_closed_to_the_attempt_of_the_same_number(folder, tmp_path):
    old = folder.claim()
    folder.path.rename(tmp_path / "gone")
    with pytest.raises(StaleAttempt, match="removed"):
        old.write(folder.path / "x", b"")
    assert not folder.path.exists()
    assert folder.claim().number == old.number
    with pytest.raises(StaleAttempt):
        old.write(folder.path / "x", b"")


def test_an_attempt_travels_to_a_spawned_rank(folder: RunFolder) -> None:
    attempt = pickle.loads(pickle.dumps(folder.claim()))
    leave(attempt)
    assert folder.finished()


def test_metrics_are_cut_back_to_a_step_and_a_torn_line_is_dropped(folder: RunFolder) -> None:
    attempt = folder.claim()
    for step in (1, 2, 3, 4):
        attempt.append_metrics({"step": step, "loss": float("nan") if step == 4 else 1 / step})
    with folder.metrics.open("ab") as file:
        file.write(b'{"step": 5, "lo')
    assert [record["step"] for record in Curve.of(folder.path).lines] == [1, 2, 3, 4]
    assert attempt.truncate_metrics(2) == 2
    attempt.append_metrics({"step": 3, "dev_ppl": float("inf")})
    assert [record["step"] for record in Curve.of(folder.path).lines] == [1, 2, 3]
    assert b'"dev_ppl": "Infinity"}' in folder.metrics.read_bytes()
    assert Curve.of(folder.path).lines[-1]["dev_ppl"] == float("inf")


def test_a_full_disk_leaves_no_half_line_and_no_half_file(folder: RunFolder) -> None:
    import resource

    attempt = folder.claim()
    attempt.append_metrics({"step": 1})
    attempt.write(folder.result, b"old")
    before = sorted(path.name for path in folder.path.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError):
            attempt.append_metrics({"step": 2, "text": "x" * 2000})
        with pytest.raises(OSError):
            attempt.write(folder.result, b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert folder.metrics.read_bytes() == b'{"step": 1}\n'
    assert folder.result.read_bytes() == b"old"
    assert sorted(path.name for path in folder.path.iterdir()) == before


def test_records_are_read_back(folder: RunFolder) -> None:
    assert (folder.read_result(), read_small(Progress, folder.progress), read_small(Outcome, folder.outcome)) == (
        None,
        None,
        None,
    )
    attempt = folder.claim()
    before = time.time()
    attempt.write_progress(3, 10, 123.0, "train")
    attempt.write_outcome("nan_loss", "loss is nan", 3)
    progress = read_small(Progress, folder.progress)
    assert progress is not None and before <= progress.time <= time.time()
    assert progress == Progress(3, 10, 123.0, "train", progress.time, 1)
    assert read_small(Outcome, folder.outcome) == Outcome("nan_loss", "loss is nan", 3, 1)
    assert not folder.finished()


def test_the_process_that_asks_is_alive_and_pid_1_of_another_boot_is_not_known_to_be_dead() -> None:
    mine = this_process()
    assert not mine.gone()
    assert ProcessId(mine.host, 2**22 + 1, mine.boot, 1).gone()
    assert not ProcessId(mine.host, 2**22 + 1, "another boot", 1).gone()


def test_folder_is_imported_fast_and_alone() -> None:
    code = "import lightning_tfm.runs.folder, sys; print([m for m in ('torch', 'optuna', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_damaged_record_says_what_to_type(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "a" * 64)
    folder.path.mkdir(parents=True)
    folder.result.write_text("{")
    with pytest.raises(UserError, match=r"; remove the file, or the run: lightning-tfm runs remove RUN --force$"):
        folder.finished()
