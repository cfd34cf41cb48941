"""A dashboard that answers on a free port, in a thread of the test, and its pages in a browser."""

import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lightning_tfm.dashboard.app import Dashboard, listen, server
from lightning_tfm.dashboard.board import Board
from lightning_tfm.study.study_file import save
from lightning_tfm.watch.run_cache import cache_file
from lightning_tfm.watch.run_state import STATES
from tests.helpers.studies import SMALL, Folder
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
        own, board = listen(0), Board(root, every=0, cache=cache_file(root), texts=texts)
        answering = server(Dashboard(board).app(token))
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


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    found = Folder(tmp_path_factory.mktemp("results"))
    study = found.table("table", ["base", "A-h1", "A-h4"], seeds=[1, 2, 3])
    words = {"title": "Heads at the best of three rates", "question": "Does the number of heads still matter there?"}
    study = save(replace(study, **words), found.root)
    found.fill(study, [*STATES, "finished"])
    found.fill(found.table("other", ["base", "A-h1"], seeds=[4, 5]))
    found.table("many", ["base", "A-h1"], seeds=range(100, 164))
    search = found.search("search", 8)
    for number, state in enumerate(["finished", "stopped early", "running", "finished", "failed"]):
        found.trial(search, number, state, training__lr_factor=0.5 + number)
    for beat in found.root.glob("runs/*/attempts/*.beat"):
        os.utime(beat, (tomorrow := time.time() + 86_400, tomorrow))  # so that no page changes under these tests
    (found.root / "studies" / "broken").mkdir()
    (found.root / "studies" / "broken" / "study.json").write_text("{")
    found.run(replace(SMALL, training=replace(SMALL.training, seed=77)))
    (found.root / "runs" / "0123" / "attempts").mkdir(parents=True)
    (found.root / "secret.txt").write_text("secret")
    return found


@pytest.fixture(scope="module")
def served(serve, made):
    return serve(made.root)


# --- for tests in a browser ---


def addresses(served) -> dict[str, str]:
    runs = served.board.look().runs
    by_state = {view.state: view.name for view in runs.values()}
    finished = [view.name for view in runs.values() if view.state == "finished"]
    found = {"index": "/", "table": "/study/table", "search": "/study/search", "broken": "/study/broken"}
    found |= {"running": f"/run/{by_state['running']}", "finished": f"/run/{finished[0]}"}
    found |= {"runs": f"/diff?run={finished[0]}&run={finished[1]}"}
    found |= {"curves": "/curves?where=study+%3D+%27table%27&by=row", "wrong": "/curves?where=d_modl+%3E+3"}
    found |= {"report": "/study/other/report", "missing": "/study/nothing"}
    found |= {"row": "/study/table/row?name=A-h1"}
    return found | {"compare": "/compare?study=table&study=other"}


@pytest.fixture
def new_page(browser):
    """new_page(width): an empty page, closed at the end."""
    pages = []

    def new(width: int = 1280, **settings):
        pages.append(browser.new_page(viewport={"width": width, "height": 900}, **settings))
        pages[-1].set_default_timeout(120_000)
        return pages[-1]

    yield new
    for page in pages:
        page.close()


@pytest.fixture
def open_page(new_page, served):
    """open_page(name): a page on which nothing went wrong and which asked nobody else, checked at the end."""
    wrong = []

    def opened(name: str, path: str = "", **settings):
        page = new_page(**settings)
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request", lambda asked: wrong.append(asked.url) if not asked.url.startswith((served.url, "data:")) else 0
        )
        page.goto(served.url + (path or addresses(served)[name]))
        if page.locator("#forest").count():  # the main figure comes late, and draws the charts anew
            wait_for(lambda: page.evaluate("forestTag"), what="the main figure")
        return page

    yield opened
    assert [
        words
        for words in wrong
        if not any(known in words for known in ("404", "400 (Bad", "ERR_FAILED", "Executing inline"))
    ] == []
