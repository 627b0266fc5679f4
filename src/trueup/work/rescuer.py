"""Takes over the jobs of dead workers. Every worker does this for the fleet; per dead worker, the statement lets only one act."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import psycopg

from trueup import faults
from trueup.events import Events, JobFinishRefused, JobRescued, WorkerExpired
from trueup.store.jobs import Jobs, Rescued
from trueup.store.workers import Workers
from trueup.texts import describe
from trueup.work.jobs.hints import Hints
from trueup.work.jobs.refusals import MAX_APART, half_by_half, passes
from trueup.work.service import Service, jittered

FORGET_EVERY = 6  # passes: dead workers that held no jobs wait this long until their rows are deleted


class Rescuer(Service):
    name = "rescuer"

    def __init__(
        self,
        jobs: Jobs,
        workers: Workers,
        events: Events,
        every: timedelta,
        hints: Hints,
        *,
        exhausts: Callable[[], tuple[str, ...]],
    ) -> None:
        super().__init__(events)
        self._jobs = jobs
        self._workers = workers
        self._every = every.total_seconds()
        self._exhausts = exhausts
        self._hints = hints
        self._passes = 0

    async def run_once(self) -> float:
        await self.rescue()
        return jittered(self._every)

    async def rescue(self) -> list[Rescued]:
        """Make one pass. Returns the jobs that were taken over."""
        faults.hit("before_rescue")
        try:
            rescued = await self._jobs.rescue(self._exhausts())
        except psycopg.Error as error:
            if passes(error):
                raise
            rescued = await self._rescue_apart(error)
        faults.hit("after_rescue")
        for job in rescued:
            self.events.emit(
                JobRescued(
                    job.job_id, job.kind, job.attempt, job.state, str(job.holder), job.host, job.pid, job.exhausting
                )
            )
        if rescued:
            self._hints.look()
        if rescued or self._passes % FORGET_EVERY == 0:
            for holder, host, pid in await self._workers.forget():
                self.events.emit(WorkerExpired(str(holder), host, pid))
        self._passes += 1
        return rescued

    async def _rescue_apart(self, error: psycopg.Error) -> list[Rescued]:
        """Take jobs over half by half, because PostgreSQL refuses one of them."""
        kinds = await self._jobs.rescuable(MAX_APART)
        rescued: list[Rescued] = []
        culprits: dict[int, psycopg.Error] = {}

        async def rescue(some: Sequence[int]) -> list[Rescued]:
            return await self._jobs.rescue(self._exhausts(), some)

        try:
            async for some in half_by_half(kinds, rescue, culprits, ends=passes, first=error):
                rescued += some
        finally:
            for job_id, why in culprits.items():
                said = describe(why)
                self.events.emit(JobFinishRefused(job_id, kinds[job_id], "rescue", self._passes + 1, said))
                await self._jobs.refused(job_id, "rescue", said)
        return rescued
