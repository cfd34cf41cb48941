"""The report on loopback, remade as runs finish."""

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from lightning_tfm.report.sequential import FILE
from lightning_tfm.study.study import folder_of

OWN = ("study.json", FILE)
Render = Callable[[str], str]


def version(name: str, root: Path) -> str:
    """Changes whenever a run of the study may have: counts and newest times of the records."""
    folder = folder_of(root, name)
    times = [path.stat().st_mtime_ns for path in map(folder.joinpath, OWN) if path.is_file()]
    for pattern in ("*/result.json", "*/outcome.json", "*/report/*.json"):
        times += [path.stat().st_mtime_ns for path in (root / "runs").glob(pattern)]
    return f"{len(times)}-{max(times)}"


class Live:
    """The page of the newest version, made once for each version however many ask."""

    def __init__(self, render: Render, current: Callable[[], str]):
        self._render, self.current = render, current
        self._lock, self._made = threading.Lock(), ("", "")

    def page(self) -> str:
        with self._lock:
            now = self.current()
            if self._made[0] != now:
                self._made = (now, self._render(now))
            return self._made[1]


def make_server(live: Live, port: int) -> ThreadingHTTPServer:
    """A server on 127.0.0.1 alone; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # a page elsewhere that guesses the port could otherwise read the report through its own host name
            if self.headers.get("Host", "").rpartition(":")[0] not in ("127.0.0.1", "localhost"):
                self._send(HTTPStatus.FORBIDDEN, "text/plain", "ask for 127.0.0.1")
            elif self.path == "/":
                self._send(HTTPStatus.OK, "text/html", live.page())
            elif self.path == "/version":
                self._send(HTTPStatus.OK, "text/plain", live.current())
            else:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", "only / is served here")

        def _send(self, status: HTTPStatus, kind: str, body: str) -> None:
            data = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: the terminal shows the address once."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)
