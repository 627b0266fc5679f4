"""The dashboard as an ASGI application: one table of routes says who may take which.

A page is a function from a visit to the values of its template. Its live stream calls the same function every few seconds and
sends the changed part. Everything but the style sheet, the script and the login needs a logged-in person; every write needs an
operator and a form of ours.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

import orjson
import psycopg
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from trueup.dsn import mask
from trueup.errors import DatabaseUnavailable, NotFound, SchemaMismatch, TrueupError
from trueup.operate.acting import acting
from trueup.store.db.connect import is_away
from trueup.texts import describe
from trueup.web.dashboard import actions, forms, render
from trueup.web.dashboard.actions import Action
from trueup.web.dashboard.attention import concerns
from trueup.web.dashboard.auth import COOKIE, SESSION_FOR, Auth, Open, Person, Tokens
from trueup.web.dashboard.bulk import Bulk
from trueup.web.dashboard.formats import Redact
from trueup.web.dashboard.pages import alerts, audit, fleet, jobs, overview, queues, reconcilers, recovery, schedules
from trueup.web.dashboard.source import Source
from trueup.web.dashboard.visit import SLASH, Visit
from trueup.web.guard import Application, Receive, Scope, Send

UNANSWERED = (psycopg.Error, OSError, DatabaseUnavailable, SchemaMismatch)  # by the database
Shows = Callable[[Visit], Awaitable[dict[str, Any]]]

# Seconds between two looks of live pages, all of which look at the same moments and so share their answers.
LOOK_EVERY = 2.0
ANSWERS_WITHIN = 10.0  # seconds, including the database's time: a page that says "live" must not wait for pool_timeout
ALIVE_EVERY = 15.0  # seconds; proxies end a silent stream
STATIC = files("trueup.web.dashboard") / "static"
KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_SLASH = re.compile(b"%2f", re.IGNORECASE)
_TIMES = re.compile(r"(<time [^>]*>)[^<]*")


@dataclass(frozen=True, slots=True)
class PageRoute:
    path: str  # below the App's name
    template: str
    shows: Shows
    section: str


PAGES = (
    PageRoute("", "overview.html", overview.overview, "overview"),
    PageRoute("/jobs", "jobs.html", jobs.jobs, "jobs"),
    PageRoute("/jobs/{id}", "job.html", jobs.job, "jobs"),
    PageRoute("/reconcilers", "reconcilers.html", reconcilers.reconcilers, "reconcilers"),
    PageRoute("/reconcilers/{name}", "reconciler.html", reconcilers.reconciler, "reconcilers"),
    PageRoute("/reconcilers/{name}/row", "row.html", reconcilers.row, "reconcilers"),
    PageRoute("/schedules", "schedules.html", schedules.schedules, "schedules"),
    PageRoute("/schedules/{name}", "schedule.html", schedules.schedule, "schedules"),
    PageRoute("/fleet", "fleet.html", fleet.fleet, "fleet"),
    PageRoute("/recovery", "recovery.html", recovery.recovery, "recovery"),
    PageRoute("/queues", "queues.html", queues.queues, "queues"),
    PageRoute("/alerts", "alerts.html", alerts.alerts, "alerts"),
    PageRoute("/audit", "audit.html", audit.audit, "audit"),
)

ACTIONS: Mapping[str, Action] = {
    "/jobs/{id}/{action}": actions.act_on_job,
    "/jobs-matching/{action}": actions.act_on_all,
    "/runs/{run}/stop": actions.stop_run,
    "/queues/{name}/{action}": partial(actions.pause_or_resume, what="queue"),
    "/kinds/{name}/{action}": partial(actions.pause_or_resume, what="kind"),
    "/schedules/{name}/{action}": actions.act_on_schedule,
    "/reconcilers/{name}/{action}": actions.act_on_reconciler,
}


class Site:
    def __init__(
        self, sources: Mapping[str, Source], auth: Auth, redact: Redact | None, *, undo_for: float, closes: bool
    ) -> None:
        self.sources = sources
        self.auth = auth
        self.redact = redact
        self.bulk = Bulk(undo_for)
        self._closes = closes

    def routes(self) -> list[Route]:
        return [
            Route("/", self._start, methods=["GET"]),
            Route("/-/login", self._login, methods=["GET", "POST"]),
            Route("/-/logout", self._logout, methods=["POST"]),
            Route("/-/{file}", _static, methods=["GET"]),
            *(Route(f"/{{source}}{page.path}", self._page(page), methods=["GET"]) for page in PAGES),
            *(Route(f"/{{source}}{path}", self._act(act), methods=["POST"]) for path, act in ACTIONS.items()),
        ]

    def application(self, more: list[Route]) -> Starlette:
        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            await self.close()

        return Starlette(
            routes=[*more, *self.routes()],
            lifespan=lifespan,
            exception_handlers={404: self._nothing, 405: self._nothing},
        )

    async def close(self) -> None:
        await self.bulk.close()
        if self._closes:
            for source in self.sources.values():
                await source.app.close()

    # -- asking -------------------------------------------------------------------------------------------------------

    async def visit(self, request: Request, person: Person, *, follows: bool = False) -> Visit:
        """Raises NotFound for an unknown App, and the database's errors when it is unreachable."""
        source = self.sources.get(str(request.path_params["source"]))
        if source is None:
            raise NotFound(f"the dashboard shows {', '.join(self.sources)}, but no App of that name")
        store = await source.open()
        try:
            async with source.explained(), asyncio.timeout(ANSWERS_WITHIN):
                now: datetime = await source.shared("now", store.now, 0.0)
        except TimeoutError as error:
            silent = f"the database at {mask(store.url)} has not answered within {ANSWERS_WITHIN:g} s"
            raise DatabaseUnavailable(f"{silent}; check that the server runs and is reachable from here") from error
        shown = source.followed() if follows else source
        return Visit(request, person, shown, self.sources, self.bulk, self.redact, now)

    def person(self, request: Request) -> Person | None:
        return self.auth.person(request)

    # -- pages --------------------------------------------------------------------------------------------------------

    def _page(self, page: PageRoute) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            person = self.person(request)
            if person is None:
                return self._ask_who(request)
            if "text/event-stream" in request.headers.get("accept", ""):
                return StreamingResponse(self._stream(request, person, page), media_type="text/event-stream")
            return await self._answered(request, person, self._shown(request, person, page))

        return respond

    async def _shown(self, request: Request, person: Person, page: PageRoute) -> Response:
        visit = await self.visit(request, person)
        values = await self._values(request, person, visit, page)
        values["section"] = page.section
        said = _said(request)
        response = HTMLResponse(render.whole(page.template, {**values, "said": said}))
        if said is not None:
            response.delete_cookie(forms.FLASH, path=visit.base + "/")
        forms.remember(request, response)
        return response

    async def _values(self, request: Request, person: Person, visit: Visit, page: PageRoute) -> dict[str, Any]:
        async with visit.source.explained():
            shared = {**self._frame(request, person), **render.context_of(visit), "concerns": await concerns(visit)}
            return {**shared, **await page.shows(visit)}

    async def _stream(self, request: Request, person: Person, page: PageRoute) -> AsyncIterator[str]:
        """The live part of a page whenever it has changed, until the person's session ends.

        It begins with what a person who opens the page would see: the tab may have been hidden for long."""
        last, quiet, follows = b"", 0.0, False
        loop = asyncio.get_running_loop()
        yield "retry: 3000\n\n"
        while self.person(request) is not None:
            began = loop.time()
            try:
                visit = await self.visit(request, person, follows=follows)
                values = await self._values(request, person, visit, page)
                shown = render.live(page.template, values)
                mark = hashlib.sha256(_TIMES.sub(r"\1", "".join(shown.values())).encode()).digest()
                event = _event("page", {**shown, "now": visit.now.timestamp()}) if mark != last else ""
            except (*UNANSWERED, TrueupError) as error:
                mark, event = b"", _event("away", describe(error)) if last else ""
            if event or quiet >= ALIVE_EVERY:
                quiet = 0.0
                yield event or ": alive\n\n"
            last, follows = mark, True
            await asyncio.sleep(pause(loop.time()))
            quiet += loop.time() - began

    # -- acting -------------------------------------------------------------------------------------------------------

    def _act(self, act: Action) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            person = self.person(request)
            if person is None:
                return self._ask_who(request)
            if not person.may_act:
                return self._message(request, person, 403, "Viewers cannot do this", "It needs the role operator.")
            form = await _form(request)
            if not forms.is_ours(request, self.auth, form.get(forms.FIELD, "")):
                return self._message(
                    request, person, 403, "This form has expired", "Go back, reload the page, and try again."
                )
            return await self._answered(request, person, self._acted(request, person, act, form))

        return respond

    async def _acted(self, request: Request, person: Person, act: Action, form: Mapping[str, str]) -> Response:
        visit = await self.visit(request, person)
        back = _back(form.get("back", ""), visit.base)
        try:
            async with visit.source.explained():
                with acting(person.name, "web"):
                    said = await act(visit, form)
        except (NotFound, TrueupError) as error:
            if isinstance(error, DatabaseUnavailable | SchemaMismatch):
                raise
            said = actions.Said(_sentence(str(error)), visit.url(), wrong=True)
        visit.source.forget()
        response = RedirectResponse(back or said.goes_to, 303)
        forms.say(request, response, said.text, wrong=said.wrong)
        return response

    # -- people -------------------------------------------------------------------------------------------------------

    async def _start(self, request: Request) -> Response:
        if self.person(request) is None:
            return self._ask_who(request)
        return RedirectResponse(f"{_base(request)}/{next(iter(self.sources))}", 303)

    def _ask_who(self, request: Request) -> Response:
        if isinstance(self.auth, Tokens) and request.method == "GET":
            asked = _address(request)
            to = f"?{urlencode({'to': asked})}" if asked.rstrip("/") != _base(request) else ""
            return RedirectResponse(f"{_base(request)}/-/login{to}", 303)
        return self._message(
            request, None, 401, "Not logged in", "The proxy in front of this page did not say who you are."
        )

    async def _login(self, request: Request) -> Response:
        if not isinstance(self.auth, Tokens):
            return RedirectResponse(f"{_base(request)}/", 303)
        wrong = None
        to = _back(request.query_params.get("to", ""), _base(request)) or ""
        if request.method == "POST":
            form = await _form(request)
            given = form.get("token", "").strip()
            to = _back(form.get("to", ""), _base(request)) or ""
            if not forms.is_ours(request, self.auth, form.get(forms.FIELD, "")):
                wrong = "This form has expired; try again. Your browser must accept cookies."
            elif self.auth.by_token(given) is None:
                wrong = "Unknown token."
            else:
                response: Response = RedirectResponse(to or f"{_base(request)}/", 303)
                forms.set_cookie(request, response, COOKIE, self.auth.session(given), SESSION_FOR)
                return response
        why = self.auth.why_logged_out(request)
        values = {**self._frame(request, None), "wrong": wrong, "why": why, "to": to, "said": None}
        response = HTMLResponse(render.whole("login.html", values), 401 if wrong else 200)
        forms.remember(request, response)
        return response

    async def _logout(self, request: Request) -> Response:
        form = await _form(request)
        response = RedirectResponse(f"{_base(request)}/-/login", 303)
        if forms.is_ours(request, self.auth, form.get(forms.FIELD, "")):
            response.delete_cookie(COOKIE, path=_base(request) + "/")
        return response

    # -- what went wrong ------------------------------------------------------------------------------------------------

    async def _answered(self, request: Request, person: Person, answer: Awaitable[Response]) -> Response:
        try:
            return await answer
        except NotFound as error:
            return self._message(request, person, 404, "Not found", _sentence(str(error)))
        except UNANSWERED as error:
            return self._message(request, person, 503, _titled(error), _sentence(describe(error)))
        except TrueupError as error:
            return self._message(request, person, 400, "This cannot be looked for", _sentence(str(error)))

    async def _nothing(self, request: Request, error: Exception) -> Response:
        person = self.person(request)
        if person is None:
            return self._ask_who(request)
        status = getattr(error, "status_code", 404)
        return self._message(request, person, status, "Not found", "There is no page at this address.")

    def _message(self, request: Request, person: Person | None, status: int, title: str, text: str) -> Response:
        values = {**self._frame(request, person), "title": title, "text": text, "said": None}
        return HTMLResponse(render.whole("message.html", values), status)

    def _frame(self, request: Request, person: Person | None) -> dict[str, Any]:
        return {
            "request_path": _address(request),
            "base": _base(request),
            "person": person,
            "sources": list(self.sources),
            "source_name": request.path_params.get("source"),
            "csrf": forms.token(request, self.auth),
            "logs_out": isinstance(self.auth, Tokens) and person is not None,
            "is_open": isinstance(self.auth, Open),
            "section": "",
            "concerns": (),
        }


