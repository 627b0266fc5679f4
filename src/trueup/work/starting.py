"""Starting a worker while PostgreSQL, or the pooler in front of it, restarts: the worker waits, for a limited time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from trueup.clock import elapsed
from trueup.errors import DatabaseUnavailable
from trueup.events import DatabaseLost, DatabaseRestored, Events
from trueup.store.db.connect import RETRYABLE, unavailable
from trueup.store.db.own_connection import OwnConnection

T = TypeVar("T")

PART = "start"
FIRST_PAUSE, MAX_PAUSE = 0.1, 1.0  # seconds between tries


async def patiently(
    start: Callable[[], Awaitable[T]],
    within: timedelta,
    events: Events,
    stop_requested: Callable[[], bool] = lambda: False,
) -> T:
    """Call `start`, and repeat it for up to `within` while the database is away. Returns its result.

    Raises DatabaseUnavailable when the time is up, and at once for what does not pass by itself: a wrong password, say.
    """
    began, pause, away = elapsed(), FIRST_PAUSE, False
    while True:
        try:
            result = await start()
        except DatabaseUnavailable as error:
            if not error.may_pass or stop_requested() or elapsed() + pause > began + within.total_seconds():
                raise
            if not away:
                away = True
                events.emit(DatabaseLost(PART, str(error)))
        else:
            if away:
                events.emit(DatabaseRestored(PART, round(elapsed() - began, 3)))
            return result
        await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
        pause = min(2 * pause, MAX_PAUSE)


async def open_connections(connections: Sequence[OwnConnection], more: int, url: str) -> None:
    """Connect for every part before anything is claimed: a part without a connection would leave jobs unfinished.

    A pooler in session mode, or a server that is full, may have fewer; then the error says how many are needed, with the `more`
    that the worker opens later.
    """
    opened = 0
    try:
        for connection in connections:
            await connection.open()
            opened += 1
    except RETRYABLE as error:
        needed = len(connections) + more
        parts = ", ".join(connection.part for connection in connections)
        why = unavailable(url, error)
        # After others were opened: a pooler keeps this one waiting for a session.
        silent = isinstance(error, TimeoutError)
        if why.may_pass and not (opened and silent):
            raise why from error
        raise DatabaseUnavailable(
            f"{why}; a worker needs {needed} connections of its own at the same time, "
            f"and got {opened} of them, for {parts}. Behind a pooler in session mode raise its pool size, or use transaction mode"
        ) from error
