"""Statements that the server keeps parsed and planned, called from within a message of several statements.

What psycopg prepares goes out one statement at a time, or through a pipeline, which takes five times as much of this process'
time. A message of several statements takes the values as part of its text; `EXECUTE` in it finds the plan all the same.
Only where `prepare=True` allows it: behind a pooler the next transaction may be on a connection that knows nothing of it.
"""

from __future__ import annotations

import itertools
import re
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import AsyncClientCursor, AsyncConnection
from psycopg.pq import TransactionStatus

_PLACEHOLDER = re.compile(rb"%\((\w+)\)s|%%")

_numbers = itertools.count(1)
_known: WeakKeyDictionary[AsyncConnection[Any], dict[bytes, bytes]] = WeakKeyDictionary()


async def send(
    connection: AsyncConnection[Any], before: bytes, query: bytes, after: bytes, params: Any
) -> AsyncClientCursor[Any]:
    """Send a statement in one message with others, which must not be prepared; all results are on the cursor.

    After an error the connection may be in a transaction that has failed.
    """
    cursor = AsyncClientCursor(connection)
    if connection.prepare_threshold is None:
        await cursor.execute(b"%b%b;%b" % (before, query, after), params)
        return cursor
    known = _known.setdefault(connection, {})
    if query not in known:
        # In a message of its own: should the other statements fail, it is known whether this one was kept.
        name, call = _call(query)
        prepare = b"PREPARE %b AS %b" % (name, _numbered(query))
        await AsyncClientCursor(connection).execute(prepare)
        known[query] = call
    await cursor.execute(b"%b%b;%b" % (before, known[query], after), params)
    return cursor


async def roll_back(connection: AsyncConnection[Any]) -> None:
    """End a transaction that a message has left failed."""
    if connection.info.transaction_status == TransactionStatus.INERROR:
        await connection.rollback()


def _names(query: bytes) -> list[bytes]:
    return list(dict.fromkeys(found[1] for found in _PLACEHOLDER.finditer(query) if found[1] is not None))


def _numbered(query: bytes) -> bytes:
    """With $1, $2, … for its parameters."""
    numbers = {name: number for number, name in enumerate(_names(query), 1)}
    return _PLACEHOLDER.sub(lambda found: b"%" if found[1] is None else b"$%d" % numbers[found[1]], query)


def _call(query: bytes) -> tuple[bytes, bytes]:
    """The name it is prepared under, and the statement that calls it."""
    name = b"trueup_%d" % next(_numbers)
    values = b", ".join(b"%%(%b)s" % each for each in _names(query))
    return name, b"EXECUTE %b%b" % (name, b" (%b)" % values if values else b"")
