"""Builds the parts of a worker that claim, run and finish jobs. The counterpart for rows is `work/rows/services.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from trueup.clock import elapsed
from trueup.config import Settings
from trueup.events import Events
from trueup.jobs.registry import Registry
from trueup.store.lanes import Lanes
from trueup.store.store import Store
from trueup.work.jobs.claimer import Claimer
from trueup.work.jobs.finisher import Finisher
from trueup.work.jobs.hand import Hand
from trueup.work.jobs.hints import Hints
from trueup.work.jobs.runner import Runner
from trueup.work.jobs.transactions import LeasedAccess
from trueup.work.registration import Registration, Registrations

# A request to stop locks the job's row for a moment. If another session keeps it locked for longer, only that job's outcome waits.
FINISH_LOCK_TIMEOUT = timedelta(milliseconds=500)
LAST_WORD = 5.0  # seconds for handlers to end once they are cancelled, and for the last writes


class JobServices:
    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        events: Events,
        registrations: Registrations,
        queues: Mapping[str, int | None],
        concurrency: int,
    ) -> None:
        claiming = store.own_connection("claim", keep=True)
        finishing = store.own_connection("finish", lock_timeout=FINISH_LOCK_TIMEOUT)
        self.connections = [claiming, finishing]
        self._registry = registry
        self.hand = Hand(concurrency, queues, elapsed=store.clock.elapsed)
        self.hints = Hints(settings.poll_every)
        self.finisher = Finisher(
            store.jobs.on(finishing), events, registrations, self.hints, gather_for=settings.gather_for
        )
        access = LeasedAccess(store, registrations, settings.lease_for, settings.result_limit)
        self.runner = Runner(self.hand, self.hints, registry, self.finisher, events, access, store.middlewares)
        self.claimer = Claimer(
            store.jobs.on(claiming),
            Lanes(claiming, store.statements),
            registry,
            self.hand,
            self.hints,
            self.runner,
            self.finisher,
            events,
            registrations,
            settings,
        )
        self.runner.caller.pools.on_places = self.hints.look

    def lose(self) -> int:
        """The worker's lease is gone: cancel the jobs that run, and drop those that have not started. Returns how many there were."""
        unstarted, runs = self.hand.take_all(), list(self.hand.running.values())
        for run in runs:
            run.cancel("lost")
        self.finisher.wake()
        return len(runs) + len(unstarted)

    def interrupt(self, *, process_ends: bool) -> set[asyncio.Task[Any]]:
        """Cancel the jobs that still run. Returns their tasks, to be waited for."""
        runs = list(self.hand.running.values())
        for run in runs:
            run.cancel("shutdown")
        pools = self.runner.caller.pools  # a call in another process cannot be cancelled; it ends with its process
        pools.end_all() if process_ends else pools.close()
        return {run.task for run in runs}

    async def flush(self, until: float) -> None:
        """Wait until the last outcomes are written: until the time to drain is over, and at least for LAST_WORD seconds."""
        try:
            async with asyncio.timeout(max(LAST_WORD, until - elapsed())):
                await self.finisher.flushed()
        except TimeoutError:
            return  # the database is away: the lease expires and the jobs are rescued

    async def release_unresponsive(self, registration: Registration, *, process_ends: bool) -> int:
        """Release the jobs of handlers that ignored their cancellation, if the process is about to end. Returns how many there are.

        In a process that lives on, such handlers may go on, too. Their jobs keep the lease until it expires; only then may
        another worker run them.
        """
        ignoring = [run.job for run in self.hand.running.values() if run.job.holder == registration.holder]
        if not ignoring or not process_ends:
            return len(ignoring)
        self.finisher.put_unstarted(ignoring)
        await self.flush(elapsed())
        # A thread cannot be cancelled, so it did not ignore anything.
        return sum(self._registry[job.kind].is_async for job in ignoring)
