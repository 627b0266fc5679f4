"""The sweeps of one process: started, stopped, or made once by hand, whether they are started or not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from psycopg import sql

from trueup import App, Worker

from .publishing import ANNOUNCE
from .sweeps import CYCLE
from .watch import Watch

log = logging.getLogger("wallpapers")

DRAIN_WITHIN = 60.0  # seconds

Outcomes = Mapping[str, int]


class Reconciliation:
    """Errors of a sweep are trueup's to tell of and to try again: they end neither the process nor the other sweeps."""

    def __init__(self, app: App, watch: Watch) -> None:
        self._app = app
        self._watch = watch
        self._running: AsyncExitStack | None = None
        self._worker: Worker | None = None

    @property
    def running(self) -> bool:
        return self._running is not None

    async def start(self) -> None:
        """Raises ConfigError when a table cannot be worked on. Twice is once."""
        if self._running is not None:
            log.warning("Reconciliation is already running")
            return
        running = self._running = AsyncExitStack()
        try:
            self._worker = await running.enter_async_context(self._app.worker())
        except BaseException:
            self._running = None
            raise
        running.callback(asyncio.create_task(self._watch.keep_looking()).cancel)
        log.info("Reconciliation started")

    async def stop(self) -> None:
        """Nothing more is claimed; what runs is seen through or handed back. Harmless when stopped."""
        running, self._running = self._running, None
        if running is not None:
            await running.aclose()
            log.info("Reconciliation stopped")

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """Inside the block they run."""
        await self.start()
        try:
            yield
        finally:
            await self.stop()

    def hurry(self) -> None:
        """A stop that is under way waits for nothing more. Safe in a signal handler of the loop."""
        if self._worker is not None:
            self._worker.request_stop()

    async def run_reconciliation_now(self) -> dict[str, Outcomes | None]:
        """One whole cycle in this process, also while it is stopped. By sweep: rows by what became of them; None when it failed."""
        return {name: await self._sweep(name) for name in CYCLE}

    async def drain_outbox(self, within: float = DRAIN_WITHIN) -> int:
        """Publish in this process what waits to be published now; how many events are left, all of them to be tried again."""
        until = asyncio.get_running_loop().time() + within
        async with self._app.worker():
            while asyncio.get_running_loop().time() < until and await self._waiting(due=True):  # noqa: ASYNC110 - rows
                await asyncio.sleep(0.05)
        return await self._waiting(due=False)

    async def _waiting(self, *, due: bool) -> int:
        jobs = sql.Identifier(self._app.settings.schema, "jobs")
        statement = sql.SQL("select count(*)::int from {} where kind = %s and (run_at <= now() or not %s)").format(jobs)
        async with self._app.transaction() as tx:
            row = await (await tx.execute(statement, [ANNOUNCE, due])).fetchone()
        assert row is not None
        return int(row[0])

    async def _sweep(self, name: str) -> Outcomes | None:
        try:
            run = await self._app.reconcilers.run(name)
        except Exception as error:
            log.error("Sweep failed", extra={"sweep": name, "error": f"{type(error).__name__}: {error}"})
            return None
        facts = {"sweep": name, "duration_ms": round(run.seconds * 1000), **run.outcomes}
        log.info("Sweep completed", extra=facts)
        return run.outcomes
