"""A separate connection for one part of a process: opened when first needed, reopened after it broke.

Parts that must not wait for one another (claiming, finishing, housekeeping) each have one, so that handlers which take every
connection of the pool cannot stop them. The server ends a statement that runs, or waits for a lock, for a little less than
`timeout`. If it does not answer by then, the statement is cancelled and the socket is shut, which is the only way out of a
server that accepts bytes and answers nothing. So there is never more than one statement per connection on the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, IsolationLevel
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, tuple_row

from trueup.clock import elapsed
from trueup.events import DatabaseLost, DatabaseRestored, Events, StatementTimedOut
from trueup.store.db import message
from trueup.store.db.connect import (
    PID,
    RETRYABLE,
    TIMED_OUT,
    abort,
    begin_afresh,
    closed_unless_usable,
    connecting_takes,
    connection_settings,
    give_up,
    leads_to_the_server,
    limit,
    open_connection,
    refused,
)
from trueup.store.db.message import BEGIN, Answers, Conversation, Fetched, Part, Query
from trueup.texts import describe

Answered = Callable[[Answers], None]
Record = dict[str, Any]  # a row, by the names of its columns


class OwnConnection:
    def __init__(
        self,
        url: str,
        part: str,
        events: Events,
        connect_timeout: timedelta,
        timeout: timedelta,
        *,
        prepare: str = "false",
        context: Any = None,
        lock_timeout: timedelta | None = None,
        server_timeout: timedelta | None = None,
        for_rows: bool = False,
    ) -> None:
        """`prepare` says whether the server keeps statements that are sent in messages; "auto": unless there is a pooler in between.

        With `for_rows`, steered statements over many rows of users' tables are not kept, because a generic plan is bad for them, and
        session settings made by users' triggers and functions are undone. With `server_timeout`, the server ends statements sooner than
        `timeout` requires.
        """
        self.part = part
        self._prepare = prepare
        self._for_rows = for_rows
        self._settings = connection_settings(url, part, connect_timeout)
        self._settings["context"] = context
        self._connect_within = connecting_takes(self._settings)
        self._timeout = timeout.total_seconds()
        self._limit = limit(min(timeout, server_timeout or timeout), lock_timeout)
        self._events = events
        self._lock = asyncio.Lock()
        self._connection: AsyncConnection[Any] | None = None
        self._lost_at: float | None = None
        self._timed_out = False

    async def open(self) -> None:
        """Connect before it is needed: later, other clients may have taken all connections that the server allows.

        A pooler lets clients in before it has a server for them; only an answer shows that there is one.
        """
        async with asyncio.timeout(self._connect_within), self.use() as connection:
            await connection.execute(PID)

    async def fetch(self, query: bytes, params: Mapping[str, Any] | None = None) -> Fetched:
        """Run one statement in a transaction of its own and return its rows."""
        async with self.use() as connection:
            # Statements of one message are one transaction, unless they say otherwise.
            text = query if params is None else message.filled(connection, Query(query, params))
            return (await message.send(connection, self._limit, text)).check().rows(1)

    async def fetch_records(self, query: bytes, params: Mapping[str, Any]) -> list[Record]:
        async with self.transaction() as connection:
            return await fetch_records(connection, query, params)

    async def fetch_kept(self, query: bytes, params: Mapping[str, Any]) -> Fetched:
        """`fetch` with a statement that the server keeps prepared if it may, for looks that are repeated all the time."""
        async with self.use() as connection:
            answers = await message.send(connection, BEGIN, self._limit, Query(query, params), b"COMMIT")
            if answers.error is not None:
                await message.roll_back(connection)
            return answers.check().rows(2)

    async def fetch_steered(self, steer: bytes, query: bytes, params: Mapping[str, Any]) -> Fetched:
        """Run one statement after another that sets its planner, in one transaction and one round trip."""
        async with self.use() as connection:
            if self._for_rows:
                text = message.filled(connection, Query(query, params))
                return await fetch_steered(connection, steer, text, None, self._limit)
            return await fetch_steered(connection, steer, query, params, self._limit)

    async def repeat(self, times: int, parts: Sequence[Part], answered: Answered) -> None:
        """Send statements a number of times in one message; completed answers are reported before an error is raised."""
        async with self.use() as connection:
            await repeat(connection, times, parts, answered)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        async with self.use() as connection, connection.transaction():
            (await message.send(connection, *message.afresh(connection), self._limit)).check()
            yield connection

    @asynccontextmanager
    async def conversation(self) -> AsyncIterator[Conversation]:
        async with self.use() as connection, conversation(connection, self._limit) as talk:
            yield talk

    @asynccontextmanager
    async def use(self) -> AsyncIterator[AsyncConnection[Any]]:
        """The connection, exclusively. After an error that may have broken it, it is closed, and opened anew next time."""
        async with self._lock:
            watch: _Watch | None = None
            try:
                connection = self._connection or await self._open()
                watch = _Watch(connection, self._timeout)
                yield connection
                # It was answered just when its time was up; or a trigger has set another encoding.
                if not watch.usable or not message.is_as_opened(connection):
                    await self.drop()
            except RETRYABLE as error:
                if refused(error) and watch is not None and watch.usable:
                    self._refused(error)
                else:
                    await self._broke(error)
                raise
            except asyncio.CancelledError:
                await self.drop()  # a statement may still be under way on it
                raise
            finally:
                if watch is not None:
                    watch.end()
            self._works()

    async def _open(self) -> AsyncConnection[Any]:
        async with asyncio.timeout(self._connect_within):
            connection = await open_connection(self._settings)
        async with closed_unless_usable(connection):
            # Locking first and reading second needs a snapshot per statement, independent of the server's default.
            await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
            direct = await leads_to_the_server(connection, ours=True)
            if (direct and self._prepare == "auto") or self._prepare == "true":
                message.keep(connection)
            if self._for_rows:
                await begin_afresh(connection, direct=direct, ours=True)
        self._connection = connection
        return connection

    async def _broke(self, error: BaseException) -> None:
        await self.drop()
        if self._lost_at is None:
            self._lost_at = elapsed()
            self._events.emit(DatabaseLost(self.part, describe(error)))

    def _refused(self, error: BaseException) -> None:
        """The server has ended the statement. Emitted once until one succeeds."""
        if isinstance(error, TIMED_OUT) and not self._timed_out:
            self._timed_out = True
            self._events.emit(StatementTimedOut(self.part, describe(error)))

    def _works(self) -> None:
        self._timed_out = False
        if self._lost_at is not None:
            self._events.emit(DatabaseRestored(self.part, round(elapsed() - self._lost_at, 3)))
            self._lost_at = None

    async def drop(self) -> None:
        """Close the connection immediately, without waiting for the server."""
        connection, self._connection = self._connection, None
        if connection is not None:
            abort(connection)
            await connection.close()

    async def close(self) -> None:
        async with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.close()


class _Watch:
    """Gives up on what is under way on a connection when its time is up."""

    def __init__(self, connection: AsyncConnection[Any], seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._give_up)
        self._giving_up: asyncio.Task[None] | None = None

    def _give_up(self) -> None:
        self._giving_up = asyncio.create_task(give_up(self._connection, self._seconds))

    @property
    def usable(self) -> bool:
        """Whether the connection can be used again: it is in no transaction, and no cancel request is on its way to it."""
        return self._giving_up is None and self._connection.info.transaction_status == TransactionStatus.IDLE

    def end(self) -> None:
        self._timer.cancel()
        if self._giving_up is not None:
            self._giving_up.cancel()


def milliseconds(duration: timedelta) -> dict[str, int]:
    """The parameter of session/bound."""
    return {"milliseconds": round(duration.total_seconds() * 1000)}


async def fetch_steered(
    connection: AsyncConnection[Any], steer: bytes, query: bytes, params: Mapping[str, Any] | None, *before: Part
) -> Fetched:
    """The rows of a statement that runs after others which set its limits and its planner, for this transaction only.

    All goes in one message, and with it what begins and ends the transaction.
    """
    answers = await message.send(
        connection, message.BEGIN, *before, steer, query if params is None else Query(query, params), b"COMMIT"
    )
    if answers.error is not None:
        await message.roll_back(connection)
    return answers.check().rows(2 + len(before))


@asynccontextmanager
async def conversation(connection: AsyncConnection[Any], *first: bytes) -> AsyncIterator[Conversation]:
    """Several messages in one transaction, which ends with its last message, or is rolled back."""
    try:
        yield Conversation(connection, first=first)
    except Exception:
        if not connection.closed:
            await connection.rollback()
        raise


async def repeat(connection: AsyncConnection[Any], times: int, parts: Sequence[Part], answered: Answered) -> None:
    answers = await message.repeat(connection, times, *parts)
    answered(answers)
    answers.check()


async def fetch(connection: AsyncConnection[Any], query: bytes, params: Mapping[str, Any] | None = None) -> Fetched:
    """Tuples, also where a user's code has set other factories on the connection."""
    cursor = await AsyncCursor(connection, row_factory=tuple_row).execute(query, params)
    return await cursor.fetchall() if cursor.rownumber is not None else []


async def fetch_records(connection: AsyncConnection[Any], query: bytes, params: Mapping[str, Any]) -> list[Record]:
    cursor = await connection.cursor(row_factory=dict_row).execute(query, params)
    return await cursor.fetchall()
