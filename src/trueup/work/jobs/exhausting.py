"""Calls `exhausted=` in the transaction that buries a job.

The transaction first buries the job, under its fence; a lost claim ends it before the function is called. Then it calls the function,
enqueues the jobs that the function returns, and commits. If the function raises, hangs or is refused by PostgreSQL, all of it is
rolled back; the job then goes back to the queue with only this call left, and after the last try it is buried without the call.
After a deadlock or a serialization failure the whole transaction is repeated at once, which spends no try.

Before the commit the transaction must still be the one that buried the job. Otherwise a function that swallowed an error of
PostgreSQL, or that ended the transaction itself, would leave a job that counts as buried although nothing was written.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine
from functools import partial
from typing import Any

from psycopg import AsyncConnection, Connection

from trueup import faults
from trueup.errors import TrueupError
from trueup.events import JobFailedAfterDone
from trueup.jobs.decide import (
    Buried,
    Bury,
    Drop,
    Move,
    after_exhausted_failed,
    exhausted_elsewhere,
    exhausting_of,
)
from trueup.jobs.definition import Job
from trueup.jobs.exhausted import TIMEOUT, Exhausted
from trueup.jobs.failure import describe, type_name
from trueup.jobs.job import ClaimedJob, Draft
from trueup.store.db.blocking import BegunBlocking, finish
from trueup.store.db.connect import RETRYABLE, limit
from trueup.store.db.lent import Lent
from trueup.store.db.pool import Begun
from trueup.store.db.repeating import repeated
from trueup.store.db.repository import Database
from trueup.work.calling import Caller, is_own_ending, within
from trueup.work.jobs.hand import RunningJob
from trueup.work.jobs.transactions import LeasedAccess, lost

LIMIT = limit(TIMEOUT)


class Exhauster:
    def __init__(self, access: LeasedAccess, caller: Caller, rng: random.Random) -> None:
        self._access = access
        self._store = access.store
        self._caller = caller
        self._random = rng

    async def bury(self, run: RunningJob, definition: Job[Any, Any], bury: Bury) -> Move:
        """The move to write: `Buried`, which writes nothing, when `exhausted=` and the burial are committed."""
        if run.cancelled is not None:
            return exhausted_elsewhere(run.job, bury)
        committed = False

        async def call() -> None:
            nonlocal committed
            await repeated(lambda: self._call(run, definition, bury))
            committed = True

        try:
            await self._caller.surrounded(partial(run.job.handler_call, "exhausted"), call)
        except BaseException as error:
            if committed and is_own_ending(error, cancelled_by_us=run.cancelled is not None):
                failed = JobFailedAfterDone(run.job.id, run.job.kind, type_name(error), describe(error))
                self._store.events.emit(failed.because(error))
                return Buried(bury)
            if is_own_ending(error, cancelled_by_us=run.cancelled is not None):
                return after_exhausted_failed(error, run.job, bury, self._random)
            if isinstance(error, asyncio.CancelledError):
                if committed:
                    return Buried(bury)
                return Drop("stopped") if run.cancelled == "stop" else exhausted_elsewhere(run.job, bury)
            raise
        faults.hit("after_exhausted")
        return Buried(bury)

    async def _call(self, run: RunningJob, definition: Job[Any, Any], bury: Bury) -> None:
        run.uncertain = False
        if definition.exhausted_is_async:
            await within(TIMEOUT, self._in_loop(run, definition, bury))
        else:
            await self._in_thread(run, definition, bury)

    async def _in_loop(self, run: RunningJob, definition: Job[Any, Any], bury: Bury) -> None:
        self._access.check(run.job)
        committing = False
        try:
            async with self._store.transactions.begin() as tx:
                await tx.execute(LIMIT)
                lent = Lent("exhausted=")
                await lent.begin(tx, TIMEOUT)
                _mine(run.job, await self._bury(Begun(tx), run.job, bury))
                drafts = await definition.exhausted(self._given(tx, run.job, definition, bury))
                await lent.check(tx)
                for draft in _drafts(drafts):
                    await self._store.enqueue.one(draft, tx)
                self._about_to_commit(run.job)
                committing = True
        except RETRYABLE:
            run.uncertain = committing
            raise

    async def _in_thread(self, run: RunningJob, definition: Job[Any, Any], bury: Bury) -> None:
        abandoned = threading.Event()
        call = partial(self._sync, run, definition, bury, abandoned)
        try:
            await self._caller.call(call, is_async=False, timeout=TIMEOUT, patient=run.must_end)
        finally:
            abandoned.set()  # a thread that is left behind does not commit any more

    def _sync(self, run: RunningJob, definition: Job[Any, Any], bury: Bury, abandoned: threading.Event) -> None:
        self._access.check(run.job)
        committing = False
        try:
            with self._store.transactions.begin_sync() as tx:
                tx.execute(LIMIT)
                lent = Lent("exhausted=")
                lent.begin_sync(tx, TIMEOUT)
                _mine(run.job, finish(self._bury(BegunBlocking(tx), run.job, bury)))
                drafts = definition.exhausted(self._given(tx, run.job, definition, bury))
                lent.check_sync(tx)
                for draft in _drafts(drafts):
                    self._store.enqueue.one_sync(draft, tx)
                self._about_to_commit(run.job)
                if abandoned.is_set():
                    raise TrueupError("exhausted= ended too late; nothing was changed")
                committing = True
        except RETRYABLE:
            run.uncertain = committing
            raise

    def _given(
        self, tx: AsyncConnection[Any] | Connection[Any], job: ClaimedJob, definition: Job[Any, Any], bury: Bury
    ) -> Exhausted:
        known = exhausting_of(job, bury)
        return Exhausted(tx, job, known.reason, known.type, known.message, definition.arguments)

    def _bury(self, database: Database, job: ClaimedJob, bury: Bury) -> Coroutine[Any, Any, set[int]]:
        return self._store.jobs.on(database).bury(job.holder, [job], [bury.reason], [bury.failures])

    def _about_to_commit(self, job: ClaimedJob) -> None:
        self._access.check(job)
        faults.hit("in_exhausted")


def _mine(job: ClaimedJob, buried: set[int]) -> None:
    if not buried:
        raise lost(job)


def _drafts(given: Any) -> list[Draft]:
    drafts = [] if given is None else list(given)
    if not all(isinstance(draft, Draft) for draft in drafts):
        raise TypeError("exhausted= returns nothing, or a list of jobs to enqueue: [other_job.call(…)]")
    return drafts
