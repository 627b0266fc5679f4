"""Who acts, and transactions in which an action and its record are written together.

A context variable holds the person and the interface: the command line sets it around a command, the dashboard and Django's admin
around a request. Python code that sets nothing acts as the operating system's user, unless `by=` names a person.
"""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeVar

from psycopg import AsyncConnection

from trueup.errors import ConfigError
from trueup.store.actions import Action, Actions, Begins, Noting
from trueup.store.db.blocking import BlockingDatabase, block
from trueup.store.db.pool import Begun
from trueup.store.db.repeating import repeated
from trueup.store.db.repository import Database
from trueup.store.store import Store
from trueup.texts import MAX_MESSAGE, clean

Via = Literal["cli", "python", "web"]
T = TypeVar("T")

MAX_NAME = 200  # characters of who and of what is recorded


@dataclass(slots=True)
class Actor:
    name: str
    via: Via
    together: bool = False  # repeated actions share the first one's record
    detail: str | None = None  # replaces the reason that each action gives
    begun: dict[tuple[str, str, str | None], Action] = field(default_factory=dict)


_actor: ContextVar[Actor | None] = ContextVar("trueup_actor", default=None)


@contextmanager
def acting(name: str | None, via: Via, *, together: bool = False, detail: str | None = None) -> Iterator[None]:
    """Actions inside the block are recorded under this name; without one, under the operating system's user."""
    before = _actor.set(Actor(name or os_user(), via, together, detail))
    try:
        yield
    finally:
        _actor.reset(before)


def os_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


class Recorder:
    """Makes the records of the current person's actions, and the transactions that they are written in."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._database: Begins = store.pool
        self._pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    def on(self, database: BlockingDatabase) -> Self:
        """The same recorder for code without an event loop."""
        same = copy(self)
        same._database = database
        same._pause = block
        return same

    def action(
        self, action: str, what: str, name: str | None = None, *, by: str | None = None, detail: str | None = None
    ) -> Action:
        """Raises ConfigError for a `by` that names no one."""
        if by is not None and not by.strip():
            raise ConfigError(f"by={by!r}: give the name of the person who acts, or omit it")
        actor = _actor.get() or Actor(os_user(), "python")
        key = (action, what, name)
        if actor.together and key in actor.begun:
            return actor.begun[key]
        detail = actor.detail or detail
        made = Action(
            clean(by or actor.name, MAX_NAME),
            actor.via,
            clean(socket.gethostname(), MAX_NAME),
            action,
            what,
            None if name is None else clean(name, MAX_NAME),
            None if detail is None else clean(detail, MAX_MESSAGE),
        )
        if actor.together:
            actor.begun[key] = made
        return made

    async def carry_out(self, action: Action, work: Callable[[Acting], Awaitable[T]]) -> T:
        """Do the work of an action and write its record, in one transaction."""

        async def once() -> T:
            async with self._database.begin() as database:
                return await work(Acting(database, self._actions(database), action))

        return await self.repeated(action, once)

    async def repeated(self, action: Action, once: Callable[[], Awaitable[T]]) -> T:
        """Run the action's transaction, and run it again if the server asks for that: a worker or another person locked the same
        rows in another order, and the transaction was rolled back."""
        return await repeated(lambda: self._undone_together(action, once), self._pause)

    async def _undone_together(self, action: Action, once: Callable[[], Awaitable[T]]) -> T:
        """If the transaction is rolled back, forget the id of its record: the next record must not be added to a row that does
        not exist."""
        recorded = action.id
        try:
            return await once()
        except BaseException:
            action.id = recorded
            raise

    def noting(self, action: Action) -> Noting:
        """A function that writes the record on a connection inside the action's transaction."""

        async def note(connection: AsyncConnection[Any], count: int, keys: Iterable[object]) -> None:
            await self._actions(Begun(connection)).add(action, count, keys)

        return note

    async def note(self, action: Action, count: int) -> None:
        """Record the action in a transaction of its own. Work that takes many transactions does so before the first and after the
        last."""
        await self._actions(self._database).add(action, count)

    def _actions(self, database: Database) -> Actions:
        return self._store.actions.on(database)


class Acting:
    """The transaction of one action; the work runs its statements on `database`."""

    def __init__(self, database: Database, actions: Actions, action: Action) -> None:
        self.database = database
        self._actions = actions
        self._action = action

    async def note(self, count: int, keys: Iterable[object] = ()) -> None:
        """Record how many items were changed. An action that changed nothing is not recorded."""
        if count:
            await self._actions.add(self._action, count, keys)
