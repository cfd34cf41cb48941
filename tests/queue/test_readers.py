"""Commands that only look open nothing for writing, so that they work on somebody else's read-only results folder."""

import asyncio
import os
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.dashboard.app import Dashboard
from lightning_tfm.dashboard.board import Board
from tests.helpers.tiny import in_child

ARCHIVES = Path(__file__).parents[1] / "archives"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def written_by(folder: Path, act: Callable[[], int]) -> tuple[int, list[str]]:
    """The exit code of `act` in `folder`, and what below folder/results it opened for writing or changed.

    root may write wherever the modes forbid it: the interpreter's own events are the test.
    """
    results, found = os.path.realpath(folder / "results"), []

    def listen(event: str, args: tuple) -> None:
        changes = event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.rmdir", "os.truncate")
        writes = event == "open" and (set(str(args[1] or "")) & set("wax+") or args[2] & WRITES)
        if (changes or writes) and isinstance(args[0], (str, bytes, os.PathLike)):
            path = os.path.realpath(os.fsdecode(args[0]))
            if path.startswith(results) and not (event == "os.mkdir" and os.path.isdir(path)):
                found.append(f"{event} {path}")

    def call() -> tuple[int, list[str]]:
        os.chdir(folder)
        sys.addaudithook(listen)
        return act(), found

    return in_child(call)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("readers")
    for name in ("packed", "several"):
        with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
            archive.extractall(root, filter="data")
    return root


@pytest.mark.parametrize(
    "line",
    [
        "status", "status packed", "status packed --json", "status several", "table packed", "plan packed.yaml",
        "table packed --format csv", "report packed --format markdown", "report several --format json", "runs list",
        "runs query ppl<99", "compare packed packed",
    ],
)  # fmt: skip
def test_a_reader_opens_nothing_for_writing(folder: Path, line: str) -> None:
    code, found = written_by(folder, lambda: main(line.split()))
    assert found == [] and (code == 0 or line.startswith("compare"))


def test_the_dashboard_opens_nothing_for_writing(folder: Path) -> None:
    pages = ("/", "/runs", "/study/packed", "/study/several", "/study/packed/news")

    def serve() -> int:
        app = Dashboard(Board(Path("results"), cache=folder / "cache"), True).app()
        answers: list[dict] = []

        async def receive() -> dict:
            return {"type": "http.request"}

        async def send(message: dict) -> None:
            answers.append(message)

        for path in pages:
            scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "root_path": ""}
            asyncio.run(app(scope | {"headers": [(b"host", b"127.0.0.1")]}, receive, send))
        return [message["status"] for message in answers if "status" in message].count(200)

    assert written_by(folder, serve) == (len(pages), [])


def test_a_command_that_writes_is_seen(folder: Path) -> None:
    code, found = written_by(folder, lambda: main(["report", "packed"]))
    assert code == 0 and any("report.html" in text for text in found)