class SlashesInNames:
    """Reads addresses in which programs write the slash of a name as %2F like those of our pages."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path") or b""
        if b"%2f" in raw.lower() and unquote(raw) == scope["path"]:
            scope = {**scope, "path": unquote(_SLASH.sub(SLASH.encode(), raw))}
        await self._application(scope, receive, send)


def pause(at: float) -> float:
    """Seconds until live pages refresh. All of them refresh at the same moments, so that one query serves them all."""
    return LOOK_EVERY - at % LOOK_EVERY


async def _static(request: Request) -> Response:
    name = str(request.path_params["file"])
    kind = KINDS.get(name.rpartition(".")[2])
    if kind is None or "/" in name or name not in {each.name for each in STATIC.iterdir()}:
        return Response("not found", 404)
    content = (STATIC / name).read_bytes()
    mark = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {"etag": mark, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)


async def _form(request: Request) -> dict[str, str]:
    """A form as browsers send it by default; files are not taken."""
    body = await request.body()
    try:
        return dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=50))
    except ValueError:
        return {}


def _base(request: Request) -> str:
    return str(request.scope.get("root_path") or "")


def _address(request: Request) -> str:
    """The page's own address, to come back to."""
    query = str(QueryParams(request.query_params))
    path = request.url.path
    return f"{path}?{query}" if query else path


def _back(address: str, base: str) -> str | None:
    """The address if it is within the dashboard; None otherwise."""
    inside = address.startswith(f"{base}/") and not address.startswith("//") and "\\" not in address
    return address if inside and address.isprintable() and len(address) < 2000 else None


def _said(request: Request) -> tuple[str, bool] | None:
    try:
        text = urlsafe_b64decode(request.cookies.get(forms.FLASH, "")).decode()
    except ValueError:
        return None
    return (text[1:], text.startswith("!")) if text else None


def _event(name: str, data: object) -> str:
    return f"event: {name}\ndata: {orjson.dumps(data).decode()}\n\n"


def _titled(error: Exception) -> str:
    if isinstance(error, SchemaMismatch):
        return "The schema does not fit this release"
    refused = isinstance(error, psycopg.Error) and not is_away(error)
    return "PostgreSQL refuses this" if refused else "The database is unavailable"


def _sentence(text: str) -> str:
    text = text.strip() or "No reason was given"
    return f"{text[0].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")
