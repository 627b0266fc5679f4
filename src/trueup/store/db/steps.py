"""Statements in sequence, written once for async and sync callers.

A sequence is a generator that yields statements and is sent their rows; `drive` and `drive_sync` run it on a connection.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.rows import tuple_row

from trueup.store.db.asyncpg import AsyncpgConnection
from trueup.store.db.callers import in_pipeline
from trueup.store.db.connect import ON_REQUEST
from trueup.store.db.message import Fetched
from trueup.store.db.repeating import alone, repeated, repeated_sync

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    query: bytes
    params: dict[str, Any]
    often: bool = False  # so that it is worth preparing


Steps = Generator[Ask, Fetched, T]


async def drive(steps: Steps[T], connection: AsyncConnection[Any] | AsyncpgConnection) -> T:
    try:
        ask = next(steps)
        while True:
            ask = steps.send(await fetch(connection, ask.query, ask.params, often=ask.often))
    except StopIteration as done:
        result: T = done.value
        return result


def drive_sync(steps: Steps[T], connection: Connection[Any]) -> T:
    try:
        ask = next(steps)
        while True:
            ask = steps.send(fetch_sync(connection, ask.query, ask.params, often=ask.often))
    except StopIteration as done:
        result: T = done.value
        return result


async def fetch(
    connection: AsyncConnection[Any] | AsyncpgConnection,
    query: bytes,
    params: Mapping[str, Any],
    *,
    often: bool = False,
) -> Fetched:
    """Tuples, independent of the connection's settings: it may be the caller's, with its own row and cursor factories.

    In pipeline mode there is no answer before a synchronisation, which leaving the inner block brings.
    """
    if isinstance(connection, AsyncpgConnection):
        return await connection.fetch(query, params)
    cursor = AsyncCursor(connection, row_factory=tuple_row)
    if in_pipeline(connection):
        async with connection.pipeline():
            await cursor.execute(query, params)
    else:
        prepare = _prepare(connection, often)
        await repeated(lambda: cursor.execute(query, params, prepare=prepare), possible=alone(connection))
    return await cursor.fetchall() if cursor.rownumber is not None else []


def fetch_sync(connection: Connection[Any], query: bytes, params: Mapping[str, Any], *, often: bool = False) -> Fetched:
    cursor = Cursor(connection, row_factory=tuple_row)
    if in_pipeline(connection):
        with connection.pipeline():
            cursor.execute(query, params)
    else:
        prepare = _prepare(connection, often)
        repeated_sync(lambda: cursor.execute(query, params, prepare=prepare), possible=alone(connection))
    return cursor.fetchall() if cursor.rownumber is not None else []


def _prepare(connection: AsyncConnection[Any] | Connection[Any], often: bool) -> bool | None:
    """On connections of ours what is asked for; on those of callers what they have set."""
    return often if connection.prepare_threshold == ON_REQUEST else None
