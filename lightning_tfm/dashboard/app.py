"""The dashboard as a Starlette application, served by uvicorn on 127.0.0.1 and nowhere else."""

import re
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from lightning_tfm.dashboard import curves_page, diff_page, index_page, run_page, study_page
from lightning_tfm.dashboard.access import HOSTS, own_origin, policy_of, who_has
from lightning_tfm.dashboard.board import Board
from lightning_tfm.dashboard.index_page import ALL, Asked
from lightning_tfm.dashboard.markup import asset, render, static
from lightning_tfm.dashboard.page import News, NoSuchPage, Page, frame
from lightning_tfm.dashboard.reports import Reports
from lightning_tfm.errors import UserError

HOST = "127.0.0.1"
MEDIA = {"css": "text/css", "js": "text/javascript"}


class Dashboard:
    """Answers for one results folder. Its methods run in threads; `board` is shared by all of them."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._reports = Reports(board.root, board.texts)
        self._index, self._making = (0, ""), threading.Lock()
        """the first page, and of which version of the board it is"""

    def app(self, token: str = "") -> Starlette:
        """The application, to be served on loopback; with a `token`, only to those whose address has it."""
        pages = {"/curves": _curves, "/study/{name}": _study, "/run/{name}": _run, "/diff": _diff}
        routes = [
            Route("/", lambda request: self.index(Asked.of(request.query_params))),
            Route("/news", self.index_news),
            Route("/runs", self.runs),
            *(Route(path, partial(self._page, made)) for path, made in pages.items()),
            *(Route(f"{path}/news", partial(self._page_news, made)) for path, made in pages.items()),
            Route("/study/{name}/forest", self.forest),
            Route("/study/{name}/row", self.row),
            Route("/study/{name}/report", self.report),
            Route("/study/{name}/report/version", self.report_version),
            Route("/compare", self.comparison),
            *(Route(static(kind), _asset(kind)) for kind in MEDIA),
        ]
        middleware = [
            Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
            Middleware(BaseHTTPMiddleware, dispatch=own_origin),
            *([Middleware(BaseHTTPMiddleware, dispatch=who_has(token))] if token else []),
            Middleware(GZipMiddleware, compresslevel=6),
        ]
        wrong: dict[Any, Any] = {404: self._not_found, NoSuchPage: self._not_found}
        wrong[UserError] = lambda request, error: self._wrong("This page cannot be made", str(error), 503)
        return Starlette(routes=routes, middleware=middleware, exception_handlers=wrong)

    # --- pages ---

    def index(self, asked: Asked = ALL) -> Response:
        with self._making:  # many may ask while the first page of ten thousand runs is made
            seen = self.board.look()
            if asked != ALL:
                return HTMLResponse(index_page.page(self.board.root, seen, asked))
            if self._index[0] != seen.version or not self._index[1]:
                self._index = (seen.version, index_page.page(self.board.root, seen, asked))
            return HTMLResponse(self._index[1])

    def index_news(self, request: Request) -> Response:
        seen = self.board.look()
        since = request.query_params.get("since", "")
        version = int(since) if re.fullmatch("[0-9]{1,18}", since) else 0
        made = partial(index_page.news, seen, version, Asked.of(request.query_params))
        return _unless_known(request, str(seen.version), lambda: _json(made()))

    def runs(self, request: Request) -> Response:
        """The table of runs as it is asked for; 400 with the words for what is wrong."""
        try:
            return HTMLResponse(index_page.runs(self.board.look(), Asked.of(request.query_params)))
        except UserError as error:
            return PlainTextResponse(str(error), 400)

    def report(self, request: Request) -> Response:
        """The report page of a study, as `report` writes it, which asks for a newer version of itself."""
        name, reference = self._existing(request), request.query_params.get("reference")
        return _unless_known(request, self._reports.version(name), lambda: _own(self._reports.page(name, reference)))

    def forest(self, request: Request) -> Response:
        """The main figure of a study, a part of its page."""
        name = self._existing(request)
        return _unless_known(request, self._reports.version(name), lambda: HTMLResponse(self._reports.forest(name)))

    def row(self, request: Request) -> Response:
        """What is known of one row of a table, which its name on the study's page opens."""
        name, row = self._existing(request), request.query_params.get("name", "")
        found = self._reports.row(name, row)
        if found is None:
            raise NoSuchPage(f"study '{name}' has no row '{row}'")
        study = self.board.seen.outlines[name]
        return HTMLResponse(render("row.html", **frame(self.board.root, found["row"].called), study=study, **found))

    def report_version(self, request: Request) -> Response:
        return PlainTextResponse(self._reports.version(self._existing(request)))

    def comparison(self, request: Request) -> Response:
        """Studies compared with tests, as `compare` writes it."""
        names = request.query_params.getlist("study")
        known = self.board.look().studies
        if len(set(names)) < 2 or not set(names) <= set(known):
            raise NoSuchPage("name two studies of this folder: /compare?study=…&study=…")
        return _own(self._reports.comparison(names))

    def _existing(self, request: Request) -> str:
        name = request.path_params["name"]
        if name not in self.board.look().studies:
            raise NoSuchPage(f"there is no study '{name}'")
        return name

    # --- how they are sent ---

    def _page(self, made: Callable[[Board, Request], Page], request: Request) -> Response:
        return HTMLResponse(made(self.board, request).render(self.board.root))

    def _page_news(self, made: Callable[[Board, Request], Page], request: Request) -> Response:
        news = made(self.board, request).news()
        return _unless_known(request, news.tag, lambda: _json(news))

    def _not_found(self, request: Request, error: Exception) -> Response:
        words = str(error) if isinstance(error, NoSuchPage) else f"{request.url.path}: {getattr(error, 'detail', '')}"
        return self._wrong("Not found", words, 404)

    def _wrong(self, title: str, words: str, status: int) -> Response:
        return HTMLResponse(render("wrong.html", **frame(self.board.root, title), words=words), status)


