"""What the Context of a running job does in the database: it stores progress, and commits a handler's writes together with "done"."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any

from psycopg import AsyncConnection, Connection

from trueup import faults
from trueup.errors import LostClaim, TrueupError
from trueup.jobs.context import Context, JobTransaction, beginning, ending
from trueup.jobs.failure import clean
from trueup.jobs.job import ClaimedJob
from trueup.jobs.payload import encode_result
from trueup.store.db.blocking import BegunBlocking, finish
from trueup.store.db.connect import RETRYABLE, is_no_fault
from trueup.store.db.lent import Lent
from trueup.store.db.pool import Begun
from trueup.store.db.repository import Database
from trueup.store.store import Store
from trueup.work.registration import Registrations

MAX_NOTE = 500


class LeasedAccess:
    """Gives the contexts of running jobs access to the store, as long as the worker's lease is trusted."""

    def __init__(self, store: Store, registrations: Registrations, lease_for: timedelta, result_limit: int) -> None:
        self.store = store
        self.lease_for = lease_for
        self.result_limit = result_limit
        self._registrations = registrations

    async def progress(self, job: ClaimedJob, percent: float, note: str | None) -> None:
        self.check(job)
        if not await self.store.jobs.progress(job, _percent(percent), _note(note)):
            raise lost(job)

    def progress_sync(self, job: ClaimedJob, percent: float, note: str | None) -> None:
        self.check(job)
        jobs = self.store.jobs.on(self.store.blocking)
        if not finish(jobs.progress(job, _percent(percent), _note(note))):
            raise lost(job)

    def transaction(self, context: Context, result: Any) -> JobTransaction:
        return FinishingTransaction(self, context, result)

    def check(self, job: ClaimedJob) -> None:
        """Raise LostClaim unless the lease this job was claimed under is still trusted."""
        registration = self._registrations.current
        if not (registration.covers(job) and registration.trusted):
            raise lost(job)


class FinishingTransaction(JobTransaction):
    """`ctx.transaction()`: a transaction that completes the job and commits when its block ends without an error."""

    def __init__(self, access: LeasedAccess, context: Context, result: Any) -> None:
        self._access = access
        self._context = context
        self._lent = Lent(f"{context.job.kind} {context.job.id}: the handler")
        self._later = result if callable(result) else None
        self._result = None if self._later is not None else self._encoded(result)
        self._stack: AsyncExitStack | ExitStack | None = None
        self._connection: AsyncConnection[Any] | Connection[Any] | None = None
        self._check_unfinished()

    async def __aenter__(self) -> AsyncConnection[Any]:
        self._check()
        with beginning(self._context), self._noticing():
            async with AsyncExitStack() as stack:
                connection = await stack.enter_async_context(self._access.store.transactions.begin())
                await self._lent.begin(connection, self._access.lease_for)
                self._stack, self._connection = stack.pop_all(), connection
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert isinstance(self._stack, AsyncExitStack)
        assert isinstance(self._connection, AsyncConnection)
        self._notice(error)
        with ending(self._context), self._noticing():
            if error is None:
                try:
                    self._access.check(self._context.job)
                    await self._lent.check(self._connection)
                    self._mine(await self._complete(Begun(self._connection)))
                except BaseException:
                    await self._stack.__aexit__(*sys.exc_info())
                    raise
            with self._committing(error):
                await self._stack.__aexit__(kind, error, trace)

    def __enter__(self) -> Connection[Any]:
        self._check()
        with beginning(self._context), self._noticing(), ExitStack() as stack:
            connection = stack.enter_context(self._access.store.transactions.begin_sync())
            self._lent.begin_sync(connection, self._access.lease_for)
            self._stack, self._connection = stack.pop_all(), connection
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert isinstance(self._stack, ExitStack)
        assert isinstance(self._connection, Connection)
        self._notice(error)
        with ending(self._context), self._noticing():
            if error is None:
                try:
                    self._access.check(self._context.job)
                    self._lent.check_sync(self._connection)
                    self._mine(finish(self._complete(BegunBlocking(self._connection))))
                except BaseException:
                    self._stack.__exit__(*sys.exc_info())
                    raise
            with self._committing(error):
                self._stack.__exit__(kind, error, trace)

    def _check_unfinished(self) -> None:
        if self._context.finished:
            raise TrueupError("this job is already done; a job has only one finishing transaction")

    def _check(self) -> None:
        self._check_unfinished()
        self._access.check(self._context.job)

    def _mine(self, done: set[int]) -> None:
        if not done:
            raise lost(self._context.job)
        faults.hit("before_commit")

    def _notice(self, error: BaseException | None) -> None:
        """Remember an error that is not the handler's fault. It spends no attempt if the run ends with this error."""
        if error is not None and is_no_fault(error):
            self._context.undone_by = error

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._notice(error)
            raise

    @contextmanager
    def _committing(self, error: BaseException | None) -> Iterator[None]:
        """Around the commit: if the connection breaks now, it is unknown whether the transaction was committed."""
        try:
            yield
        except RETRYABLE:
            self._context.uncertain = error is None
            raise
        if error is None:
            self._context.finished = True
            faults.hit("after_commit")

    def _encoded(self, result: Any) -> str | None:
        return None if result is None else encode_result(result, self._access.result_limit)

    def _complete(self, database: Database) -> Coroutine[Any, Any, set[int]]:
        job = self._context.job
        if self._later is not None:
            self._result = self._encoded(self._later())
        return self._access.store.jobs.on(database).complete(job.holder, [job], [self._result])


def lost(job: ClaimedJob) -> LostClaim:
    return LostClaim(f"{job.kind} {job.id}: the lease of term {job.term} was lost; nothing was changed")


def _percent(percent: float) -> float:
    return min(100.0, max(0.0, float(percent)))


def _note(note: str | None) -> str | None:
    return None if note is None else clean(note, MAX_NOTE)
