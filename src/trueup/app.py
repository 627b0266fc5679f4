"""App: what a program declares its jobs on, and what it asks to run them. It wires the parts; each part does its own work."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast, overload

from psycopg import AsyncConnection, Connection, errors

from trueup.backoff import Retry
from trueup.clock import Clock, DatabaseClock, elapsed
from trueup.config import Settings, load_settings
from trueup.durations import Duration, Rate, parse_duration
from trueup.embedded.embedded import EmbeddedPostgres
from trueup.errors import JobCancelled, JobFailed, NotFound, ResultTimeout, SchemaMismatch
from trueup.events import Events, JobsEnqueued
from trueup.jobs.context import Context
from trueup.jobs.definition import Job, UniqueKey
from trueup.jobs.handle import Enqueued, Handle
from trueup.jobs.job import Draft, OnConflict
from trueup.jobs.limits import Limit
from trueup.jobs.registry import Registry
from trueup.observe.logs import attach_logs
from trueup.operations import Operations
from trueup.store.store import Store
from trueup.worker.runtime import Worker

P = ParamSpec("P")
R = TypeVar("R")


class Declare:
    """The decorator `@app.job(…)` with its options filled in; typed so that `enqueue` takes what the function takes."""

    def __init__(self, app: App, options: dict[str, Any]) -> None:
        self._app = app
        self._options = options

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[R]]) -> Job[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> Job[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> Job[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Job[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Job[..., Any]:
        return self._app._declare(function, self._options)


class App:
    """Jobs on one PostgreSQL database and schema.

    Without `database_url`, `TRUEUP_DATABASE_URL`, `DATABASE_URL` or a configuration file that names one, an embedded
    PostgreSQL under `./.trueup` is started, or joined if it runs. Further keyword arguments are settings.
    """

    def __init__(self, database_url: str | None = None, *, clock: Clock | None = None, **settings: Any) -> None:
        self.settings: Settings = load_settings(overrides={"database_url": database_url, **settings})
        self.events = Events()
        self.logs = attach_logs(self.events)  # `logs.refresh()` after logging was configured anew
        self.registry = Registry()
        self.clock: Clock = clock or DatabaseClock()
        self.payload_limit = self.settings.payload_limit
        self._embedded: EmbeddedPostgres | None = None
        self._store: Store | None = None

    # -- declaring ----------------------------------------------------------------------------------------------------

    @overload
    def job(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Job[P, R]: ...
    @overload
    def job(self, function: Callable[P, Awaitable[R]], /) -> Job[P, R]: ...
    @overload
    def job(self, function: Callable[Concatenate[Context, P], R], /) -> Job[P, R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> Job[P, R]: ...
    @overload
    def job(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        retry: Retry | None = None,
        timeout: Duration | None = None,
        priority: int = 0,
        limit: int | Limit | None = None,
        rate: str | Rate | None = None,
        fair_by: str | None = None,
        unique: UniqueKey | None = None,
        unique_for: Duration | None = None,
        on_conflict: OnConflict = "keep",
        executor: Executor | None = None,
    ) -> Declare: ...
    def job(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Declare a job: `@app.job` or `@app.job(queue=…, retry=…, timeout=…, …)`.

        A coroutine function runs on the event loop, a plain one in a thread, or on `executor`. `limit`, `rate` and `fair_by`
        hold for the whole fleet.
        """
        options["local_names"] = sys._getframe(1).f_locals
        return Declare(self, options) if function is None else self._declare(function, options)

    def _declare(self, function: Callable[..., Any], options: Mapping[str, Any]) -> Job[..., Any]:
        job: Job[..., Any] = Job(self, function, **options)
        self.registry.add(job)
        return job

    # -- the database -------------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store; the first use starts or joins the embedded PostgreSQL if that is what we work on."""
        if self._store is None:
            self._store = Store(
                self._url(),
                schema=self.settings.schema,
                events=self.events,
                clock=self.clock,
                aging=self.settings.aging,
                pool_size=self.settings.pool_size,
                connect_timeout=self.settings.connect_timeout,
                statement_timeout=self.settings.statement_timeout,
                prepare=self.settings.prepare,
            )
            if self._embedded is not None:
                self._store.migrate()  # nobody else looks after a server that is ours
        return self._store

    def _url(self) -> str:
        if self.settings.database_url is not None:
            return self.settings.database_url.reveal()
        self._embedded = EmbeddedPostgres(Path(self.settings.data_dir))
        return self._embedded.acquire()

    async def open(self) -> Store:
        """Connect, without blocking the event loop while the embedded server starts."""
        store = await asyncio.to_thread(lambda: self.store)
        await store.open()
        return store

    async def close(self) -> None:
        """Give the connections back, and the embedded server if we were its last user."""
        store, self._store = self._store, None
        if store is not None:
            await store.close()
        self._release()

    def close_sync(self) -> None:
        """`close` for programs without an event loop."""
        store, self._store = self._store, None
        if store is not None:
            store.sync_pool.close()
        self._release()

    def _release(self) -> None:
        embedded, self._embedded = self._embedded, None
        if embedded is not None:
            embedded.release()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- running ------------------------------------------------------------------------------------------------------

    def worker(
        self, *, queues: Mapping[str, int | None] | list[str] | None = None, concurrency: int | None = None
    ) -> Worker:
        """A worker for this App's jobs: `async with app.worker(concurrency=50): …`, or `await app.worker().run()`."""
        if isinstance(queues, list):
            queues = dict.fromkeys(queues)
        return Worker(self.store, self.registry, self.settings, self.events, queues=queues, concurrency=concurrency)

    @property
    def operations(self) -> Operations:
        """What people do to jobs: cancel, hurry, revive, discard."""
        return Operations(self.store, self.events)

    # -- what declared jobs ask of their App (jobs.definition.Enqueuer, jobs.handle.Waiter) -----------------------------

    async def put(self, draft: Draft, tx: AsyncConnection[Any] | None) -> Handle[Any]:
        store = self._store or await self.open()
        with _missing_schema_explained(self.settings.schema):
            stored = await store.enqueue.one(draft, tx)
        self._enqueued(draft, int(stored.created), int(not stored.created))
        return Handle(stored.job_id, self, stored.created)

    def put_sync(self, draft: Draft, tx: Connection[Any] | None) -> Handle[Any]:
        with _missing_schema_explained(self.settings.schema):
            stored = self.store.enqueue.one_sync(draft, tx)
        self._enqueued(draft, int(stored.created), int(not stored.created))
        return Handle(stored.job_id, self, stored.created)

    async def put_many(self, template: Draft, drafts: Iterator[Draft], tx: AsyncConnection[Any] | None) -> Enqueued:
        store = self._store or await self.open()
        with _missing_schema_explained(self.settings.schema):
            stored = await store.enqueue.many(template, drafts, tx)
        self._enqueued(template, stored.created, stored.kept)
        return Enqueued(stored.created, stored.kept)

    def put_many_sync(self, template: Draft, drafts: Iterator[Draft], tx: Connection[Any] | None) -> Enqueued:
        with _missing_schema_explained(self.settings.schema):
            stored = self.store.enqueue.many_sync(template, drafts, tx)
        self._enqueued(template, stored.created, stored.kept)
        return Enqueued(stored.created, stored.kept)

    def _enqueued(self, draft: Draft, created: int, kept: int) -> None:
        if self.events.wants(JobsEnqueued):
            self.events.emit(JobsEnqueued(draft.kind, draft.queue, created, kept))

    async def wait_for_result(self, job_id: int, timeout: Duration | None) -> Any:
        """Poll until the job has ended; see Handle.result."""
        deadline = None if timeout is None else elapsed() + parse_duration(timeout).total_seconds()
        store = self._store or await self.open()
        pause = 0.005
        while True:
            ending = await store.jobs.outcome(job_id)
            match ending.state if ending is not None else None:
                case None:
                    raise NotFound(f"job {job_id} is not known; its history may have passed its retention")
                case "done":
                    return cast(Any, ending).result
                case "dead":
                    raise JobFailed(
                        f"job {job_id} is dead: {cast(Any, ending).reason}: {_last_error(cast(Any, ending).error)}",
                        job_id,
                    )
                case "cancelled":
                    raise JobCancelled(f"job {job_id} was cancelled: {cast(Any, ending).reason}", job_id)
            if deadline is not None and elapsed() + pause > deadline:
                raise ResultTimeout(f"job {job_id} is not finished after {timeout}")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.5)


@contextmanager
def _missing_schema_explained(schema: str) -> Iterator[None]:
    try:
        yield
    except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
        raise SchemaMismatch(
            f"the database has no trueup schema {schema!r} yet ({error.diag.message_primary}); run `trueup migrate`"
        ) from None


def _last_error(error: Mapping[str, Any] | None) -> str:
    return f"{error.get('type')}: {error.get('message')}" if error else "no error was recorded"
