"""Runs one scan when it is due: takes its lease, continues from the stored cursor, and stores how far it came.

Every worker has a scanner per scan. The row in PostgreSQL says when the scan is due and how far it has come. Only the holder of the
lease may run it, and every write about the scan is fenced by the lease. A worker that loses the lease stops at once and stores nothing
more; if a worker dies, its lease expires. The next holder continues from the stored cursor, so each item is handled at least once, and
only items behind that cursor are handled again.

After a generator has raised, any worker tries it again, after a pause that grows up to the scan's interval. If PostgreSQL refuses a
write about the scan, the write is repeated for ever, and an event shows the error.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar

from pydantic_core import from_json

from trueup.errors import DatabaseUnavailable, LostLease, NotAcquired
from trueup.events import Events, ScanCompleted, ServiceFailed
from trueup.jobs.failure import describe, type_name
from trueup.jobs.middleware import Middlewares
from trueup.leases.trust import MIN_LEASE
from trueup.reconcile.progress import Point, Progress
from trueup.reconcile.scan import Scan
from trueup.store.db.connect import RETRYABLE, is_away
from trueup.store.leases import RowLeases, Terms
from trueup.store.rows.scans import FIRST_PAUSE, Began, Scans, lease_name
from trueup.work.calling import Caller
from trueup.work.leases.hold import Lease, LeaseRequest
from trueup.work.leases.lease import LeaseContext
from trueup.work.scans.scanning import Pass
from trueup.work.service import Service, jittered

MAX_PAUSE = 30.0  # seconds between looks when it is not due
LOOK = 2.0  # seconds between looks while another worker runs it, so that it is soon continued when that worker stops
SPREAD = 0.25  # seconds, so that the first of a fleet takes it and the others find it taken
PATIENCE = 3  # refusals in a row that may pass by themselves (a timeout, a deadlock) before they are reported
AGAIN = 0.5  # seconds between tries to store how a pass ended

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scanned:
    """How one call ended. `items` and `failed` are those of the scan so far; `error` is what its generator raised."""

    ending: Literal["completed", "stopped", "failed", "lost", "elsewhere", "not due"]
    items: int = 0
    failed: int = 0
    error: BaseException | None = None


class Scanner(Service):
    """Raises ConfigError when nothing is done with the scan's items."""

    def __init__(
        self,
        scan: Scan[Any],
        scans: Scans,
        terms: Terms,
        events: Events,
        lease_for: timedelta,
        middlewares: Middlewares,
    ) -> None:
        super().__init__(events)
        self.name = f"scan {scan.name}"
        self.scan = scan
        self._scans = scans
        self._terms = terms
        self._request = LeaseRequest(lease_name(scan.name), max(lease_for, MIN_LEASE))
        self._caller = Caller(events, middlewares)
        self._pass: Pass | None = None
        self._declared = False
        self._refusals = 0  # in a row
        _ = scan.handler

    async def run_once(self) -> float:
        """One scan if it is due and no other process runs it."""
        await self._declare()
        due = await self._scans.due(self.scan.name)
        if due is None:  # the table was emptied
            self._declared = False
            return SPREAD
        if due.seconds > max(self.scan.every, FIRST_PAUSE).total_seconds():
            self._declared = False  # it was put off while the clock was ahead, or by a release with a longer interval
            return SPREAD
        if due.seconds > 0:
            return min(due.seconds, MAX_PAUSE) + random.uniform(0.001, SPREAD)  # noqa: S311
        if due.held:
            return jittered(LOOK)
        try:
            scanned = await self.scan_once()
        except DatabaseUnavailable:
            return jittered(LOOK)
        return 0.0 if scanned.ending in ("completed", "failed", "not due") else jittered(LOOK)

    async def scan_once(self, *, anyway: bool = False) -> Scanned:
        """Take the lease and scan to the end, if it is due or `anyway`. An error of the generator is in the result and not raised."""
        if self._pass is not None:
            return Scanned("elsewhere")
        this = self._pass = Pass(self.scan, self._caller, self.events)
        holding = LeaseContext(self._request, lambda: (RowLeases(self._terms), self._terms, nullcontext()), self.events)
        try:
            await self._declare()
            async with holding as lease:
                scanned = await self._scan(this, lease, anyway)
            self._refusals = 0
            return scanned
        except NotAcquired:
            return Scanned("elsewhere")
        except LostLease:
            return Scanned("lost")
        except Exception as error:
            await self._refused(error)
            raise
        finally:
            self._pass = None

    async def stop(self) -> None:
        """Stops drawing on the generator, and returns when what is inside the handler has ended, is kept, and the lease released."""
        self._stop.set()
        if self._pass is not None:
            self._pass.stop()
        await super().stop()
        self._caller.close()

    def interrupt(self) -> None:
        """During `stop`: cancel the handlers that still run, so that `stop` returns soon."""
        if self._pass is not None:
            self._pass.interrupt()

    async def _declare(self) -> None:
        if not self._declared:
            await self._scans.declare(self.scan.name, self.scan.every, run_at_start=self.scan.run_at_start)
            self._declared = True

    async def _scan(self, this: Pass, lease: Lease, anyway: bool) -> Scanned:
        name, every = self.scan.name, self.scan.every
        began = await self._scans.begin(name, every, lease.fence, anyway=anyway)
        if began is None:
            return Scanned("not due")
        progress = Progress(Point(self.scan.encode(began.cursor), began.items, began.failed))

        async def save(point: Point) -> None:
            await self._scans.save(name, point, _failures(began, point), lease.fence)

        await this.run(began.cursor, progress, save, lease.held)
        point = progress.point
        if this.complete and progress.settled:
            took = await self._insist(this, lambda: self._scans.finish(name, point, every, lease.fence))
            if took is not None:
                self.events.emit(ScanCompleted(name, point.items, point.failed, round(took, 3)))
                return Scanned("completed", point.items, point.failed)
        if this.error is None or this.eased:
            await self._insist(this, lambda: self._scans.save(name, point, 0, lease.fence))
            return Scanned("stopped", point.items, point.failed)
        error, failures = this.error, _failures(began, point)
        self.events.emit(ServiceFailed(self.name, type_name(error), describe(error)).because(error))
        said = f"{type_name(error)}: {describe(error)}"
        await self._insist(this, lambda: self._scans.fail(name, point, failures, said, every, lease.fence))
        return Scanned("failed", point.items, point.failed, error)

    async def _refused(self, error: Exception) -> None:
        """Report an error with which the server answered, unless it may pass and is one of the first."""
        said = error.__cause__ if isinstance(error, DatabaseUnavailable) else error
        if not isinstance(said, Exception) or getattr(said, "sqlstate", None) is None:
            return  # the server is away, which is reported elsewhere
        self._refusals += 1
        passes = is_away(said) or isinstance(said, RETRYABLE)
        if passes and self._refusals < PATIENCE:
            return
        with suppress(Exception):
            await self._scans.refused(self.scan.name, f"{type_name(said)}: {describe(said)}")
        if passes:  # any other ends the pass, and is an event then
            self._failed(said)

    async def _insist(self, this: Pass, write: Callable[[], Awaitable[T]]) -> T | None:
        """Repeat a write until it succeeds, or until the loss of the lease cancels it. When the process is to end, it is tried once."""
        while True:
            try:
                return await write()
            except RETRYABLE as error:
                if this.eased:
                    return None  # the lease expires, and items behind the stored cursor are handled again
                await self._refused(error)
            await asyncio.sleep(jittered(AGAIN))


def _failures(began: Began, point: Point) -> int:
    """How many tries in a row made no progress. A try with progress starts the count at 1."""
    reached = None if point.cursor is None else from_json(point.cursor)
    return began.failures if reached == began.cursor else 1
