"""The record of what people did, written in the transaction of each action."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from psycopg import AsyncConnection

from trueup.store.db.repository import Database, Repository

MAX_KEYS = 100  # ids or keys that are recorded for one action


class Begins(Database, Protocol):
    """A database that a person's action begins a transaction on: the pool, or the one for callers without an event loop."""

    def begin(self) -> AbstractAsyncContextManager[Database]:
        """One transaction, read committed, that every statement on what it yields is part of."""
        ...


Noting: TypeAlias = Callable[[AsyncConnection[Any], int, Iterable[object]], Awaitable[None]]
"""Records an action on the connection of its transaction: how many were changed, and their keys."""


@dataclass(slots=True)
class Action:
    """An action of an operator. `id` is known once it is recorded; later steps of the same action are added to that row."""

    actor: str
    via: str
    host: str
    action: str
    what: str
    name: str | None = None
    detail: str | None = None
    id: int | None = None


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """A recorded action of an operator. Field order is that of `actions/list.sql`.

    `actor` is who, `via` from where (cli, python or web), `host` the machine it was done on. `keys` are the ids of jobs or keys of
    rows, the first hundred of `count`; `name` is the queue, kind, schedule or reconciler.
    """

    id: int
    at: datetime
    actor: str
    via: str
    host: str
    action: str
    what: str
    name: str | None
    count: int
    keys: tuple[str, ...]
    detail: str | None


class Actions(Repository):
    async def add(self, action: Action, count: int, keys: Iterable[object] = ()) -> None:
        """Record the action, or add to its record."""
        texts = sorted(map(str, keys), key=lambda key: (len(key), key))[:MAX_KEYS]
        rows = await self._fetch("actions/add", **asdict(action), count=count, keys=texts, max_keys=MAX_KEYS)
        action.id = rows[0][0] if rows else action.id

    async def list(self, *, limit: int, before: int, within_s: float | None, **where: Any) -> list[ActionRecord]:
        """Those that match, newest first. `where` are actor, via, action, what, name and key, the id of a job; None matches all."""
        rows = await self._fetch("actions/list", limit=limit, before=before, within=within_s, **where)
        return [ActionRecord(*(*row[:9], tuple(row[9]), row[10])) for row in rows]
