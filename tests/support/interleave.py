"""Two statements in an order that a test decides.

The first is held: it has done its work, and its transaction is open. Then the second is started. `interleave` lets the first go
only once PostgreSQL reports the second one waiting for its lock; `overlap` demands that the second does not wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from psycopg import AsyncConnection

from trueup.jobs.job import Draft
from trueup.store.db.message import Conversation, Fetched, Part
from trueup.store.db.own_connection import Answered, Record, fetch, fetch_records, repeat
from trueup.store.inserting import Stored
from trueup.store.jobs import Jobs
from trueup.store.lanes import Lanes
from trueup.store.store import Store
from trueup.store.workers import Workers

A = TypeVar("A")
B = TypeVar("B")

WITHIN = 10  # seconds until the second one must wait, or be done
UNBOUND = "set local idle_in_transaction_session_timeout = 0"
WAITING = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"


class Inside(Conversation):
    """Part of a transaction that is open already, and goes on afterwards."""

    begin, commit = b"select 1", UNBOUND.encode()


class OneConnection:
    """What the store's nouns need of a database, on a connection whose transaction is somebody else's to end."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection

    async def fetch(self, query: bytes, params: Mapping[str, Any] | None = None) -> Fetched:
        return await fetch(self._connection, query, params)

    async def fetch_records(self, query: bytes, params: Mapping[str, Any]) -> list[Record]:
        return await fetch_records(self._connection, query, params)

    async def fetch_kept(self, query: bytes, params: Mapping[str, Any]) -> Fetched:
        return await self.fetch(query, params)

    async def fetch_steered(self, steer: bytes, query: bytes, params: Mapping[str, Any]) -> Fetched:
        await self._connection.execute(steer)
        rows = await fetch(self._connection, query, params)
        # What is held here is idle on purpose; steering has bounded that.
        await self._connection.execute(UNBOUND)
        return rows

    async def repeat(self, times: int, parts: Sequence[Part], answered: Answered) -> None:
        """As one message, with something harmless for what would begin and end the transaction."""
        await self._connection.execute("select 1")  # it begins here
        instead = {b"BEGIN": b"select 1", b"COMMIT": UNBOUND.encode()}
        inside = [instead.get(part, part) if isinstance(part, bytes) else part for part in parts]
        await repeat(self._connection, times, inside, answered)

    @asynccontextmanager
    async def conversation(self) -> AsyncIterator[Conversation]:
        await self._connection.execute("select 1")  # it begins here
        yield Inside(self._connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        async with self._connection.transaction():
            yield self._connection


class Side:
    """One of the two: the store's nouns in a transaction of its own."""

    def __init__(self, store: Store, connection: AsyncConnection[Any]) -> None:
        database = OneConnection(connection)
        self.connection = connection
        self.statements = store.statements
        self.jobs = Jobs(database, store.statements)
        self.workers = Workers(database, store.statements)
        self.lanes = Lanes(database, store.statements)
        self._store = store

    async def enqueue(self, draft: Draft) -> Stored:
        return await self._store.enqueue.one(draft, self.connection)


@dataclass(frozen=True, slots=True)
class Ended(Generic[A]):
    """What a side's work gave, or what it raised."""

    result: A | None = None
    error: BaseException | None = None

    @property
    def value(self) -> A:
        """The result. Raises what the work raised."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


async def interleave(
    store: Store,
    hold: Callable[[Side], Awaitable[A]],
    then: Callable[[Side], Awaitable[B]],
    *,
    commit: bool = True,
) -> tuple[A, Ended[B]]:
    """Do the first; start the second and see it wait; end the first (commit, or else roll back); let the second end."""
    async with _side(store) as first, _side(store) as second, _side(store) as watcher:
        held = await hold(first)
        task = asyncio.create_task(_to_the_end(second, then))
        try:
            await _until_waiting(watcher, second, task)
        finally:
            await (first.connection.commit() if commit else first.connection.rollback())
        return held, await asyncio.wait_for(task, WITHIN)


async def overlap(
    store: Store,
    hold: Callable[[Side], Awaitable[A]],
    then: Callable[[Side], Awaitable[B]],
    *,
    commit: bool = True,
) -> tuple[A, Ended[B]]:
    """Do the first; do the second, which must not wait for it; then end the first. Raises TimeoutError when it waits."""
    async with _side(store) as first, _side(store) as second:
        held = await hold(first)
        ended = await asyncio.wait_for(_to_the_end(second, then), WITHIN)
        await (first.connection.commit() if commit else first.connection.rollback())
        return held, ended


@asynccontextmanager
async def _side(store: Store) -> AsyncIterator[Side]:
    async with await AsyncConnection.connect(store.url) as connection:
        yield Side(store, connection)


async def _to_the_end(side: Side, work: Callable[[Side], Awaitable[B]]) -> Ended[B]:
    try:
        result = await work(side)
    except Exception as error:
        await side.connection.rollback()
        return Ended(error=error)
    await side.connection.commit()
    return Ended(result)


async def _until_waiting(watcher: Side, side: Side, task: asyncio.Task[Ended[B]]) -> None:
    deadline = time.monotonic() + WITHIN
    await watcher.connection.set_autocommit(True)
    while True:
        cursor = await watcher.connection.execute(WAITING, [side.connection.info.backend_pid])
        if await cursor.fetchone() == (True,):
            return
        assert not task.done(), f"the second did not wait for the first: {task.result()}"
        assert time.monotonic() < deadline, f"the second neither waits nor ends within {WITHIN} s"
        await asyncio.sleep(0.005)
