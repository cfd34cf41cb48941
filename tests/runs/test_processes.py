"""Processes that we fork, ranks of one run, and torchrun: one common end, nothing left behind."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import lightning_tfm
from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.errors import UserError
from lightning_tfm.runs.folder import RunFolder, StaleAttempt
from lightning_tfm.runs.outcome import RunFailed
from lightning_tfm.runs.process import ranks, torchrun
from lightning_tfm.runs.process.forking import STOP_SIGNALS, block_signals, children, fork, unblock_signals
from lightning_tfm.runs.process.process_id import start_ticks
from lightning_tfm.runs.process.ranks import fork_ranks
from lightning_tfm.study.cell import Cell
from tests.helpers.calling import Call, call
from tests.helpers.tiny import metrics, write_corpus
from tests.helpers.waiting import free_ports, wait_for

PACKAGE = Path(lightning_tfm.__file__).parent


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_that_comes_before_the_child_listens_is_not_lost(number: int) -> None:
    def body() -> int:
        time.sleep(0.3)
        signal.signal(number, lambda came, frame: seen.append(came))
        unblock_signals()
        return len(seen)

    seen: list[int] = []
    pid = fork(body)
    os.kill(pid, number)
    assert exit_code(pid) == 1
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda: 7, 7),
        (lambda: 1 // 0, 1),
        (lambda: sys.exit(143), 143),
        (lambda: signal.raise_signal(signal.SIGINT), 130),
        (lambda: sys.exit(9), 1),
    ],
    ids=["returned", "exception", "stopped", "interrupted", "another exit"],
)
def test_the_exit_code_says_how_a_child_ended(end, code: int, capfd) -> None:
    def body() -> int:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        unblock_signals()
        return end()

    assert exit_code(fork(body)) == code
    assert ("Traceback" in capfd.readouterr().err) == (code != 7)


def test_a_child_that_cannot_write_ends_all_the_same(capfd) -> None:
    def body() -> int:
        sys.stdout = open(os.open("/dev/full", os.O_WRONLY), "w")
        print("x")
        return 0

    assert exit_code(fork(body)) == 0


def test_where_nothing_can_be_forked_signals_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", full)
    with pytest.raises(BlockingIOError):
        fork(lambda: 0)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_what_was_held_back_before_stays_held_back() -> None:
    with block_signals():
        assert exit_code(fork(lambda: 0)) == 0
        assert set(STOP_SIGNALS) <= set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def test_a_child_collects_no_garbage_of_its_parent() -> None:
    class Ring:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            ended_in.append(os.getpid())

    def body() -> int:
        gc.collect()
        return len(ended_in)

    ended_in: list[int] = []
    gc.disable()
    try:
        Ring()
        assert exit_code(fork(body)) == 0
    finally:
        gc.enable()
    gc.collect()
    assert ended_in == [os.getpid()]


def test_a_child_dies_with_its_parent(tmp_path: Path, forks) -> None:
    def parent() -> None:
        (tmp_path / "child").write_text(f"{fork(lambda: time.sleep(60) or 0)}\n")
        time.sleep(60)

    pid = forks.start(parent)
    wait_for(lambda: (tmp_path / "child").exists() and "\n" in (tmp_path / "child").read_text())
    forks.kill(pid)
    wait_for(lambda: start_ticks(int((tmp_path / "child").read_text())) is None)


def test_no_text_is_written_twice(tmp_path: Path) -> None:
    program = "import os; from lightning_tfm.runs.process.forking import fork\n"
    program += "print('once', end='')\nos.waitpid(fork(lambda: 0), 0)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "once"


def test_there_is_one_way_to_fork() -> None:
    """Ranks, which multiprocessing starts, hold signals back by the same function."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "os.fork(" in (text := path.read_text()) or "pthread_sigmask" in text
    }
    assert found == {"runs/process/forking.py"}


