"""The connections that handlers and callers share for short statements: enqueueing, progress, reading.

Two habits of psycopg's pools are worked around. A connection that fails their `check` goes back among the others unless it
is closed, and each failure doubles a pause; so this module checks the socket itself. And they reconnect with growing pauses
while the server is unreachable, and restart that only for a caller that begins to wait; so they are configured to give up soon,
and waiting is done in slices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Self

from psycopg import AsyncConnection, IsolationLevel, errors
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from trueup.clock import elapsed
from trueup.dsn import mask
from trueup.errors import DatabaseUnavailable
from trueup.store.db import message
from trueup.store.db.confirmed import AsyncConfirmedConnection
from trueup.store.db.connect import (
    ARRAY_NULLS,
    LEFT_BEHIND,
    begin_afresh,
    check_array_nulls,
    closed_unless_usable,
    connecting,
    connection_settings,
    leads_to_the_server,
    make_ready,
    open_connection,
    unaltered,
    went_away,
)
from trueup.store.db.forked import begins_anew_when_forked
from trueup.store.db.message import Conversation, Fetched, Part
from trueup.store.db.own_connection import (
    Answered,
    Record,
    conversation,
    fetch,
    fetch_records,
    fetch_steered,
    repeat,
)
from trueup.store.db.repeating import alone, repeated
from trueup.texts import describe

OURS = "pool"  # the part that sends only trueup's own statements; users' transactions have connections of their own
WAIT = timedelta(seconds=30)  # until a caller that waits for a connection gets DatabaseUnavailable
SLICE = 2.0  # seconds of waiting after which the pool is asked anew
LOG_EVERY = 60.0  # seconds between equal log records of psycopg's pools about ours
POOL_NAMES = frozenset({"trueup", "trueup-sync"})
MIN_WAIT = 0.05  # seconds that a caller has waited before it is reported
GIVE_UP = 1.0  # seconds after which a try to connect is not repeated by itself


Waited = Callable[[float, bool], None]
"""Called with the seconds that a caller waited for a connection, and whether it got one."""


class Bounded:
    """The base of `Pool` and of `blocking.SyncPool`."""

    def __init__(
        self,
        url: str,
        size: int,
        connect_timeout: timedelta,
        *,
        prepare: str = "auto",
        context: Any = None,
        part: str = OURS,
        wait: timedelta = WAIT,
        on_wait: Waited | None = None,
    ) -> None:
        self._url = url
        self._settings = connection_settings(url, part, connect_timeout, prepare=prepare == "true")
        self._ours = part == OURS
        self._settings["context"] = context
        self._bounds: dict[str, Any] = {
            "min_size": 0,
            "max_size": size,
            "reconnect_timeout": GIVE_UP,
            "max_idle": 60,
        }
        self._prepare = prepare
        self._wait = wait.total_seconds()
        self._on_wait = on_wait
        self._unready = ""  # why the latest connection could not be used
        begins_anew_when_forked(self)

    def begin_anew(self) -> object:
        raise NotImplementedError

    def _bounds_with(self, first: object) -> dict[str, Any]:
        """What a pool is made with whose first connection is there already."""
        return {**self._bounds, "kwargs": {**self._settings, "opened": [first]}}

    def _check_waited(self, since: float, error: PoolTimeout) -> None:
        """Raises DatabaseUnavailable when a caller has waited for long enough."""
        if elapsed() < since + self._wait:
            return
        self._report(since, got=False)
        what = "it is unreachable, or all pool_size connections are in use"
        said = f"it is reachable, but {self._unready}" if self._unready else what
        raise DatabaseUnavailable(
            f"no connection to {mask(self._url)} within {self._wait:g} s (pool_timeout): {said}: {describe(error)}"
        ) from error

    def _report(self, since: float, *, got: bool) -> None:
        if self._on_wait is not None and (waited := elapsed() - since) >= MIN_WAIT:
            self._on_wait(waited, got)


class _Pooled(AsyncConfirmedConnection):
    """Its pool gets the connection that was opened to try the address, and then new ones."""

    @classmethod
    async def connect(cls, conninfo: str = "", *, opened: list[Self], **settings: Any) -> Self:  # type: ignore[override]
        return opened.pop() if opened else await super().connect(conninfo, **settings)


_AsyncPool = AsyncConnectionPool[AsyncConnection[Any]]


def _tasks(pool: _AsyncPool) -> list[asyncio.Task[None]]:
    """Those that make its connections; psycopg_pool has no public name for them."""
    return [each for each in getattr(pool, "_workers", ()) if isinstance(each, asyncio.Task)]


async def _closed(pool: _AsyncPool) -> None:
    if any(map(asyncio.Task.done, _tasks(pool))):  # a cancelled one would cancel its closing
        pool._workers[:] = [each for each in _tasks(pool) if not each.done()]
        if isinstance(pool._sched_runner, asyncio.Task) and pool._sched_runner.done():
            pool._sched_runner = None
    await pool.close()


class Pool(Bounded):
    """An async pool that opens on first use and hands out only connections the server has not closed."""

    _pool: AsyncConnectionPool[AsyncConnection[Any]] | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def begin_anew(self) -> object:
        parents, self._pool, self._loop = (self._pool, self._loop), None, None
        return parents

    async def open(self) -> None:
        """Connect once, so that a wrong address is an error here and not later. Does nothing when already open."""
        if not self._is_open():
            async with self.use():
                pass

    def _is_open(self) -> bool:
        return self._pool is not None and self._loop is asyncio.get_running_loop()

    async def _connect(self) -> None:
        with connecting(self._url):
            first = await _Pooled.connect(opened=[], **self._settings)
            async with closed_unless_usable(first):
                check_array_nulls(await (await first.execute(ARRAY_NULLS)).fetchone())
        if self._is_open():
            await first.close()
            return  # another task was quicker
        pool: AsyncConnectionPool[AsyncConnection[Any]] = AsyncConnectionPool(
            connection_class=_Pooled,
            open=False,
            configure=self._configure,
            reset=None if self._ours else self._reset,
            name="trueup",
            **self._bounds_with(first),
        )
        self._pool, self._loop = pool, asyncio.get_running_loop()
        await pool.open()

    async def _configure(self, connection: AsyncConnection[Any]) -> None:
        try:
            async with closed_unless_usable(connection):  # the pool forgets it, and does not close it
                direct = await make_ready(connection, self._prepare, ours=self._ours)
                if direct and not self._ours:
                    await begin_afresh(connection, direct=True, ours=False)
            self._unready = ""
        except Exception as error:
            self._unready = describe(error)
            raise

    @staticmethod
    async def _reset(connection: AsyncConnection[Any]) -> None:
        """Undo what a user's transaction has set for the session or left there; the pool calls this beside its callers."""
        if message.is_as_opened(connection):
            direct = message.afresh(connection)
            await message.send(connection, *(LEFT_BEHIND if direct else ()))
        else:
            await connection.close()

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await _closed(pool)

    def use(self, since: float | None = None) -> _Use:
        """A connection for a moment. `since` is when the caller began to wait, if that was earlier."""
        return _Use(self, since)

    async def _opened(self) -> AsyncConnectionPool[AsyncConnection[Any]]:
        if not self._is_open():
            await self._connect()  # a pool belongs to its loop: a second asyncio.run() gets one of its own
        assert self._pool is not None
        return self._pool

    async def _take(self, pool: _AsyncPool, since: float) -> tuple[_AsyncPool, AsyncConnection[Any]]:
        """A connection that the server has not closed, and its pool. Raises DatabaseUnavailable when none can be had."""
        while True:
            try:
                connection = await pool.getconn(timeout=min(SLICE, self._wait))
            except PoolTimeout as error:
                self._check_waited(since, error)
                if any(map(asyncio.Task.done, _tasks(pool))):
                    pool = await self._replace(pool)
                continue
            if not went_away(connection):
                self._report(since, got=True)
                return pool, connection
            await connection.close()
            await pool.putconn(connection)

    async def _replace(self, crippled: _AsyncPool) -> _AsyncPool:
        """The tasks that make its connections were cancelled by something else in this process: it would never get another one."""
        if self._pool is crippled:
            self._pool = None
            await _closed(crippled)
        if self._pool is None:
            await self._connect()
        assert self._pool is not None
        return self._pool

    def overdue(self, since: float) -> bool:
        """Whether a caller that has waited since then would be refused at the next check."""
        return elapsed() + SLICE > since + self._wait

    @asynccontextmanager
    async def extra(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection beyond the pool's size, for callers that already have one and must not wait for another."""
        with connecting(self._url):
            connection = await AsyncConfirmedConnection.connect(**self._settings)
        async with connection:
            yield connection

    async def fetch(self, query: bytes, params: Mapping[str, Any] | None = None) -> Fetched:
        """One statement, in a transaction of its own."""
        async with self.use() as connection:
            return await repeated(lambda: fetch(connection, query, params), possible=alone(connection))

    async def fetch_records(self, query: bytes, params: Mapping[str, Any]) -> list[Record]:
        async with self.use() as connection:
            return await repeated(lambda: fetch_records(connection, query, params), possible=alone(connection))

    async def fetch_kept(self, query: bytes, params: Mapping[str, Any]) -> Fetched:
        return await self.fetch(query, params)

    async def fetch_steered(self, steer: bytes, query: bytes, params: Mapping[str, Any]) -> Fetched:
        async with self.use() as connection:
            return await repeated(lambda: fetch_steered(connection, steer, query, params), possible=alone(connection))

    @asynccontextmanager
    async def conversation(self) -> AsyncIterator[Conversation]:
        async with self.use() as connection, conversation(connection) as talk:
            yield talk

    async def repeat(self, times: int, parts: Sequence[Part], answered: Answered) -> None:
        async with self.use() as connection:
            await repeat(connection, times, parts, answered)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A transaction for trueup's own statements. Each statement has its own snapshot, whatever the server's default, because rows
        are locked first and read afterwards. Users' transactions are begun elsewhere."""
        async with self.use() as connection:
            await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
            async with connection.transaction():
                yield connection

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Begun]:
        """One transaction; every statement on the yielded object is part of it."""
        async with self.transaction() as connection:
            yield Begun(connection)


