"""The values that enqueueing returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from trueup.durations import Duration
from trueup.jobs.records import JobDetails

R = TypeVar("R")


class Waiter(Protocol):
    """What a handle needs of its App."""

    async def wait_for_result(self, job_id: int, timeout: Duration | None) -> Any: ...
    def wait_for_result_sync(self, job_id: int, timeout: Duration | None) -> Any: ...
    async def status_of(self, job_id: int) -> JobDetails: ...
    def status_of_sync(self, job_id: int) -> JobDetails: ...


class Handle(int, Generic[R]):
    """A job's id, with methods to wait for it: `await handle.result(timeout="10s")`.

    `created` is False when a live job with the same unique key existed; this is its handle.
    """

    created: bool
    _waiter: Waiter

    def __new__(cls, job_id: int, waiter: Waiter, created: bool = True) -> Handle[R]:
        handle = super().__new__(cls, job_id)
        handle.created = created
        handle._waiter = waiter
        return handle

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Pickled for another process it is only the id: that process has no App to wait with."""
        return int, (int(self),)

    @property
    def id(self) -> int:
        return int(self)

    def __repr__(self) -> str:
        return f"<Handle job {int(self)}>"

    def __str__(self) -> str:
        return str(int(self))

    async def result(self, timeout: Duration | None = None) -> R:
        """Wait until the job is done and return its result, as its function is annotated.

        Raises JobFailed when it is dead, JobCancelled when it was cancelled, ResultTimeout when it takes longer, and
        ResultMismatch when the stored result does not fit the annotation.
        """
        result: R = await self._waiter.wait_for_result(int(self), timeout)
        return result

    def result_sync(self, timeout: Duration | None = None) -> R:
        """`result` for code without an event loop."""
        result: R = self._waiter.wait_for_result_sync(int(self), timeout)
        return result

    async def status(self) -> JobDetails:
        """The job as it is now: state, progress, errors and the rest. Raises NotFound when it no longer exists."""
        return await self._waiter.status_of(int(self))

    def status_sync(self) -> JobDetails:
        """`status` for code without an event loop."""
        return self._waiter.status_of_sync(int(self))


@dataclass(frozen=True, slots=True)
class Enqueued:
    """How many calls of a batch became jobs, and for how many a live job with the same unique key existed already."""

    created: int
    kept: int = 0
