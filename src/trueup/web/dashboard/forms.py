"""Forms that only our own pages can send: each carries a token that is signed for the browser's cookie."""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode

from starlette.requests import Request
from starlette.responses import Response

from trueup.web.dashboard.auth import Auth

COOKIE = "trueup_form"
FLASH = "trueup_said"
FIELD = "csrf"
MAX_FLASH = 300  # characters


def mark(request: Request) -> str:
    """The id of this browser, from its cookie; a new one if it has none. It stays the same during one request."""
    kept: str | None = request.cookies.get(COOKIE)
    if kept is None or not 20 <= len(kept) <= 60 or not kept.isascii():
        kept = getattr(request.state, "form_mark", None) or secrets.token_urlsafe(24)
        request.state.form_mark = kept
    return kept


def token(request: Request, auth: Auth) -> str:
    return _signed(auth, mark(request))


def is_ours(request: Request, auth: Auth, given: str) -> bool:
    kept = request.cookies.get(COOKIE)
    return kept is not None and hmac.compare_digest(_signed(auth, kept).encode(), given.encode("utf-8", "replace"))


def remember(request: Request, response: Response) -> None:
    """Give the browser the cookie that its forms are signed for."""
    if hasattr(request.state, "form_mark"):
        set_cookie(request, response, COOKIE, request.state.form_mark)


def set_cookie(request: Request, response: Response, name: str, value: str, max_age: int | None = None) -> None:
    path = (request.scope.get("root_path") or "") + "/"
    secure = request.url.scheme == "https"
    response.set_cookie(name, value, max_age=max_age, path=path, secure=secure, httponly=True, samesite="lax")


def say(request: Request, response: Response, text: str, *, wrong: bool = False) -> None:
    """Have the next page show a sentence once."""
    value = urlsafe_b64encode(f"{'!' if wrong else '.'}{text[:MAX_FLASH]}".encode()).decode()
    set_cookie(request, response, FLASH, value, max_age=30)


def _signed(auth: Auth, kept: str) -> str:
    digest = hmac.digest(auth.key, b"form\0" + kept.encode("utf-8", "replace"), "sha256")
    return urlsafe_b64encode(digest).decode().rstrip("=")
