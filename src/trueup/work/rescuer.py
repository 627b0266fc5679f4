"""Takes over what dead workers held. Every worker does this for all of them; the statement lets one act at a time per worker row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from trueup import faults
from trueup.events import Events, JobRescued, WorkerExpired
from trueup.store.jobs import Jobs, Rescued
from trueup.store.workers import Workers
from trueup.work.jobs.hints import Hints
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
        """One pass; returns what was taken over."""
        faults.hit("before_rescue")
        rescued = await self._jobs.rescue(self._exhausts())
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
