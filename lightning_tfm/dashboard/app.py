"""The dashboard as a Starlette application: its addresses, who may ask, and what has not changed since."""

import re
import threading
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from lightning_tfm.dashboard import index_page
from lightning_tfm.dashboard.access import HOSTS, POLICY, OwnOrigin, Token, policy_of
from lightning_tfm.dashboard.board import Board
from lightning_tfm.dashboard.curves_page import CurvesPages
from lightning_tfm.dashboard.diff_page import DiffPages
from lightning_tfm.dashboard.index_page import ALL, Asked
from lightning_tfm.dashboard.markup import asset, render, static
from lightning_tfm.dashboard.page import Frame, News, NoSuchPage, Page
from lightning_tfm.dashboard.reports import Reports
from lightning_tfm.dashboard.run_page import RunPages
from lightning_tfm.dashboard.study_page import StudyPages
from lightning_tfm.errors import UserError


class Dashboard:
    """Answers for one results folder. Its methods run in threads; `board` is shared by all of them."""

    def __init__(self, board: Board, texts: bool = True) -> None:
        """`texts=False` leaves out every line of the corpus."""
        self.board, self._texts = board, texts
        self._frame = Frame(board.root)
        self._runs = RunPages(board, texts)
        self._studies = StudyPages(board.root)
        self._diffs = DiffPages(board.root, self._runs, texts)
        self._curves = CurvesPages(self._runs)
        self._reports = Reports(board.root, texts)
        self._index, self._making = (0, ""), threading.Lock()
        """the first page, and of which version of the board it is"""

    def app(self, token: str = "") -> Starlette:
        """The application, to be served on loopback; with a `token`, only to those whose address has it."""
        routes = [
            Route("/", self._guarded(lambda r: self.index(Asked.of(r.query_params)))),
            Route("/news", self._guarded(self.index_news)),
            Route("/runs", self._guarded(self.runs)),
            Route("/curves", self._guarded(lambda r: self._page(self._curved(r)))),
            Route("/curves/news", self._guarded(lambda r: self._news(r, self._curved(r).news()))),
            Route("/study/{name}", self._guarded(lambda r: self._page(self._study(r)))),
            Route("/study/{name}/news", self._guarded(lambda r: self._news(r, self._study(r).news()))),
            Route("/study/{name}/forest", self._guarded(self.forest)),
            Route("/study/{name}/row", self._guarded(self.row)),
            Route("/study/{name}/report", self._guarded(self.report)),
            Route("/study/{name}/report/version", self._guarded(self.report_version)),
            Route("/compare", self._guarded(self.comparison)),
            Route("/run/{name}", self._guarded(lambda r: self._page(self._run(r)))),
            Route("/run/{name}/news", self._guarded(lambda r: self._news(r, self._run(r).news()))),
            Route("/diff", self._guarded(lambda r: self._page(self._diff(r)))),
            Route("/diff/news", self._guarded(lambda r: self._news(r, self._diff(r).news()))),
            Route(static("css"), lambda r: _asset("css", "text/css")),
            Route(static("js"), lambda r: _asset("js", "text/javascript")),
        ]
        middleware = [
            Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
            Middleware(OwnOrigin),
            *([Middleware(Token, token=token)] if token else []),
            Middleware(GZipMiddleware, compresslevel=6),
        ]
        return Starlette(routes=routes, middleware=middleware, exception_handlers={404: self._not_found})

    # --- pages ---

    def index(self, asked: Asked = ALL) -> Response:
        with self._making:  # many may ask while the first page of ten thousand runs is made
            seen = self.board.look()
            if asked != ALL:
                return _html(index_page.page(self._frame, seen, asked))
            if self._index[0] != seen.version or not self._index[1]:
                self._index = (seen.version, index_page.page(self._frame, seen, asked))
            return _html(self._index[1])

    def index_news(self, request: Request) -> Response:
        seen = self.board.look()
        since = request.query_params.get("since", "")
        if _has(request, str(seen.version)):
            return _unchanged(str(seen.version))
        asked = Asked.of(request.query_params)
        version = int(since) if re.fullmatch("[0-9]{1,18}", since) else 0
        return self._news(request, index_page.news(seen, version, asked))

    def runs(self, request: Request) -> Response:
        """The table of runs as it is asked for; 400 with the words for what is wrong."""
        try:
            return _html(index_page.runs(self.board.look(), Asked.of(request.query_params)))
        except UserError as error:
            return PlainTextResponse(str(error), 400, headers=_fresh(""))

    def report(self, request: Request) -> Response:
        """The report page of a study, as `report` writes it, which asks for a newer version of itself."""
        name = self._existing(request)
        version = self._reports.version(name)
        if _has(request, version):
            return _unchanged(version)
        page = self._reports.page(name, request.query_params.get("reference"))
        return _html(page, version, policy_of(page))

    def forest(self, request: Request) -> Response:
        """The main figure of a study, a part of its page."""
        name = self._existing(request)
        version = self._reports.version(name)
        return _unchanged(version) if _has(request, version) else _html(self._reports.forest(name), version)

    def row(self, request: Request) -> Response:
        """What is known of one row of a table, which its name on the study's page opens."""
        name, row = self._existing(request), request.query_params.get("name", "")
        found = self._reports.row(name, row)
        if found is None:
            raise NoSuchPage(f"study '{name}' has no row '{row}'")
        study = self.board.seen.outlines[name]
        return _html(render("row.html", **self._frame.plain(found["row"].called), study=study, **found))

    def report_version(self, request: Request) -> Response:
        return PlainTextResponse(self._reports.version(self._existing(request)), headers={"Cache-Control": "no-store"})

    def comparison(self, request: Request) -> Response:
        """Studies compared with tests, as `compare` writes it."""
        names = request.query_params.getlist("study")
        known = self.board.look().studies
        if len(set(names)) < 2 or not set(names) <= set(known):
            raise NoSuchPage("name two studies of this folder: /compare?study=…&study=…")
        page = self._reports.comparison(names)
        return _html(page, policy=policy_of(page))

    def _study(self, request: Request) -> Page:
        asked = request.query_params.get("columns", "")
        return self._studies.page(self.board.look(), request.path_params["name"], asked)

    def _run(self, request: Request) -> Page:
        return self._runs.page(self.board.look(), request.path_params["name"])

    def _curved(self, request: Request) -> Page:
        asked = (request.query_params.get(key, "") for key in ("where", "by", "measure"))
        return self._curves.page(self.board.look(), *asked)

    def _diff(self, request: Request) -> Page:
        return self._diffs.page(self.board.look(), request.query_params.getlist("run"))

    # --- how they are sent ---

    def _existing(self, request: Request) -> str:
        name = request.path_params["name"]
        if name not in self.board.look().studies:
            raise NoSuchPage(f"there is no study '{name}'")
        return name

    def _page(self, page: Page) -> Response:
        return _html(page.render(self._frame))

    def _news(self, request: Request, news: News) -> Response:
        if _has(request, news.tag):
            return _unchanged(news.tag)
        return Response(news.body(), media_type="application/json", headers=_fresh(news.tag))

    def _guarded(self, answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
        def answered(request: Request) -> Response:
            try:
                return answer(request)
            except NoSuchPage as error:
                return self._wrong("Not found", str(error), 404)
            except UserError as error:
                return self._wrong("This page cannot be made", str(error), 503)

        return answered

    async def _not_found(self, request: Request, error: Exception) -> Response:
        return self._wrong("Not found", f"{request.url.path}: {getattr(error, 'detail', error)}", 404)

    def _wrong(self, title: str, words: str, status: int) -> Response:
        page = render("wrong.html", **self._frame.plain(title), words=words)
        return HTMLResponse(page, status, headers=_fresh("") | {"Content-Security-Policy": POLICY})


def _html(content: str, tag: str = "", policy: str = POLICY) -> Response:
    return HTMLResponse(content, headers=_fresh(tag) | {"Content-Security-Policy": policy})


def _fresh(tag: str) -> dict[str, str]:
    return {"Cache-Control": "no-store"} | ({"ETag": f'"{tag}"'} if tag else {})


def _has(request: Request, tag: str) -> bool:
    """Whether the one who asks has this version already."""
    return f'"{tag}"' in [one.strip() for one in request.headers.get("if-none-match", "").split(",")]


def _unchanged(tag: str) -> Response:
    return Response(status_code=304, headers=_fresh(tag))


def _asset(kind: str, media: str) -> Response:
    """The style sheet or the script: its address names its content, so that it may be kept for ever."""
    headers = {"Cache-Control": "max-age=31536000, immutable"}
    return Response(asset(kind), media_type=media, headers=headers)
