"""A worker without loops: each step is called, so that tests decide what happens when.

worker = ManualWorker(app)
await worker.begin()
await send.enqueue("x")
await worker.claim()
await worker.run_one()       # the handler ran; nothing is written yet
await worker.finish()        # now it is
await worker.plan()          # ticks that are due become jobs, or are skipped with a reason
await worker.sweep("name")   # one sweep of a reconciler, from its first claim to its last write
"""

from __future__ import annotations

from trueup.app import App
from trueup.jobs.job import ClaimedJob
from trueup.jobs.outcome import Outcome
from trueup.reconcile.counts import Counts
from trueup.store.jobs import Rescued


class ManualWorker:
    def __init__(self, app: App, *, concurrency: int = 10, queues: list[str] | None = None) -> None:
        self.app = app
        self.worker = app.worker(concurrency=concurrency, queues=queues)

    async def begin(self) -> None:
        """Register as a holder."""
        await self.app.open()
        await self.worker.register()

    async def claim(self) -> list[ClaimedJob]:
        """One pass of the claimer, without starting anything; returns what is now in hand."""
        self.worker.runner.hold()
        self.worker.claimer.wake()
        await self.worker.claimer.run_once()
        return self.worker.hand.in_hand()

    async def run_one(self) -> Outcome | None:
        """Run one job in hand to its outcome; nothing is written yet."""
        return await self.worker.runner.run_once()

    async def finish(self) -> None:
        """Write the outcomes."""
        await self.worker.finisher.run_once()

    async def rescue(self) -> list[Rescued]:
        return await self.worker.rescuer.rescue()

    async def run_pending(self) -> int:
        """Claim, run and finish until nothing is due. Returns how many jobs were run.

        When the clock was moved past the worker's lease, it registers again first, as a real one would.
        """
        if not self.worker.trusted:
            await self.worker.register()
        ran = 0
        while await self.claim():
            while await self.run_one() is not None:
                ran += 1
            await self.finish()
        return ran

    async def plan(self) -> None:
        """Decide about every due tick, as the planner of a worker does; `run_pending` then runs the fired ones."""
        if not self.worker.trusted:
            await self.worker.register()
        while (await self.worker.ticker.plan()).more:
            pass

    async def sweep(self, name: str) -> Counts:
        """Run one whole sweep of a reconciler, move or deletion. All outcomes are written when this returns.

        A failed row is due again when the clock has been moved on. Nothing is done while it is paused.
        """
        if not self.worker.trusted:
            await self.worker.register()
        self.worker.row_services.declare(self.app._reconcilers.all())
        await self.worker.row_services.gather()
        return await self.worker.row_services.sweep(name)

    async def end(self) -> None:
        """Close its connections, as a killed process would: nothing is released."""
        await self.worker.abandon()