def test_children_are_seen_whatever_threads_end_meanwhile() -> None:
    """A thread's children pass to another thread when it ends, and its folder below /proc is gone."""
    over = threading.Event()

    def end_threads_without_pause() -> None:
        while not over.is_set():
            threads = [threading.Thread(target=int) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    others = [threading.Thread(target=end_threads_without_pause) for _ in range(2)]
    started: list[subprocess.Popen] = []
    before = children()
    try:
        for thread in others:
            thread.start()
        for _ in range(10):
            starter = threading.Thread(target=lambda: started.append(subprocess.Popen(["sleep", "600"])))
            starter.start()
            starter.join()
            for _ in range(100):
                assert children() - before == {process.pid for process in started}
    finally:
        over.set()
        for thread in others:
            thread.join()
        for process in started:
            process.kill()
            process.wait()
    assert children() == before


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
        time.sleep(3600)

    with pytest.raises(RunFailed, match=words):
        fork_ranks(rank, 3, threads=1)
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


def test_a_slow_rank_may_finish_its_checkpoint_after_the_others_ended(note, forks, monkeypatch):
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


SIZES = {"model.N": 1, "model.d_model": 16, "model.d_ff": 16, "model.h": 2, "model.d_k": 8, "model.d_v": 8}
SIZES |= {"data.corpus": "files", "data.vocab_size": 44, "training.tokens": 260, "training.steps": 24}
SIZES |= {"training.warmup": 8}
SIZES |= {"evaluation.extra_len": 4, "trainer.log_every": 4, "trainer.threads": 1, "trainer.accelerator": "cpu"}


def options(text: Path, out: Path) -> list[str]:
    return ["fit", *(f"--{k}={v}" for k, v in (SIZES | {"data.folder": str(text), "out": str(out)}).items())]


def on_two_nodes(arguments: list[list[str]]) -> list[tuple[int, str]]:
    """Exit code and output of torchrun on each node."""
    from torch.distributed.run import main as torchrun_main

    (port,), nodes = free_ports(1), []
    for number, argv in enumerate(arguments):
        command = ["--nnodes=2", f"--node-rank={number}", "--nproc-per-node=1", "--master-addr=127.0.0.1"]
        command += [f"--master-port={port}", "-m", "lightning_tfm.cli.main", *argv]
        nodes.append(Call(lambda command=command: torchrun_main(command)))
    try:
        ended = [node.wait(200) for node in nodes]
    finally:
        for node in nodes:
            if node.poll() is None:
                os.kill(node.pid, signal.SIGTERM)
    return [(said.code, said.out + said.err) for said in ended]


def test_what_torchrun_started_is_the_hardware(monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert torchrun.with_torchrun_ranks(Hardware()) == Hardware(devices=2, num_nodes=3)
    with pytest.raises(UserError, match="torchrun has started 2"):
        torchrun.with_torchrun_ranks(Hardware(devices=4))


def test_a_rank_of_torchrun_writes_nothing_that_the_first_one_may_sweep_away(tmp_path, monkeypatch) -> None:
    from lightning_tfm.runs import train  # with torch, which forks above do without

    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    trained: list[list[Path]] = []
    attempt = RunFolder(tmp_path, "a" * 16).claim()
    before = sorted(attempt.folder.path.rglob("*.json"))
    monkeypatch.setattr(train.Run, "train", lambda run: trained.append(sorted(run.folder.path.rglob("*.json"))))
    cell = Cell("base", 1, "a" * 16, 1.0)
    train.train_cell((Experiment(), {"user_classes": {}}), cell, Hardware(accelerator="cpu"), attempt, tmp_path)
    train.write_plan((Experiment(), {"user_classes": {}}), cell, attempt)
    assert trained == [before] and json.loads(attempt.folder.cell.read_text()) == {"row": "base", "seed": 1}


@pytest.mark.long
def test_two_nodes_train_what_two_processes_train(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    call(*options(text, tmp_path / "alone"), "--trainer.devices=2")
    together = options(text, tmp_path / "nodes")
    found = on_two_nodes([together, together])
    assert [code for code, _ in found] == [0, 0], found
    (first,), (second,) = ((tmp_path / name).glob("runs/*") for name in ("alone", "nodes"))
    assert first.name == second.name and metrics(first) == metrics(second)
    results = [json.loads((run / "result.json").read_text()) for run in (first, second)]
    assert results[0]["scores"]["dev"]["ppl"] == results[1]["scores"]["dev"]["ppl"]
    trainer = results[1]["hardware"]["trainer"]
    assert (trainer["devices"], trainer["num_nodes"], results[1]["hardware"]["processes"]) == (1, 2, 2)
    assert [said.count("BLEU") > 0 for _, said in found] == [True, False], "rank 0 alone reports"
    again = on_two_nodes([together, together])
    assert [code for code, _ in again] == [0, 0] and "is already trained" in again[0][1]
    assert json.loads((second / "result.json").read_text())["attempts"] == 1


@pytest.mark.long
def test_a_node_with_other_files_is_refused(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    found = on_two_nodes([options(text, tmp_path / name) for name in ("here", "there")])
    assert all(code != 0 for code, _ in found)
    assert all("all nodes must see the same files" in said for _, said in found)
