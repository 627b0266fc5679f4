"""Waiting for what a job returns, and reading it as its function is annotated."""

from __future__ import annotations

from typing import Any

from trueup.clock import elapsed
from trueup.durations import Duration, duration_of
from trueup.errors import JobCancelled, JobFailed, NotFound, ResultTimeout
from trueup.jobs.records import JobDetails, JobError
from trueup.jobs.registry import Registry
from trueup.store.jobs import Ending

FIRST_PAUSE = 0.005  # seconds
MAX_PAUSE = 0.5


class ResultWait:
    """One wait: what each look at the job means, and how long to pause before the next."""

    def __init__(self, registry: Registry, job_id: int, timeout: Duration | None) -> None:
        self._registry = registry
        self._job_id = job_id
        self._timeout = timeout
        self._deadline = None if timeout is None else elapsed() + duration_of("timeout", timeout).total_seconds()
        self._pause = FIRST_PAUSE

    def read(self, ending: Ending | None) -> tuple[bool, Any]:
        """Whether the job is done, and its result. Raises what Handle.result does."""
        if ending is None:
            raise _unknown(self._job_id)
        match ending.state:
            case "done":
                job = self._registry.get(ending.kind)
                return True, ending.result if job is None else job.returned.load(ending.result)
            case "dead":
                error = JobError.of(ending.error) if ending.error else "no error was recorded"
                raise JobFailed(f"job {self._job_id} is dead: {ending.reason}: {error}", self._job_id)
            case "cancelled":
                raise JobCancelled(f"job {self._job_id} was cancelled: {ending.reason}", self._job_id)
        return False, None

    def pause(self) -> float:
        """Seconds until the next look. Raises ResultTimeout when that is too late."""
        pause = self._pause
        if self._deadline is not None and elapsed() + pause > self._deadline:
            raise ResultTimeout(f"job {self._job_id} is not finished after {self._timeout}")
        self._pause = min(pause * 1.5, MAX_PAUSE)
        return pause


def known(job_id: int, job: JobDetails | None) -> JobDetails:
    if job is None:
        raise _unknown(job_id)
    return job


def _unknown(job_id: int) -> NotFound:
    return NotFound(f"job {job_id} is not known; its history may have passed its retention")
