"""The HTTP API: users, their messages, dead letters, health."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from html import escape
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from fastapi import FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from trueup import ConfigError
from trueup.errors import DatabaseUnavailable
from trueup.schedules.zones import zone

from . import people
from .service import Service
from .watch import keep_looking

T = TypeVar("T")

EARLIEST = date(1900, 1, 1)


def _real_zone(name: str) -> str:
    try:
        zone(name)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return name


def _storable(text: str) -> str:
    # Control characters, halves of pairs, line ends. Not more: joiners and marks belong to many names, and to emoji.
    if not text.strip() or any(unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp") for each in text):
        raise ValueError("a name is needed, without control characters")
    return text


def _written(day: object) -> object:
    if not isinstance(day, str):  # a number would be taken for seconds since 1970
        raise ValueError("a date such as 1990-12-31 is needed")
    return day


def _past(day: date) -> date:
    if not EARLIEST <= day <= date.today():  # noqa: DTZ011 - a day too many is a slip, an hour is not
        raise ValueError(f"a day from {EARLIEST} to today is needed")
    return day


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_storable)]
Zone = Annotated[str, Field(max_length=100, examples=["Europe/Berlin"]), AfterValidator(_real_zone)]
Born = Annotated[date, BeforeValidator(_written), AfterValidator(_past)]
Most = Annotated[int, Query(ge=1, le=1000)]
Status = Literal["PENDING", "PROCESSING", "COMPLETED", "FAILED", "DEAD"]
UserId = Annotated[int, Path(ge=1, le=2**63 - 1)]


class NewUser(BaseModel):
    model_config = ConfigDict(extra="forbid")
    first_name: Name
    last_name: Name
    date_of_birth: Born
    timezone: Zone


class ChangedUser(BaseModel):
    """What is left out stays as it is."""

    model_config = ConfigDict(extra="forbid")
    first_name: Name | None = None
    last_name: Name | None = None
    date_of_birth: Born | None = None
    timezone: Zone | None = None

    @model_validator(mode="after")
    def _something(self) -> ChangedUser:
        if not self.model_fields_set or any(getattr(self, name) is None for name in self.model_fields_set):
            raise ValueError("give at least one field, and no nulls")
        return self


class UserOut(BaseModel):
    """As it is stored: whatever got there is shown."""

    model_config = ConfigDict(from_attributes=True)
    id: int
    first_name: str
    last_name: str
    date_of_birth: date
    timezone: str


def make_api(service: Service, *, embedded_worker: bool = False) -> FastAPI:
    """With `embedded_worker` this process sends messages, too."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.prepare()
        looking = asyncio.create_task(keep_looking(service.watch.look_for_silence))
        try:
            if embedded_worker:
                async with service.watching_for_late(), service.app.worker():
                    yield
            else:
                yield
        finally:
            looking.cancel()
            await service.close()

    # The usual pages load their scripts from elsewhere; ours is plain, and the description itself is at /openapi.json.
    api = FastAPI(title="Birthdays", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    api.add_api_route("/docs", lambda: HTMLResponse(described(api)), include_in_schema=False)
    app, rules = service.app, service.config.rules

    @api.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        # Without what was given: it may be what JSON cannot say (NaN, half a surrogate pair), and need not be repeated.
        told = [{"loc": each["loc"], "msg": each["msg"], "type": each["type"]} for each in error.errors()]
        return JSONResponse({"detail": told}, status_code=422)

    @api.exception_handler(ConfigError)
    async def refused(_: Request, error: ConfigError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=422)  # a zone that was stored by other means, say

    @api.exception_handler(DatabaseUnavailable)
    async def unavailable(_: Request, error: DatabaseUnavailable) -> JSONResponse:
        return JSONResponse({"detail": "the database cannot be reached"}, status_code=503)

    @api.post("/users", status_code=201, response_model=UserOut)
    async def create_user(user: NewUser) -> people.User:
        async with app.transaction() as tx:
            return await people.create(
                tx,
                rules,
                user.first_name,
                user.last_name,
                user.date_of_birth,
                user.timezone,
                now=app.clock.now(),
            )

    @api.get("/users", response_model=list[UserOut])
    async def list_users(after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0, most: Most = 100) -> list[people.User]:
        async with app.transaction() as tx:
            return await people.every(tx, after=after, most=most)

    @api.get("/users/{user_id}", response_model=UserOut)
    async def read_user(user_id: UserId) -> people.User:
        async with app.transaction() as tx:
            return _found(await people.get(tx, user_id), "user", user_id)

    @api.patch("/users/{user_id}", response_model=UserOut)
    async def change_user(user_id: UserId, changed: ChangedUser) -> people.User:
        async with app.transaction() as tx:
            changes = changed.model_dump(exclude_unset=True)
            user = await people.update(tx, rules, user_id, now=app.clock.now(), **changes)
            return _found(user, "user", user_id)

    @api.delete("/users/{user_id}", status_code=204)
    async def delete_user(user_id: UserId) -> Response:
        async with app.transaction() as tx:
            _found(await people.delete(tx, user_id) or None, "user", user_id)
        return Response(status_code=204)

    @api.get("/users/{user_id}/events")
    async def events_of(user_id: UserId, most: Most = 100) -> list[dict[str, Any]]:
        async with app.transaction() as tx:
            _found(await people.get(tx, user_id), "user", user_id)
            return await people.events(tx, user_id=user_id, most=most)

    @api.get("/events")
    async def list_events(status: Status | None = None, most: Most = 100) -> list[dict[str, Any]]:
        async with app.transaction() as tx:
            return await people.events(tx, status=status, most=most)

    @api.get("/dead-letters")
    async def list_dead_letters(most: Most = 100) -> list[dict[str, Any]]:
        async with app.transaction() as tx:
            return await people.dead_letters(tx, most=most)

    @api.post("/dead-letters/requeue")
    async def requeue_all() -> dict[str, int]:
        async with app.transaction() as tx:
            return {"requeued": await people.requeue(tx, None)}

    @api.post("/dead-letters/{event_id}/requeue")
    async def requeue_one(event_id: UUID) -> dict[str, int]:
        async with app.transaction() as tx:
            return {"requeued": _found(await people.requeue(tx, str(event_id)) or None, "dead letter", event_id)}

    @api.get("/health")
    async def health(response: Response) -> dict[str, Any]:
        found = await service.watch.silence()
        response.status_code = 503 if found.too_long else 200
        return {
            "sending": not found.too_long,
            "last_run": found.last_run,
            "minutes_since_last_run": found.minutes_since_last_run,
        }

    @api.get("/recovery")
    async def recovery() -> dict[str, Any]:
        report = await app.recovery(since="24h")
        return {"caught_up": report.caught_up, "summary": report.summary}

    return api


def _found(thing: T | None, what: str, key: object) -> T:
    if thing is None:
        raise HTTPException(404, f"there is no {what} {key}")
    return thing


def described(api: FastAPI) -> str:
    """What can be asked for, as a page."""
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
