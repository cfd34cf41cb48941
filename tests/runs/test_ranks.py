"""Ranks of one run: torchrun's environment, one common end, nothing left behind."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from lightning_tfm.errors import UserError
from lightning_tfm.runs.folder import StaleAttempt
from lightning_tfm.runs.outcome import RunFailed
from lightning_tfm.runs.process import ranks
from lightning_tfm.runs.process.forking import children
from lightning_tfm.runs.process.process_id import start_ticks
from lightning_tfm.runs.process.ranks import fork_ranks
from tests.helpers.waiting import wait_for

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Note:
    """Writes what a rank sees to a file named by the rank; a class, so that spawned ranks can unpickle it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self) -> None:
        half = self.folder / f"half{os.getpid()}"
        half.write_text(json.dumps({name: os.environ[name] for name in NAMES} | {"pid": os.getpid()}))
        half.rename(self.folder / os.environ["RANK"])

    def read(self, rank: int) -> dict[str, str]:
        return json.loads((self.folder / str(rank)).read_text())

    def pids(self) -> list[int]:
        return [int(self.read(int(path.name))["pid"]) for path in self.folder.glob("[0-9]*")]


@pytest.fixture
def note(tmp_path: Path) -> Note:
    return Note(tmp_path)


@pytest.mark.parametrize("spawn", [False, pytest.param(True, marks=pytest.mark.long)])
def test_ranks_see_torchruns_environment(note: Note, spawn: bool) -> None:
    if spawn:
        sys.modules.setdefault(__name__, sys.modules[type(note).__module__])
    before, there = dict(os.environ), children()  # Python's resource tracker may run since an earlier test
    fork_ranks(note, 3, threads=1, spawn=spawn)
    seen = [note.read(rank) for rank in range(3)]
    assert [(s["RANK"], s["LOCAL_RANK"], s["WORLD_SIZE"]) for s in seen] == [(str(r), str(r), "3") for r in range(3)]
    assert len({(s["MASTER_ADDR"], s["MASTER_PORT"]) for s in seen}) == 1 and len({s["pid"] for s in seen}) == 3
    assert dict(os.environ) == before and (spawn or children() == there)  # spawning starts the resource tracker


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "rank 1 of 3: killed by SIGKILL; the other 2 were stopped"),
        (lambda: sys.exit(7), "rank 1 of 3: SystemExit: 7; the other 2 were stopped"),
    ],
)
def test_the_first_rank_that_dies_takes_the_others_down(note: Note, end, words: str) -> None:
    def rank() -> None:
        note()
        if os.environ["RANK"] == "1":
            wait_for(lambda: len(note.pids()) == 3)
            end()
        time.sleep(60)

    began = time.monotonic()
    with pytest.raises(RunFailed, match=words):
        fork_ranks(rank, 3, threads=1)
    assert time.monotonic() - began < 60, "they would have slept longer"
    assert len(note.pids()) == 3 and not any(start_ticks(pid) for pid in note.pids())


@pytest.mark.parametrize(
    ("error", "raised", "words"),
    [
        (FloatingPointError("loss of step 7 is nan"), RunFailed, "rank 1 of 2: FloatingPointError: loss of step 7 is"),
        (StaleAttempt("replaced by attempt 2"), StaleAttempt, "replaced by attempt 2"),
        (UserError("no such file"), RunFailed, "no such file"),
    ],
)
def test_a_rank_leaves_its_reason(error: Exception, raised: type[Exception], words: str) -> None:
    def rank() -> None:
        if os.environ["RANK"] == "1":
            raise error
        time.sleep(60)

    with pytest.raises(raised, match=words) as failed:
        fork_ranks(rank, 2, threads=1)
    if isinstance(failed.value, RunFailed):
        assert failed.value.outcome == ("nan_loss" if isinstance(error, FloatingPointError) else "refused")


def test_a_slow_rank_may_finish_its_checkpoint_after_the_others_ended(
    note: Note, forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "PATIENCE", 0.1)

    def rank() -> None:
        try:
            note()
            time.sleep(60)
        except SystemExit:
            if os.environ["RANK"] == "0":
                time.sleep(0.6)
                (note.folder / "saved").touch()
            raise

    run = forks.start(lambda: fork_ranks(rank, 2, threads=1))
    wait_for(lambda: len(note.pids()) == 2)
    os.kill(run, signal.SIGTERM)
    assert forks.join(run) == 143 and (note.folder / "saved").exists()


def test_a_rank_that_ignores_sigterm_is_killed(note: Note, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "PATIENCE", 0.3)

    def rank() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note()
        if os.environ["RANK"] == "0":
            wait_for(lambda: len(note.pids()) == 2)
            raise SystemExit(1)
        time.sleep(60)

    with pytest.raises(RunFailed, match="rank 0 of 2: SystemExit: 1"):
        fork_ranks(rank, 2, threads=1)
    assert not any(start_ticks(pid) for pid in note.pids())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_signal_reaches_every_rank(note: Note, forks, number: int, code: int) -> None:
    def rank() -> None:
        try:
            note()
            time.sleep(60)
        except (SystemExit, KeyboardInterrupt):
            (note.folder / f"saved{os.environ['RANK']}").touch()
            raise SystemExit(code) from None

    run = forks.start(lambda: fork_ranks(rank, 2, threads=1))
    wait_for(lambda: len(note.pids()) == 2)
    os.kill(run, number)
    assert forks.join(run) == code
    assert len(list(note.folder.glob("saved*"))) == 2
    assert not any(start_ticks(pid) for pid in note.pids())


def test_no_rank_survives_the_kill_of_its_parent(note: Note, forks) -> None:
    run = forks.start(lambda: fork_ranks(lambda: (note(), time.sleep(60)), 3, threads=1))
    wait_for(lambda: len(note.pids()) == 3)
    forks.kill(run)
    wait_for(lambda: not any(start_ticks(pid) for pid in note.pids()))


def test_handlers_are_put_back(note: Note) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    fork_ranks(note, 1, threads=1)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_ranks_meet_at_the_reserved_port(tmp_path: Path, forks) -> None:
    def rank() -> None:
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        total = torch.tensor(float(dist.get_rank() + 1))
        dist.all_reduce(total)
        (tmp_path / f"sum{dist.get_rank()}").write_text(str(total.item()))
        dist.destroy_process_group()

    def run() -> None:
        import torch  # noqa: F401

        fork_ranks(rank, 2, threads=1)

    assert forks.join(forks.start(run)) == 0
    assert [(tmp_path / f"sum{rank}").read_text() for rank in range(2)] == ["3.0", "3.0"]
