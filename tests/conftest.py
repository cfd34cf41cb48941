"""One thread for each process under test: results do not hang on the machine, and forks are safe (OpenMP's are not).

Real processes and a database server for tests of what must survive their deaths.
"""

import gc
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sacrebleu import CHRF

from lightning_tfm.corpus_metrics import Bleu, Chrf
from lightning_tfm.dashboard import markup
from lightning_tfm.report.pages import document
from lightning_tfm.runs import samples
from lightning_tfm.runs.environment import versions
from lightning_tfm.runs.process.forking import fork, unblock_signals
from lightning_tfm.runs.process.process_id import start_ticks
from lightning_tfm.runs.record import Claimed, RunRecord, Segment
from lightning_tfm.schema import Flaw, make_from
from lightning_tfm.study.search import Search
from lightning_tfm.study.study import Ablation
from tests.helpers.waiting import wait_for

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # whatever the shell says: ranks have one thread, and are compared with one process
samples.EXTRA = 1  # untrained models do not end their sentences


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first, so that workers who take whole files end together; by their size."""
    sizes = {path: path.stat().st_size for path in {item.path for item in items}}
    items.sort(key=lambda item: ("tests/system/" not in item.nodeid, -sizes[item.path]))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """LIGHTNING_TFM_SKIPPED names a file for what was skipped; `pytest @FILE` runs it where more is installed."""
    if "LIGHTNING_TFM_SKIPPED" in os.environ:
        skipped = [report.nodeid for report in terminalreporter.stats.get("skipped", [])]
        Path(os.environ["LIGHTNING_TFM_SKIPPED"]).write_text("".join(f"{name}\n" for name in sorted({*skipped})))


def pytest_collection_finish() -> None:
    """What is there by now stays: looking for garbage in it, in every forked child too, took a third of the time."""
    for kind in (Claimed, Segment, RunRecord, Ablation, Search):  # what reads them, every child would make anew
        with suppress(Flaw):
            make_from(kind, {})
    for made in (document.environment(), markup.environment()):
        for name in made.list_templates(extensions=["html"]):
            made.get_template(name)
    versions()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: a fifth of the time most tests wait for processes of their own."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(scope="session", autouse=True)
def own_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test touches what the user's own dashboards keep."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    from tests.helpers.browser import chromium

    expect.set_options(timeout=120_000)
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def counted_once() -> Iterator[None]:
    """The studies of a module share most translations: all its counters of one text remember what one has counted."""

    def shared(kind: type[Bleu] | type[Chrf]) -> Callable[..., None]:
        begin = kind.__init__

        @cache
        def counter(references: tuple[str, ...], tokenize: str) -> Bleu | Chrf:
            made = kind.__new__(kind)
            begin(made, references, tokenize)
            return made

        def share(self: Bleu | Chrf, references: Sequence[str], tokenize: str = "") -> None:
            self.__dict__ = counter(tuple(references), tokenize).__dict__

        return share

    seen: dict[tuple[str, int], tuple[object, list[int]]] = {}
    count = CHRF._compute_segment_statistics

    def count_once(self: CHRF, text: str, reference: dict[str, Any]) -> list[int]:
        if (text, id(reference)) not in seen:
            seen[text, id(reference)] = reference, count(self, text, reference)
        return seen[text, id(reference)][1]

    with pytest.MonkeyPatch.context() as patch:
        for kind in (Bleu, Chrf):
            patch.setattr(kind, "__init__", shared(kind))
        patch.setattr(CHRF, "_compute_segment_statistics", count_once)
        yield


class Forks:
    """Forks functions; what is still alive at the end of a test is killed."""

    def __init__(self) -> None:
        self._pids: list[int] = []

    def start(self, fn: Callable[[], object]) -> int:
        """Run `fn` in a child, which exits with 0, the code of SystemExit, or 1 after another exception."""

        def body() -> int:
            unblock_signals()
            try:
                fn()
            except SystemExit as error:
                return error.code if isinstance(error.code, int) else 1
            return 0

        self._pids.append(fork(body))
        return self._pids[-1]

    def join(self, pid: int, seconds: float = 300.0) -> int:
        """Exit code, negative for a signal."""
        _, status = wait_for(lambda: _ended(pid), seconds, f"the end of process {pid}")
        self._pids.remove(pid)
        return os.waitstatus_to_exitcode(status)

    def kill(self, pid: int) -> int:
        os.kill(pid, signal.SIGKILL)
        return self.join(pid)

    def alive(self, pid: int) -> bool:
        return start_ticks(pid) is not None

    def end(self) -> None:
        for pid in list(self._pids):
            self.kill(pid)


def _ended(pid: int) -> tuple[int, int] | None:
    found = os.waitpid(pid, os.WNOHANG)
    return found if found[0] else None


@pytest.fixture
def forks() -> Iterator[Forks]:
    ours = Forks()
    yield ours
    ours.end()


@dataclass(frozen=True)
class Server:
    """A running server: its URL, and how to call pg_ctl on it."""

    url: str
    control: Callable[[str], None]


def _server_programs() -> Path | None:
    found = shutil.which("pg_ctl")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Server]:
    """A PostgreSQL server of our own, without a network port."""
    programs = _server_programs()
    if programs is None:
        pytest.skip("NOT TESTED: no PostgreSQL server programs (apt-get install postgresql)")
    user = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if user:
        shutil.chown(folder, user)

    def run(*command: str) -> None:
        subprocess.run(command, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)

    data = str(folder / "data")
    try:
        run(str(programs / "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"

        def control(verb: str) -> None:
            start = ("-o", options, "-l", str(folder / "log")) if verb == "start" else ("-m", "immediate")
            run(str(programs / "pg_ctl"), "-D", data, *start, "-w", verb)

        control("start")
        try:
            yield Server(f"postgresql+psycopg://postgres@/postgres?host={folder}", control)
        finally:
            control("stop")
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def postgres(cluster: Server) -> Server:
    """A database of its own for each test: studies of one name do not meet."""
    import psycopg

    name = f"t{time.monotonic_ns()}"
    with psycopg.connect(cluster.url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return Server(cluster.url.replace("@/postgres?", f"@/{name}?"), cluster.control)
