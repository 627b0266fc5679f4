"""A database for callers without an event loop, behind the same interface as the pool.

Its coroutines never suspend: each statement blocks until its rows are there. So a coroutine that awaits only statements can be
run to its end with `finish`, and the same code serves async and sync callers.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from psycopg import AsyncConnection, Connection

from trueup.store.db.message import Conversation, Fetched, Part
from trueup.store.db.own_connection import Answered, Record
from trueup.store.db.pool import SyncPool, fetch_records_sync, fetch_sync

T = TypeVar("T")


class BlockingDatabase:
    def __init__(self, pool: SyncPool) -> None:
        self._pool = pool

    async def fetch(self, query: bytes, params: Mapping[str, Any] | None = None) -> Fetched:
        return self._pool.fetch(query, params)

    async def fetch_records(self, query: bytes, params: Mapping[str, Any]) -> list[Record]:
        return self._pool.fetch_records(query, params)

    async def fetch_kept(self, query: bytes, params: Mapping[str, Any]) -> Fetched:
        return await self.fetch(query, params)

    async def fetch_steered(self, steer: bytes, query: bytes, params: Mapping[str, Any]) -> Fetched:
        with self._pool.transaction() as connection:
            fetch_sync(connection, steer)
            return fetch_sync(connection, query, params)

    async def repeat(self, times: int, parts: Sequence[Part], answered: Answered) -> None:
        raise NotImplementedError("workers alone repeat statements, and they have an event loop")

    def conversation(self) -> AbstractAsyncContextManager[Conversation]:
        raise NotImplementedError("workers alone hold conversations, and they have an event loop")

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        raise NotImplementedError("a sync caller has no async connection")

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[BlockingDatabase]:
        """One transaction; every statement on the yielded object is part of it."""
        with self._pool.transaction() as connection:
            yield BegunBlocking(connection)


class BegunBlocking(BlockingDatabase):
    """One connection in a transaction, for callers without an event loop; the counterpart of `pool.Begun`."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    async def fetch(self, query: bytes, params: Mapping[str, Any] | None = None) -> Fetched:
        return fetch_sync(self._connection, query, params)

    async def fetch_records(self, query: bytes, params: Mapping[str, Any]) -> list[Record]:
        return fetch_records_sync(self._connection, query, params)


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} waits for an event loop")


async def block(seconds: float) -> None:
    """A pause for code without an event loop."""
    time.sleep(seconds)  # noqa: ASYNC251
