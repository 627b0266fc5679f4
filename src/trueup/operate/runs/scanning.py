"""Runs one scan by hand, from its stored cursor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from trueup.clock import elapsed
from trueup.config import Settings
from trueup.events import Events
from trueup.jobs.failure import describe, type_name
from trueup.operate.runs.orderly import orderly
from trueup.operate.runs.results import Progress, Run
from trueup.reconcile.scan import Scan
from trueup.store.rows.scans import Scans
from trueup.store.store import Store
from trueup.work.scans.scanner import Scanner


async def scan_now(
    store: Store,
    settings: Settings,
    events: Events,
    scan: Scan[Any],
    *,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Run:
    """Run the scan from its stored cursor, even if it is not due. It stops after `limit` items, and the next run continues there."""
    connection = store.own_connection("scan by hand")
    stopping: list[asyncio.Task[None]] = []

    def stop() -> None:
        stopping.append(asyncio.create_task(scanner.stop()))

    scanner = Scanner(
        _Limited(scan, limit, progress, stop).scan(),
        Scans(connection, store.statements),
        store.terms,
        events,
        settings.lease_for,
        store.middlewares,
    )
    started = elapsed()
    try:
        task = asyncio.create_task(scanner.scan_once(anyway=True))
        scanned = await orderly(task, stop, scanner.interrupt, settings.drain_for)
    finally:
        await scanner.stop()
        await asyncio.gather(*stopping)
        await connection.close()
    counts = {"items": scanned.items, "failed": scanned.failed}
    why = None if scanned.error is None else f"{type_name(scanned.error)}: {describe(scanned.error)}"
    return Run(scan.name, scanned.ending, counts, elapsed() - started, why)


class _Limited:
    """A scan that reports each item that was handled, and calls `stop` at its limit."""

    def __init__(self, scan: Scan[Any], limit: int | None, progress: Progress | None, stop: Callable[[], None]) -> None:
        self._scan, self._handler = scan, scan.handler
        self._limit, self._progress, self._stop = limit, progress, stop
        self._loop = asyncio.get_running_loop()
        self._done = 0

    def scan(self) -> Scan[Any]:
        limited: Scan[Any] = Scan(
            self._scan.name,
            self._source,
            every=self._scan.every,
            concurrency=self._scan.concurrency,
            timeout=self._scan.timeout,
            run_at_start=self._scan.run_at_start,
        )
        limited.each(self._handle if self._scan.is_async else self._handle_sync)
        return limited

    async def _source(self, cursor: Any) -> AsyncIterator[tuple[Any, Any]]:
        drawn = 0
        async with aclosing(self._scan(cursor)) as items:
            async for item in items:
                yield item
                drawn += 1
                if self._limit is not None and drawn >= self._limit:
                    await asyncio.Event().wait()  # until the last of them is handled: `stop` cancels this

    async def _handle(self, item: Any) -> None:
        try:
            await self._handler(item)
        finally:
            self._count()

    def _handle_sync(self, item: Any) -> None:
        """Called in a thread."""
        try:
            self._handler(item)
        finally:
            self._loop.call_soon_threadsafe(self._count)

    def _count(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._limit)
        if self._done == self._limit:
            self._stop()