def _study(board: Board, request: Request) -> Page:
    return study_page.page(board, board.look(), request.path_params["name"], request.query_params.get("columns", ""))


def _run(board: Board, request: Request) -> Page:
    return run_page.page(board, board.look(), request.path_params["name"])


def _curves(board: Board, request: Request) -> Page:
    return curves_page.page(board, board.look(), *(request.query_params.get(k, "") for k in ("where", "by", "measure")))


def _diff(board: Board, request: Request) -> Page:
    return diff_page.page(board, board.look(), request.query_params.getlist("run"))


def _json(news: News) -> Response:
    return Response(news.body(), media_type="application/json")


def _own(page: str) -> Response:
    """A page that holds its style and its script."""
    return HTMLResponse(page, headers={"Content-Security-Policy": policy_of(page)})


def _unless_known(request: Request, tag: str, make: Callable[[], Response]) -> Response:
    """What `make` gives; nothing where the one who asks has this version already."""
    known = f'"{tag}"' in [one.strip() for one in request.headers.get("if-none-match", "").split(",")]
    answer = Response(status_code=304) if known else make()
    answer.headers["ETag"] = f'"{tag}"'
    return answer


def _asset(kind: str) -> Callable[[Request], Response]:
    """Answers the style sheet or the script: its address names its content, so that it may be kept for ever."""
    headers = {"Cache-Control": "max-age=31536000, immutable"}
    return lambda request: Response(asset(kind), media_type=MEDIA[kind], headers=headers)


# --- the server ---


def listen(port: int) -> socket.socket:
    """A socket on loopback; port 0 takes a free one. Raises UserError where the port is taken or none."""
    if not 0 <= port <= 65535:
        raise UserError(f"--port={port}: a port is between 1 and 65535; 0 takes any free one")
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HOST, port))
    except OSError as error:
        made.close()
        raise UserError(f"--port={port}: {error.strerror}; choose another --port, or 0 for any free one") from None
    return made


def server(app: ASGIApp) -> uvicorn.Server:
    """A server of `app`, to be run on a socket of `listen`."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def serve(app: ASGIApp, port: int, say: Callable[[str], None]) -> None:
    """Answer until Ctrl-C, which raises KeyboardInterrupt. `say` gets the address. Raises UserError."""
    with listen(port) as own:
        own.listen()
        say(f"http://{HOST}:{own.getsockname()[1]}")
        server(app).run(sockets=[own])
