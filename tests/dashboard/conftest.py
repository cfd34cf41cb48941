"""A dashboard that answers on a free port, in a thread of the test."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lightning_tfm.dashboard.app import Dashboard
from lightning_tfm.dashboard.board import Board
from lightning_tfm.dashboard.serve import listen, server
from lightning_tfm.watch.run_cache import cache_file
from tests.helpers.studies import Folder
from tests.helpers.waiting import wait_for


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Served:
    port: int
    board: Board

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
        """The path as it is, not made harmless as a browser would; `Host` may be overridden or, by "-", left out."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=240)
        link.putrequest(method, path, skip_host="Host" in headers)
        for key, value in headers.items():
            if value != "-":
                link.putheader(key.replace("_", "-"), value)
        if body:
            link.putheader("Content-Length", str(len(body)))
        link.endheaders(body or None)
        found = link.getresponse()
        answer = Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read().decode())
        link.close()
        return answer


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A results folder to write into."""
    return Folder(tmp_path)


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., Served]]:
    """serve(root): a dashboard of that folder, which looks again at every request."""
    running = []

    def started(root: Path, texts: bool = True, token: str = "") -> Served:
        own, board = listen(0), Board(root, every=0, cache=cache_file(root))
        answering = server(Dashboard(board, texts).app(token))
        own.listen()
        thread = threading.Thread(target=answering.run, kwargs={"sockets": [own]}, daemon=True)
        thread.start()
        running.append((answering, thread, own))
        wait_for(lambda: answering.started, what="the dashboard's start")
        return Served(own.getsockname()[1], board)

    yield started
    for answering, thread, own in running:
        answering.should_exit = True
        thread.join(10)
        own.close()
