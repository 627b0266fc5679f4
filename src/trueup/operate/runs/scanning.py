"""One scan by hand, from where it had come to."""

from __future__ import annotations

import asyncio
import math
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
    """One scan from where it had come to, due or not. With a limit it stops there, and the next run continues from that place."""
    connection = store.own_connection("scan by hand")
    stopping: list[asyncio.Task[None]] = []

    def stop() -> None:
        stopping.append(asyncio.create_task(scanner.stop()))

    scanner = Scanner(
        _limited_scan(scan, limit, progress, stop),
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


def _limited_scan(scan: Scan[Any], limit: int | None, progress: Progress | None, stop: Callable[[], None]) -> Scan[Any]:
    """The same scan, which reports each item that was handled, and stops at its limit."""
    loop, handler, done = asyncio.get_running_loop(), scan.handler, 0
    most = math.inf if limit is None else limit

    async def source(cursor: Any) -> AsyncIterator[tuple[Any, Any]]:
        drawn = 0
        async with aclosing(scan(cursor)) as items:
            async for item in items:
                yield item
                drawn += 1
                if drawn >= most:
                    await asyncio.Event().wait()  # until the last of them is handled: `stop` cancels this

    def handled() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, limit)
        if done == most:
            stop()

    async def awaited(item: Any) -> None:
        try:
            await handler(item)
        finally:
            handled()

    def called(item: Any) -> None:
        try:
            handler(item)
        finally:
            loop.call_soon_threadsafe(handled)

    counted: Scan[Any] = Scan(
        scan.name,
        source,
        every=scan.every,
        concurrency=scan.concurrency,
        timeout=scan.timeout,
        run_at_start=scan.run_at_start,
    )
    counted.each(awaited if scan.is_async else called)
    return counted
