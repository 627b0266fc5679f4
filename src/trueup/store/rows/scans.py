"""Scans over what is not a table: when they are due, and how far one has come. The database's clock decides.

Every write about a running scan is in a transaction fenced by its lease, so that a process that was frozen past its lease
changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection

from trueup.reconcile.progress import Point
from trueup.store.db.message import Fetched
from trueup.store.db.repository import Repository

FIRST_PAUSE = timedelta(seconds=15)  # after a failure; the pause doubles each time, up to the scan's interval
FREE = 3  # times in a row that a scan without progress, whose process died, is continued without a pause

Fence = Callable[[AsyncConnection[Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Due:
    """Seconds until the scan is due, at most 0 when it is. `held`: a process holds its lease."""

    seconds: float
    held: bool


@dataclass(frozen=True, slots=True)
class Began:
    """The cursor to continue from (None: the beginning), and how many tries in a row, with this one, began there."""

    cursor: Any
    items: int
    failed: int
    failures: int


def lease_name(scan: str) -> str:
    return f"scan:{scan}"


class Scans(Repository):
    async def declare(self, name: str, every: timedelta, *, run_at_start: bool = True) -> None:
        """Declare a scan. Every worker may call this at every start."""
        await self._run("declare", name, every=every, run_at_start=run_at_start)

    async def due(self, name: str) -> Due | None:
        """When the scan is due; None when it was never declared."""
        rows = await self._run("due", name, lease=lease_name(name))
        return Due(*rows[0]) if rows else None

    async def begin(self, name: str, every: timedelta, fence: Fence, *, anyway: bool = False) -> Began | None:
        """Begin or continue the scan; None when it is not due. Raises LostLease, as all fenced methods here do."""
        rows = await self._run("begin", name, fence, every=every, free=FREE, anyway=anyway)
        return Began(*rows[0]) if rows else None

    async def save(self, name: str, point: Point, failures: int, fence: Fence) -> None:
        await self._run("save", name, fence, failures=failures, **_stored(point))

    async def fail(self, name: str, point: Point, failures: int, error: str, every: timedelta, fence: Fence) -> None:
        await self._run("fail", name, fence, every=every, failures=failures, error=error, **_stored(point))

    async def refused(self, name: str, error: str) -> None:
        """Record the error with which PostgreSQL refused another of these statements."""
        await self._run("refused", name, error=error)

    async def finish(self, name: str, point: Point, every: timedelta, fence: Fence) -> float:
        """The scan has ended. Returns how many milliseconds it took since it first began."""
        rows = await self._run("finish", name, fence, every=every, items=point.items, failed=point.failed)
        return float(rows[0][0]) if rows else 0.0

    async def _run(self, verb: str, name: str, fence: Fence | None = None, **params: Any) -> Fetched:
        if "every" in params:
            params["every"] = params["every"].total_seconds()
        params = {"name": name, "first": FIRST_PAUSE.total_seconds(), **params}
        if fence is None:
            return await self._fetch(f"scans/{verb}", **params)
        async with self._database.transaction() as connection:
            await fence(connection)
            return await self._fetch_on(connection, f"scans/{verb}", **params)


def _stored(point: Point) -> dict[str, Any]:
    return {"cursor": point.cursor, "items": point.items, "failed": point.failed}
