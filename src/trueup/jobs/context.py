"""What a handler can read and do about its run. Passed to the parameter annotated `Context`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from trueup.errors import ConfigError, TrueupError
from trueup.jobs.job import ClaimedJob
from trueup.leases.lost import LostSignal

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

injected: Any = None
"""A default for `ctx: Context = injected`, so that type checkers do not ask callers of `enqueue` for it."""


class JobTransaction(
    AbstractAsyncContextManager["AsyncConnection[Any]", None],
    AbstractContextManager["Connection[Any]", None],
):
    """`async with` in coroutines, `with` in threads. On leaving it without an error the job is done, in the same commit."""


@contextmanager
def beginning(context: Context) -> Iterator[None]:
    """Around the beginning of a finishing transaction. Raises TrueupError while this run has another one: only one could commit."""
    if context.writing:
        raise TrueupError(
            "ctx.transaction() is open already; it can neither be nested nor opened twice at the same time"
        )
    context.writing = True
    try:
        yield
    except BaseException:
        context.writing = False
        raise


def check_ended(context: Context) -> None:
    """Raises TrueupError when a handler has returned and its finishing transaction has not ended: its writes would be lost."""
    if context.writing:
        raise TrueupError("the handler returned while ctx.transaction() was open; await what runs inside it")


@contextmanager
def ending(context: Context) -> Iterator[None]:
    """Around the end of a finishing transaction."""
    try:
        yield
    finally:
        context.writing = False


class JobAccess(Protocol):
    """What a handler's Context calls: the worker's access to the stored job, or that of Django's tests."""

    def check(self, job: ClaimedJob) -> None:
        """Raise LostClaim unless the lease this job was claimed under is still trusted."""
        ...

    async def progress(self, job: ClaimedJob, percent: float, note: str | None) -> None: ...
    def progress_sync(self, job: ClaimedJob, percent: float, note: str | None) -> None: ...
    def transaction(self, context: Context, result: Any) -> JobTransaction: ...


class Context:
    """One run of one job."""

    __slots__ = ("_access", "finished", "job", "lost", "uncertain", "undone_by", "writing")

    def __init__(self, job: ClaimedJob, lost: LostSignal, access: JobAccess) -> None:
        self.job = job
        self.lost = lost
        self.writing = False  # transaction() is open
        self.finished = False  # transaction() has committed the job as done
        self.uncertain = False  # that commit was sent and no answer came
        self.undone_by: BaseException | None = None  # the database ended transaction(); not the handler's fault
        self._access = access

    def __repr__(self) -> str:
        return f"<Context {self.job.kind} id={self.job.id} attempt={self.job.attempt} term={self.job.term}>"

    @property
    def term(self) -> int:
        """The fencing token: grows with every claim of this job. Pass it to systems that can compare it."""
        return self.job.term

    @property
    def attempt(self) -> int:
        return self.job.attempt

    @property
    def now(self) -> datetime:
        """The database's time when this run was claimed."""
        return self.job.claimed_at

    @property
    def lateness(self) -> timedelta:
        """How long after it was due this run was claimed."""
        return self.job.lateness

    @property
    def snoozed_for(self) -> timedelta:
        """How long `Snooze` has postponed this job: the time since the run that raised the first one.

        Zero for a job that was never snoozed. For the job of a schedule it is the time since its tick was due.
        """
        return self.job.snoozed_for

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this job, and different from every other job's, even after a restore."""
        return self.job.idempotency_key

    @property
    def key(self) -> str:
        """The key, as text, of the row that a reconciler's handler runs for. A job has no row."""
        raise ConfigError("ctx.key is the key of a reconciler's row; a job has none: it has ctx.job.id")

    @property
    def meta(self) -> Mapping[str, Any]:
        """The metadata of this job from `using(meta=…)` and middleware. Jobs that it enqueues do not inherit it."""
        return {} if self.job.meta is None else json.loads(self.job.meta)

    async def progress(self, percent: float, note: str | None = None) -> None:
        """Store the job's progress. Raises LostClaim when this worker has lost its lease."""
        await self._access.progress(self.job, percent, note)

    def progress_sync(self, percent: float, note: str | None = None) -> None:
        """`progress` for handlers that run in a thread."""
        self._access.progress_sync(self.job, percent, note)

    async def checkpoint(self, more: Mapping[str, Any] = MappingProxyType({}), /, **columns: Any) -> None:
        """Write columns of the row that a reconciler's handler runs for. A job has no row: use `progress`, or your own tables."""
        raise ConfigError(
            "ctx.checkpoint() writes to the row of a reconciler; a job has none. Write to your own tables"
        )

    def transaction(self, result: Any = None) -> JobTransaction:
        """A transaction that commits your writes and this job's "done" together, or neither.

        `result` is the job's result; a function is called at the end, before the commit. Raises LostClaim on exit when this
        worker has lost its lease; your writes are then rolled back.
        """
        return self._access.transaction(self, result)
