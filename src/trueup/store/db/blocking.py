"""The pool for callers without an event loop, and a database on it behind the interface of the async pool.

The database's coroutines never suspend: each statement blocks until its rows are there. So a coroutine that awaits only
statements can be run to its end with `finish`, and the same code serves async and sync callers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection, ClientCursor, Connection, Cursor, IsolationLevel, errors
from psycopg.rows import dict_row, tuple_row
from psycopg_pool import ConnectionPool, PoolTimeout

from trueup.clock import elapsed
from trueup.store.db.confirmed import ConfirmedConnection
from trueup.store.db.connect import (
    ARRAY_NULLS,
    LEFT_BEHIND,
    afresh_sync,
    check_array_nulls,
    connecting,
    limit,
    make_ready_sync,
    went_away,
)
from trueup.store.db.message import Conversation, Fetched, Part
from trueup.store.db.own_connection import Answered, Record
from trueup.store.db.pool import SLICE, Bounded
from trueup.store.db.repeating import alone, repeated_sync
from trueup.texts import describe

T = TypeVar("T")


def fetch_sync(connection: Connection[Any], query: bytes, params: Mapping[str, Any] | None = None) -> Fetched:
    cursor = Cursor(connection, row_factory=tuple_row).execute(query, params)
    return cursor.fetchall() if cursor.rownumber is not None else []


def fetch_records_sync(connection: Connection[Any], query: bytes, params: Mapping[str, Any]) -> list[Record]:
    return connection.cursor(row_factory=dict_row).execute(query, params).fetchall()


def fetch_limited_sync(
    connection: Connection[Any],
    timeout: timedelta,
    query: bytes,
    params: Mapping[str, Any],
    before: Sequence[bytes] = (),
) -> Fetched:
    """The same for a client that gives up after `timeout`: the server ends the statement a little earlier."""
    cursor = ClientCursor(connection)  # one message, and so one transaction
    cursor.execute(b"\n;\n".join([*before, limit(timeout), query]), params)
    while cursor.nextset():
        pass
    return cursor.fetchall() if cursor.rownumber is not None else []


class _Pooled(ConfirmedConnection):
    """Its pool gets the connection that was opened to try the address, and then new ones."""

    @classmethod
    def connect(cls, conninfo: str = "", *, opened: list[Self], **settings: Any) -> Self:  # type: ignore[override]
        return opened.pop() if opened else super().connect(conninfo, **settings)


class SyncPool(Bounded):
    """`Pool` for code without an event loop."""

    _pool: ConnectionPool[Connection[Any]] | None = None

    def __init__(self, *given: Any, **options: Any) -> None:
        self._opening = threading.Lock()  # handlers in threads come all at once
        self._afresh: WeakKeyDictionary[Connection[Any], bytes] = WeakKeyDictionary()
        super().__init__(*given, **options)

    def begin_anew(self) -> object:
        parents, self._pool = self._pool, None
        self._opening = threading.Lock()
        return parents

    def _configure(self, connection: Connection[Any]) -> None:
        try:
            direct = make_ready_sync(connection, self._prepare, ours=self._ours)
            if direct and not self._ours:
                self._afresh[connection] = b";".join([*afresh_sync(connection, ours=False), *LEFT_BEHIND])
            self._unready = ""
        except BaseException as error:
            connection.close()  # the pool forgets it, and does not close it
            self._unready = describe(error)
            raise

    def _reset(self, connection: Connection[Any]) -> None:
        if afresh := self._afresh.get(connection):
            connection.execute(afresh)

    def close(self) -> None:
        with self._opening:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    @contextmanager
    def use(self) -> Iterator[Connection[Any]]:
        pool = self._open()
        connection = self._take(pool, elapsed())
        try:
            yield connection
        except errors.ReadOnlySqlTransaction:
            connection.close()
            raise
        finally:
            pool.putconn(connection)

    def _take(self, pool: ConnectionPool[Connection[Any]], since: float) -> Connection[Any]:
        while True:
            try:
                connection = pool.getconn(timeout=min(SLICE, self._wait))
            except PoolTimeout as error:
                self._check_waited(since, error)
                continue
            if not went_away(connection):
                self._report(since, got=True)
                return connection
            connection.close()
            pool.putconn(connection)

    def fetch(self, query: bytes, params: Mapping[str, Any] | None = None) -> Fetched:
        """`Pool.fetch` for sync callers."""
        with self.use() as connection:
            return repeated_sync(lambda: fetch_sync(connection, query, params), possible=alone(connection))

    def fetch_records(self, query: bytes, params: Mapping[str, Any]) -> list[Record]:
        with self.use() as connection:
            return repeated_sync(lambda: fetch_records_sync(connection, query, params), possible=alone(connection))

    @contextmanager
    def extra(self) -> Iterator[Connection[Any]]:
        with connecting(self._url):
            connection = ConfirmedConnection.connect(**self._settings)
        with connection:
            yield connection

    def _open(self) -> ConnectionPool[Connection[Any]]:
        with self._opening:
            if self._pool is None:
                with connecting(self._url):
                    first = _Pooled.connect(opened=[], **self._settings)
                    try:
                        check_array_nulls(first.execute(ARRAY_NULLS).fetchone())
                    except BaseException:
                        first.close()
                        raise
                self._pool = ConnectionPool(
                    connection_class=_Pooled,
                    open=True,
                    configure=self._configure,
                    reset=None if self._ours else self._reset,
                    name="trueup-sync",
                    **self._bounds_with(first),
                )
            return self._pool

    @contextmanager
    def transaction(self) -> Iterator[Connection[Any]]:
        with self.use() as connection:
            connection.isolation_level = IsolationLevel.READ_COMMITTED
            with connection.transaction():
                yield connection


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
