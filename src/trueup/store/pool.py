"""The connections handlers and callers share: for enqueueing, for `ctx.transaction()`, for reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from trueup.dsn import mask
from trueup.errors import DatabaseUnavailable
from trueup.store.connect import connection_settings, went_away
from trueup.store.line import Rows, fetch


async def _check(connection: AsyncConnection[Any]) -> None:
    if went_away(connection):
        raise psycopg.OperationalError("the server closed this connection")


def _check_sync(connection: Connection[Any]) -> None:
    if went_away(connection):
        raise psycopg.OperationalError("the server closed this connection")


class Pool:
    """An async pool that opens on first use and hands out only connections the server has not closed."""

    def __init__(self, url: str, size: int, connect_timeout: timedelta) -> None:
        self._settings = connection_settings(url, "pool", connect_timeout)
        self._size = size
        self._timeout = connect_timeout.total_seconds()
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        """Connect once, so that a wrong address is an error here and not later. Does nothing when already open."""
        loop = asyncio.get_running_loop()
        if self._pool is not None and self._loop is loop:
            return
        await (await AsyncConnection.connect(**self._settings)).close()
        pool: AsyncConnectionPool[AsyncConnection[Any]] = AsyncConnectionPool(
            kwargs=self._settings,
            min_size=0,
            max_size=self._size,
            open=False,
            check=_check,
            timeout=30,
            max_idle=60,
            name="trueup",
        )
        await pool.open()
        self._pool, self._loop = pool, loop

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[AsyncConnection[Any]]:
        if self._pool is None or self._loop is not asyncio.get_running_loop():
            await self.open()  # a pool belongs to its loop: a second asyncio.run() gets one of its own
        assert self._pool is not None
        try:
            connection = await self._pool.getconn()
        except PoolTimeout as error:
            raise DatabaseUnavailable(f"no connection within 30 s: {mask(str(error))}") from None
        try:
            yield connection
        finally:
            await self._pool.putconn(connection)

    async def fetch(self, query: bytes, params: Mapping[str, Any] | None = None) -> Rows:
        async with self.use() as connection:
            return await fetch(connection, query, params)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        async with self.use() as connection, connection.transaction():
            yield connection


class SyncPool:
    """The same for code without an event loop."""

    def __init__(self, url: str, size: int, connect_timeout: timedelta) -> None:
        self._settings = connection_settings(url, "pool", connect_timeout)
        self._size = size
        self._pool: ConnectionPool[Connection[Any]] | None = None

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    @contextmanager
    def use(self) -> Iterator[Connection[Any]]:
        if self._pool is None:
            Connection.connect(**self._settings).close()
            self._pool = ConnectionPool(
                kwargs=self._settings,
                min_size=0,
                max_size=self._size,
                open=True,
                check=_check_sync,
                timeout=30,
                max_idle=60,
                name="trueup-sync",
            )
        try:
            connection = self._pool.getconn()
        except PoolTimeout as error:
            raise DatabaseUnavailable(f"no connection within 30 s: {mask(str(error))}") from None
        try:
            yield connection
        finally:
            self._pool.putconn(connection)

    @contextmanager
    def transaction(self) -> Iterator[Connection[Any]]:
        with self.use() as connection, connection.transaction():
            yield connection


def fetch_sync(connection: Connection[Any], query: bytes, params: Mapping[str, Any] | None = None) -> Rows:
    cursor = connection.execute(query, params)
    return cursor.fetchall() if cursor.description is not None else []
