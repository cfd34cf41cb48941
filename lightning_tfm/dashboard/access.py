"""Who may ask the dashboard, and what its pages may do in a browser."""

import base64
import hashlib
from hmac import compare_digest
from urllib.parse import urlencode

from starlette.datastructures import Headers
from starlette.middleware.base import DispatchFunction, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

HOSTS = ["127.0.0.1", "localhost"]
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""of every answer that says nothing else"""


async def own_origin(request: Request, answer: RequestResponseEndpoint) -> Response:
    """Answers only pages of this server, and people who follow a link to it; refuses what other pages ask for."""
    if not _welcome(request.headers):
        return PlainTextResponse("another site may not ask this server", 403)
    answered = await answer(request)
    for key, value in HEADERS.items():
        answered.headers.setdefault(key, value)
    return answered


def _welcome(headers: Headers) -> bool:
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and origin != f"http://{headers.get('host', '')}":
        return False
    if site in (None, "same-origin", "none"):
        return True
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def who_has(token: str) -> DispatchFunction:
    """Answers those who have the token: in the address at first, then in a cookie of this port."""

    def fits(given: str) -> bool:
        return compare_digest(given.encode(), token.encode())

    async def answered(request: Request, answer: RequestResponseEndpoint) -> Response:
        cookie = f"lightning_tfm_{request.url.port}"
        if fits(request.cookies.get(cookie, "")):
            return await answer(request)
        if not fits(request.query_params.get("token", "")):
            return PlainTextResponse("open the address that this dashboard printed: its token is missing", 403)
        rest = urlencode([(key, value) for key, value in request.query_params.multi_items() if key != "token"])
        here = RedirectResponse("/" + request.url.path.lstrip("/") + f"?{rest}" * bool(rest), 303)
        here.set_cookie(cookie, token, httponly=True, samesite="strict")
        return here

    return answered


def policy_of(page: str) -> str:
    """For a report page, which holds its style and its one script, the last that it has: no other is run."""
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    own = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return POLICY.replace("script-src 'self'", f"script-src 'sha256-{own}'").replace(
        "style-src 'self'", "style-src 'unsafe-inline'"
    )
