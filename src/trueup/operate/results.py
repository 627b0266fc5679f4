"""Waits for a job's result, and reads it as the type that its function returns."""

from __future__ import annotations

from asyncio import _get_running_loop
from typing import Any

from trueup.clock import elapsed
from trueup.durations import Duration, duration_of
from trueup.errors import JobCancelled, JobFailed, NotFound, ResultTimeout
from trueup.jobs.records import JobDetails, JobError
from trueup.jobs.registry import Registry
from trueup.operate.operating import Operating, twin
from trueup.program import typed
from trueup.store.db.blocking import block
from trueup.store.jobs import JobEnd
from trueup.store.store import Store

FIRST_PAUSE = 0.005  # seconds
MAX_PAUSE = 0.5


class Results(Operating):
    def __init__(self, store: Store, registry: Registry) -> None:
        super().__init__(store)
        self._registry = registry
        self._jobs = store.jobs
        self._views = store.views

    async def wait(self, job_id: int, timeout: Duration | None) -> Any:
        """Poll until the job has ended; see Handle.result."""
        within = None if timeout is None else duration_of("timeout", timeout).total_seconds()
        deadline, pause = None if within is None else elapsed() + within, FIRST_PAUSE
        while True:
            ending = await self._jobs.outcome(job_id)
            if ending is None:
                raise _unknown(job_id)
            if ending.state == "done":
                job = self._registry.get(ending.kind)
                return ending.result if job is None else job.returned.load(ending.result)
            _raise_if_over(job_id, ending)
            if deadline is not None and elapsed() + pause > deadline:
                raise ResultTimeout(f"job {job_id} is not finished after {timeout}: {self._why(ending)}")
            await self._pause(pause)
            pause = min(pause * 1.5, MAX_PAUSE)

    def _why(self, ending: JobEnd) -> str:
        """Why there is no result yet, without another query: a role that only enqueues may not read the workers."""
        words = f"{ending.kind} is {ending.state}"
        if ending.error:
            words += f", and its last attempt failed: {JobError.of(ending.error)}"
        elif ending.state == "queued" and not ending.term:
            words += f"; `{typed('trueup status')}` shows whether a worker runs that knows it and serves its queue"
        if self._pause is block and _get_running_loop() is not None:
            words += "; result_sync blocks this thread's event loop, and so a worker that runs on it: await result()"
        return words

    async def status(self, job_id: int) -> JobDetails:
        record = await self._views.job(job_id)
        if record is None:
            raise _unknown(job_id)
        return JobDetails.of(record)

    wait_sync = twin(wait)
    status_sync = twin(status)


def _raise_if_over(job_id: int, ending: JobEnd) -> None:
    if ending.state == "dead":
        error = JobError.of(ending.error) if ending.error else "no error was recorded"
        raise JobFailed(f"job {job_id} is dead: {ending.reason}: {error}", job_id)
    if ending.state == "cancelled":
        raise JobCancelled(f"job {job_id} was cancelled: {ending.reason}", job_id)


def _unknown(job_id: int) -> NotFound:
    return NotFound(f"job {job_id} does not exist; its history may have passed its retention")
