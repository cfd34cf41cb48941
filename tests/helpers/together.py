"""`--together`: the tests in processes forked after collection, which share what was imported; each takes whole files.

Workers that start by themselves (pytest-xdist) import and collect everything again, each of them.
"""

import atexit
import os
import signal
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

import pytest

from lightning_tfm.runs.process.forking import fork, unblock_signals


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--together", action="store_true", help="several files at once, each in one process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if not session.config.getoption("together") or session.testsfailed or session.config.option.collectonly:
        return None
    files: dict[str, list[int]] = {}
    for number, item in enumerate(session.items):
        files.setdefault(item.nodeid.partition("::")[0], []).append(number)
    todo = [*files.values()][::-1]
    workers: list[Worker] = []
    # one more than there are cores: a fifth of the time most tests wait for processes of their own
    for _ in range(min((os.cpu_count() or 1) + 1, len(todo))):
        workers.append(Worker(session, workers))
    try:
        while running := {worker.pipe: worker for worker in workers if worker.pid}:
            for pipe in wait(list(running)):
                running[pipe].answer(todo)
            if session.shouldfail or session.shouldstop:
                todo.clear()
    finally:
        for worker in workers:
            worker.end()
    if session.shouldfail or todo:
        raise session.Failed(session.shouldfail or f"{len(todo)} files were not run")
    return True


class Worker:
    """A process that runs files, as its parent sees it."""

    def __init__(self, session: pytest.Session, others: "list[Worker]") -> None:
        self.session, self.at = session, ""
        folder = session.config._tmp_path_factory.getbasetemp() / str(len(others))  # type: ignore[attr-defined]
        self.pipe, theirs = Pipe()

        def run() -> int:
            for pipe in (self.pipe, *(other.pipe for other in others)):
                pipe.close()  # else none would notice that the parent has closed it
            return work(session, theirs, folder)

        self.pid = fork(run)
        theirs.close()

    def end(self) -> None:
        """Wait until it has torn down what it set up: a database server, say."""
        self.pipe.close()
        if self.pid:
            os.waitpid(self.pid, 0)

    def answer(self, todo: list[list[int]]) -> None:
        hook = self.session.config.hook
        try:
            kind, content = self.pipe.recv()
        except EOFError:
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            self.pid = 0
            if code:
                lost = pytest.TestReport(
                    self.at, ("", None, ""), {}, "failed", f"its process ended with {code}", "call"
                )
                hook.pytest_runtest_logreport(report=lost)
            return
        if kind == "next":
            self.pipe.send(todo.pop() if todo else [])
        elif kind == "at":
            self.at = content
        elif kind == "warning":
            hook.pytest_warning_recorded.call_historic(kwargs=content)
        else:
            report = hook.pytest_report_from_serializable(config=self.session.config, data=content)
            hook.pytest_runtest_logreport(report=report)


class Telling:
    """What a worker reports, said to its parent."""

    def __init__(self, session: pytest.Session, pipe: Connection) -> None:
        self.config, self.pipe = session.config, pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.pipe.send(("report", data))

    def pytest_warning_recorded(self, warning_message, when, nodeid, location) -> None:
        known = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        self.pipe.send(("warning", known))


def work(session: pytest.Session, pipe: Connection, folder: Path) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unblock_signals()
    folder.mkdir(mode=0o700)
    session.config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
    plugins = session.config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(Telling(session, pipe))
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()  # its files are shared with the other workers
    capture.start_global_capturing()
    try:
        while numbers := ask(pipe):
            for number, following in zip(numbers, [*numbers[1:], None], strict=True):
                item = session.items[number]
                pipe.send(("at", item.nodeid))
                # after a file what is the session's stays
                upcoming = session if following is None else session.items[following]
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=upcoming)
                if session.shouldfail or session.shouldstop:
                    return 0
    finally:
        session._setupstate.teardown_exact(None)
        capture.stop_global_capturing()
        atexit._run_exitfuncs()
    return 0


def ask(pipe: Connection) -> list[int]:
    """The next tests of this worker; none where there are no more."""
    pipe.send(("next", None))
    return pipe.recv()
