"""Receiving NOTIFY on a separate connection.

Notifications only wake workers, so losing one costs time, never work. Behind a transaction pooler LISTEN seems to succeed and
nothing arrives; it would stay with a session that other clients get next. So the pooler is recognised before LISTEN is sent, and a
notification to ourselves tells whether it works in all other cases.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

from psycopg import AsyncConnection, sql

from trueup.store.db.confirmed import with_addresses
from trueup.store.db.connect import PID, abort, connecting_takes, connection_settings, leads_to_the_server
from trueup.store.db.load import Statements

UNREADABLE = "(bytes that are not UTF-8)"
# A database in SQL_ASCII lets any bytes through. For a client in UTF8 its server checks them, and hangs up on the listener.
ANY_BYTES = b"set client_encoding to sql_ascii"
MAX_LOOKS = 5  # at the session of a client behind a pooler
PING_WITHIN = 3.0  # seconds; a NOTIFY takes a millisecond, a busy server some more


class NotifyConnection:
    def __init__(self, url: str, statements: Statements, connect_timeout: timedelta) -> None:
        self._settings = connection_settings(url, "listen", connect_timeout)
        self._statements = statements
        self._within = 2 * connecting_takes(self._settings) + PING_WITHIN  # two connections, and two statements
        self._connection: AsyncConnection[Any] | None = None

    async def open(self) -> bool:
        """Listen. False when notifications do not arrive although the statements succeed.

        Raises TimeoutError when a server or a pooler accepts the connection and then does not answer.
        """
        async with asyncio.timeout(self._within):
            return await self._open()

    async def _open(self) -> bool:
        connection = self._connection = await AsyncConnection.connect(**await with_addresses(self._settings))
        await leads_to_the_server(connection)  # before it is idle
        if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
            await connection.execute(ANY_BYTES)
        ping = f"ping {uuid4()}"
        async with await AsyncConnection.connect(**await with_addresses(self._settings)) as other:
            backend = await _backend(connection)
            if backend != connection.info.backend_pid and await _is_lent(backend, connection, other):
                return False
            async with connection.transaction():
                if await _backend(connection) != backend:
                    return False
                await connection.execute(sql.SQL("listen {}").format(sql.Identifier(self._statements.channel)))
            await other.execute(
                self._statements["session/notify"], {"channel": self._statements.channel, "payload": ping}
            )
        deadline = asyncio.get_running_loop().time() + PING_WITHIN
        while (left := deadline - asyncio.get_running_loop().time()) > 0:
            async for notification in connection.notifies(timeout=left, stop_after=1):
                if notification.payload == ping:
                    return True
        return False

    async def heard(self) -> AsyncIterator[str]:
        """Payloads as they come, until the connection breaks or is closed."""
        assert self._connection is not None
        while True:
            try:
                async for notification in self._connection.notifies():
                    if not notification.payload.startswith("ping "):
                        yield notification.payload
                return
            except UnicodeDecodeError:  # see ANY_BYTES
                yield UNREADABLE

    def cut(self) -> None:
        """Make the task that opens it or listens fail; that task closes it. Closing a connection while it is in use would crash."""
        if self._connection is not None:
            abort(self._connection)

    async def close(self) -> None:
        """Called by the task that has opened it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            abort(connection)
            await connection.close()


async def _is_lent(backend: int, connection: AsyncConnection[Any], other: AsyncConnection[Any]) -> bool:
    """Whether a pooler lends the session of one client to the next one as soon as its transaction has ended.

    PgBouncer lends the session that was used last. Another client may be faster, so it is asked several times.
    """
    for _ in range(MAX_LOOKS):
        async with other.transaction():
            if await _backend(other) == backend or await _backend(connection) != backend:
                return True
    return False


async def _backend(connection: AsyncConnection[Any]) -> int:
    """The server process that answers. A pooler tells its clients numbers of its own: see connect.leads_to_the_server."""
    row = await (await connection.execute(PID)).fetchone()
    assert row is not None
    return int(row[0])