class _Use:
    """What `Pool.use` returns. A class, because a generator takes twice the time, and each enqueue has one."""

    def __init__(self, pool: Pool, since: float | None) -> None:
        self._pool = pool
        self._since = since

    async def __aenter__(self) -> AsyncConnection[Any]:
        since = elapsed() if self._since is None else self._since
        self._opened, self._connection = await self._pool._take(await self._pool._opened(), since)
        return self._connection

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None and issubclass(kind, errors.ReadOnlySqlTransaction):
                await self._connection.close()  # its session stays read-only when the database takes writes again
        finally:
            await self._opened.putconn(self._connection)


class Begun:
    """One connection in a transaction, behind the interface of the pool."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection

    async def fetch(self, query: bytes, params: Mapping[str, Any] | None = None) -> Fetched:
        return await fetch(self._connection, query, params)

    async def fetch_records(self, query: bytes, params: Mapping[str, Any]) -> list[Record]:
        return await fetch_records(self._connection, query, params)

    async def fetch_kept(self, query: bytes, params: Mapping[str, Any]) -> Fetched:
        return await self.fetch(query, params)

    async def fetch_steered(self, steer: bytes, query: bytes, params: Mapping[str, Any]) -> Fetched:
        await self.fetch(steer)
        return await self.fetch(query, params)

    @asynccontextmanager
    async def conversation(self) -> AsyncIterator[Conversation]:
        async with conversation(self._connection) as talk:
            yield talk

    async def repeat(self, times: int, parts: Sequence[Part], answered: Answered) -> None:
        await repeat(self._connection, times, parts, answered)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        async with self._connection.transaction():
            yield self._connection


class HandlerConnections:
    """Connections for handlers' transactions: as many as run at a time, opened when needed, each given to one at a time.

    No caller waits here, so nothing is queued: the limit on running handlers also limits the connections. A pool would cost as
    much time as the transaction.
    """

    def __init__(self, url: str, connect_timeout: timedelta, *, prepare: str = "auto", context: Any = None) -> None:
        self._settings = connection_settings(url, "rows", connect_timeout)
        self._prepare = prepare
        self._settings["context"] = context
        self._idle: list[AsyncConnection[Any]] = []
        self._closed = False

    async def take(self) -> AsyncConnection[Any]:
        """A connection in no transaction. It is given back by `give`."""
        while self._idle:
            connection = self._idle.pop()
            if not went_away(connection):
                return connection
            await connection.close()
        connection = await open_connection(self._settings)
        async with closed_unless_usable(connection):
            direct = await leads_to_the_server(connection)
            if (direct and self._prepare == "auto") or self._prepare == "true":
                message.keep(connection)
            await begin_afresh(connection, direct=direct, ours=False)
        return connection

    async def give(self, connection: AsyncConnection[Any]) -> None:
        """One that is in the middle of something is closed."""
        idle = connection.info.transaction_status == TransactionStatus.IDLE
        if idle and not self._closed and message.is_as_opened(connection):
            self._idle.append(connection)
        else:
            await connection.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        connection = await self.take()
        try:
            with unaltered(connection):
                async with connection.transaction():
                    yield connection
        finally:
            await self.give(connection)

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            await self._idle.pop().close()


class _OncePerMinute(logging.Filter):
    """Lets through one record of a kind per minute: psycopg's pools log each try of ours to connect."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not isinstance(record.args, tuple) or not POOL_NAMES.intersection(map(str, record.args)):
            return True  # of a pool of the application's own
        now, before = elapsed(), self._logged_at.get(str(record.msg))
        if before is not None and now - before < LOG_EVERY:
            return False
        self._logged_at[str(record.msg)] = now
        return True


logging.getLogger("psycopg.pool").addFilter(_OncePerMinute())
