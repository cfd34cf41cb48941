"""Processes that we fork, and what the launcher knows of those below it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import lightning_tfm
from lightning_tfm.runs.process.forking import STOP_SIGNALS, children, forked, held_back, let_come
from lightning_tfm.runs.process.process_id import start_ticks
from tests.helpers.waiting import wait_for

PACKAGE = Path(lightning_tfm.__file__).parent


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_that_comes_before_the_child_listens_is_not_lost(number: int) -> None:
    def body() -> int:
        time.sleep(0.3)
        signal.signal(number, lambda came, frame: seen.append(came))
        let_come()
        return len(seen)

    seen: list[int] = []
    pid = forked(body)
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
        let_come()
        return end()

    assert exit_code(forked(body)) == code
    assert ("Traceback" in capfd.readouterr().err) == (code != 7)


def test_a_child_that_cannot_write_ends_all_the_same(capfd) -> None:
    def body() -> int:
        sys.stdout = open(os.open("/dev/full", os.O_WRONLY), "w")
        print("x")
        return 0

    assert exit_code(forked(body)) == 0


def test_where_nothing_can_be_forked_signals_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", full)
    with pytest.raises(BlockingIOError):
        forked(lambda: 0)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_what_was_held_back_before_stays_held_back() -> None:
    with held_back():
        assert exit_code(forked(lambda: 0)) == 0
        assert set(STOP_SIGNALS) <= set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def test_a_child_dies_with_its_parent(tmp_path: Path, forks) -> None:
    def parent() -> None:
        (tmp_path / "child").write_text(f"{forked(lambda: time.sleep(60) or 0)}\n")
        time.sleep(60)

    pid = forks.start(parent)
    wait_for(lambda: (tmp_path / "child").exists() and "\n" in (tmp_path / "child").read_text())
    forks.kill(pid)
    wait_for(lambda: start_ticks(int((tmp_path / "child").read_text())) is None)


def test_no_text_is_written_twice(tmp_path: Path) -> None:
    program = "import os; from lightning_tfm.runs.process.forking import forked\n"
    program += "print('once', end='')\nos.waitpid(forked(lambda: 0), 0)"
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
