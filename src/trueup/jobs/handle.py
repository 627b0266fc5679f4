"""What enqueueing gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from trueup.durations import Duration

R = TypeVar("R")


class Waiter(Protocol):
    async def wait_for_result(self, job_id: int, timeout: Duration | None) -> Any: ...


class Handle(int, Generic[R]):
    """A job's id, which can also be awaited for: `await handle.result(timeout="10s")`.

    `created` is False when a live job with the same unique key was there and this is that one.
    """

    created: bool
    _waiter: Waiter

    def __new__(cls, job_id: int, waiter: Waiter, created: bool = True) -> Handle[R]:
        handle = super().__new__(cls, job_id)
        handle.created = created
        handle._waiter = waiter
        return handle

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Another process gets the id alone: there is nobody there to wait with."""
        return int, (int(self),)

    @property
    def id(self) -> int:
        return int(self)

    def __repr__(self) -> str:
        return f"<Handle job {int(self)}>"

    def __str__(self) -> str:
        return str(int(self))

    async def result(self, timeout: Duration | None = None) -> R:
        """Wait until the job is done and return what it returned (as JSON gives it back).

        Raises JobFailed when it is dead, JobCancelled when it was cancelled, ResultTimeout when it takes longer.
        """
        result: R = await self._waiter.wait_for_result(int(self), timeout)
        return result


@dataclass(frozen=True, slots=True)
class Enqueued:
    """How many of a batch became jobs, and for how many a live job with the same unique key was there already."""

    created: int
    kept: int = 0
