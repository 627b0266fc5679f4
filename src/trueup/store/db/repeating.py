"""Repeats a statement that the server asks to repeat: a deadlock, or a serialization failure.

Where serializable is a server's default, any statement may get one. A statement that is a transaction of its own has been rolled back
whole, so it is simply sent again. Inside a transaction only its owner can repeat what came before: a transaction of several
statements that is ours from its beginning to its end is repeated as a whole.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from psycopg import AsyncConnection, Connection, errors
from psycopg.pq import TransactionStatus

ASKS_TO_REPEAT = (errors.SerializationFailure, errors.DeadlockDetected)
PAUSES = (0.005, 0.01, 0.02, 0.04, 0.08)  # seconds; after the last one the caller gets the error

T = TypeVar("T")


def _always() -> bool:
    return True


async def repeated(
    once: Callable[[], Awaitable[T]],
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    possible: Callable[[], bool] = _always,
) -> T:
    """Run a statement or a transaction, again when the server asks for it and while that is possible."""
    for pause in PAUSES:
        try:
            return await once()
        except ASKS_TO_REPEAT:
            if not possible():
                raise
        await wait(pause)
    return await once()


def repeated_sync(once: Callable[[], T], possible: Callable[[], bool] = _always) -> T:
    for pause in PAUSES:
        try:
            return once()
        except ASKS_TO_REPEAT:
            if not possible():
                raise
        time.sleep(pause)
    return once()


def alone(connection: AsyncConnection[Any] | Connection[Any]) -> Callable[[], bool]:
    """Says, after a statement on this connection has failed, whether it was a transaction of its own."""
    return lambda: connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
