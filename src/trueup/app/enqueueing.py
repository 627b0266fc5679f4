"""The part of an App that serves declared jobs (`jobs.definition.Enqueuer`) and their handles (`jobs.handle.Waiter`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trueup.app.database import OnDatabase
from trueup.building import BUILDING
from trueup.durations import Duration
from trueup.events import JobsEnqueued
from trueup.jobs.handle import Enqueued, Handle
from trueup.jobs.job import Draft
from trueup.jobs.records import JobDetails
from trueup.jobs.registry import Registry

if TYPE_CHECKING:
    from trueup.operate.results import Results
    from trueup.store.store import Store


class Enqueueing(OnDatabase):
    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.registry = Registry()
        self.payload_limit = self.settings.payload_limit

    async def put(self, draft: Draft, tx: Any) -> Handle[Any]:
        store = self._store or await self.open()
        async with store.explained(tx):
            stored = await store.enqueue.one(draft, tx)
        self._enqueued(draft, int(stored.created), int(not stored.created), tx)
        return Handle(stored.job_id, self, stored.created)

    def put_sync(self, draft: Draft, tx: Any) -> Handle[Any]:
        with self.store.explained(tx):
            stored = self.store.enqueue.one_sync(draft, tx)
        self._enqueued(draft, int(stored.created), int(not stored.created), tx)
        return Handle(stored.job_id, self, stored.created)

    async def put_many(self, template: Draft, drafts: Iterable[Draft], tx: Any) -> Enqueued:
        store = self._store or await self.open()
        async with store.explained(tx):
            stored = await store.enqueue.many(template, drafts, tx)
        self._enqueued(template, stored.created, stored.kept, tx)
        return Enqueued(stored.created, stored.kept)

    def put_many_sync(self, template: Draft, drafts: Iterable[Draft], tx: Any) -> Enqueued:
        with self.store.explained(tx):
            stored = self.store.enqueue.many_sync(template, drafts, tx)
        self._enqueued(template, stored.created, stored.kept, tx)
        return Enqueued(stored.created, stored.kept)

    def _enqueued(self, draft: Draft, created: int, kept: int, tx: Any) -> None:
        """Emit the event: after the commit of our own transaction, and at once in the caller's, whose end we do not see."""
        if not self.events.wants(JobsEnqueued):
            return
        event = JobsEnqueued(draft.kind, draft.queue, created, kept)
        if tx is None or not self.store.transactions.after_commit(tx, lambda: self.events.emit(event)):
            self.events.emit(event)

    async def wait_for_result(self, job_id: int, timeout: Duration | None) -> Any:
        store = self._store or await self.open()
        return await self._results(store).wait(job_id, timeout)

    def wait_for_result_sync(self, job_id: int, timeout: Duration | None) -> Any:
        return self._results(self.store).wait_sync(job_id, timeout)

    async def status_of(self, job_id: int) -> JobDetails:
        store = self._store or await self.open()
        return await self._results(store).status(job_id)

    def status_of_sync(self, job_id: int) -> JobDetails:
        return self._results(self.store).status_sync(job_id)

    def _results(self, store: Store) -> Results:
        with BUILDING:
            from trueup.operate.results import Results
        return Results(store, self.registry)
