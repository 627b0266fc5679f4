"""What the applications' HTTP APIs have in common. (apps/birthdays has its own: it is also shipped without the others.)"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from html import escape

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse

from trueup import DatabaseUnavailable

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def plain_api(title: str, lifespan: Lifespan, *, version: str = "1", invalid: int = 422) -> FastAPI:
    """Without routes but the pages that describe it. What cannot be read is answered with the status `invalid`, a database that
    is away with 503."""
    # The usual pages load their scripts from elsewhere; ours is plain, and the description itself is at /openapi.json.
    api = FastAPI(title=title, version=version, lifespan=lifespan, docs_url=None, redoc_url=None)
    api.add_api_route("/docs", lambda: HTMLResponse(described(api)), include_in_schema=False)

    @api.exception_handler(RequestValidationError)
    async def unreadable(_: Request, error: RequestValidationError) -> JSONResponse:
        # Without what was given: it may be what JSON cannot say (NaN, half a surrogate pair), and need not be repeated.
        told = [{"loc": each["loc"], "msg": each["msg"], "type": each["type"]} for each in error.errors()]
        return JSONResponse({"detail": told}, status_code=invalid)

    @api.exception_handler(DatabaseUnavailable)
    async def unavailable(_: Request, error: DatabaseUnavailable) -> JSONResponse:
        return JSONResponse({"detail": "the database cannot be reached"}, status_code=503)

    return api


def described(api: FastAPI) -> str:
    """What can be asked for, as a page that loads nothing from elsewhere."""
    rows = "".join(
        f"<tr><td>{method.upper()}</td><td><code>{escape(path)}</code></td><td>{escape(operation['summary'])}</td></tr>"
        for path, operations in api.openapi()["paths"].items()
        for method, operation in operations.items()
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(api.title)}</title>"
        "<style>body{font:16px system-ui;margin:2rem}td{padding:.3rem 1rem .3rem 0;border-top:1px solid #ddd}</style>"
        f'<h1>{escape(api.title)}</h1><table>{rows}</table><p>In full: <a href="/openapi.json">/openapi.json</a></p></html>'
    )
