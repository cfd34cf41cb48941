"""Who may ask the dashboard, and what its pages may do in a browser."""

import base64
import hashlib
from hmac import compare_digest
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ["127.0.0.1", "localhost"]
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class OwnOrigin:
    """Answers only pages of this server, and people who follow a link to it; refuses what other pages ask for."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
        if not _welcome(headers):
            await PlainTextResponse("another site may not ask this server", 403)(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {key for key, _ in message["headers"]}
                message["headers"] += [
                    (key.lower().encode(), value.encode())
                    for key, value in HEADERS.items()
                    if key.lower().encode() not in known
                ]
            await send(message)

        await self._app(scope, receive, with_headers)


def _welcome(headers: dict[bytes, str]) -> bool:
    origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
    if origin is not None and origin != f"http://{headers.get(b'host', '')}":
        return False
    if site in (None, "same-origin", "none"):
        return True
    return headers.get(b"sec-fetch-mode") == "navigate" and headers.get(b"sec-fetch-dest") == "document"


class Token:
    """Answers those who have the token: in the address at first, then in a cookie of this port."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        cookie = f"lightning_tfm_{request.url.port}"
        if self._fits(request.cookies.get(cookie, "")):
            await self._app(scope, receive, send)
            return
        answer: Response = PlainTextResponse("open the address that this dashboard printed: its token is missing", 403)
        if self._fits(request.query_params.get("token", "")):
            rest = urlencode([(key, value) for key, value in request.query_params.multi_items() if key != "token"])
            here = "/" + request.url.path.lstrip("/") + f"?{rest}" * bool(rest)
            answer = RedirectResponse(here, 303, headers={"Cache-Control": "no-store"})
            answer.set_cookie(cookie, self._token, httponly=True, samesite="strict")
        await answer(scope, receive, send)

    def _fits(self, given: str) -> bool:
        return compare_digest(given.encode(), self._token.encode())


def policy_of(page: str) -> str:
    """For a report page, which holds its style and its one script, the last that it has: no other is run."""
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    own = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return POLICY.replace("script-src 'self'", f"script-src 'sha256-{own}'").replace(
        "style-src 'self'", "style-src 'unsafe-inline'"
    )
