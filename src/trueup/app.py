"""App: a program declares its jobs on it and runs them with it. It wires the parts; each part does its own work.

What an App needs to work (the database driver, the store, the worker) is imported by the first call that needs it: a program
that only imports its declarations starts without them. `tests/test_imports.py` lists what must stay out.
"""

from __future__ import annotations

import asyncio
import sys
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, cast, overload

from trueup.backoff import Retry
from trueup.building import BUILDING, imported
from trueup.clock import Clock, DatabaseClock
from trueup.config import Settings, load_settings
from trueup.config.given import GivenSettings
from trueup.config.settings import SETTINGS
from trueup.dsn import with_search_path
from trueup.durations import Duration, Rate, duration_of
from trueup.errors import ConfigError, DatabaseUnavailable
from trueup.events import Events, JobsEnqueued
from trueup.include import DeclaredBy, import_included
from trueup.jobs.context import Context
from trueup.jobs.definition import DeclaredJob, ExecutorSource, Job, UniqueKey
from trueup.jobs.exhausted import OnExhausted
from trueup.jobs.handle import Enqueued, Handle
from trueup.jobs.job import Draft, OnConflict
from trueup.jobs.limits import Limit
from trueup.jobs.middleware import Middleware, Middlewares
from trueup.jobs.records import JobDetails
from trueup.jobs.registry import Registry
from trueup.leases.backend import Backend
from trueup.observe.logs import attach_logs
from trueup.options import check_known, naming, wrong
from trueup.reconcile.declare import Reconcilers, Table
from trueup.reconcile.declare import table as declare_table
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.reconcile.scan import Scan
from trueup.schedules.cron import Cron, Dst
from trueup.schedules.interval import Every
from trueup.schedules.spec import Spec

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from trueup.declared import ScheduleOptions
    from trueup.dsn import Secret
    from trueup.embedded.embedded import EmbeddedPostgres
    from trueup.operate.actions import ActionOperations
    from trueup.operate.alerting import AlertOperations
    from trueup.operate.checks import Finding, Report
    from trueup.operate.jobs import Operations
    from trueup.operate.posting import Post
    from trueup.operate.reconcilers import ReconcileOperations
    from trueup.operate.recovery import Backlog, Recovery
    from trueup.operate.rules import Registered
    from trueup.operate.schedules import ScheduleOperations
    from trueup.operate.workers import WorkerOperations
    from trueup.store.explained import Explained
    from trueup.store.schedules import Entry
    from trueup.store.store import Store
    from trueup.work.leases.lease import LeaseContext
    from trueup.work.leases.leasing import Leasing
    from trueup.work.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
JOB_OPTIONS = (Job.__init__.__kwdefaults__ or {}).keys() - {"local_names"}


class Declare:
    """The decorator `@app.job(…)` with its options filled in; typed so that `enqueue` takes what the function takes."""

    def __init__(self, app: App, options: dict[str, Any]) -> None:
        self._app = app
        self._options = options

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Awaitable[R]]
    ) -> DeclaredJob[P, R, Concatenate[Context, P], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> DeclaredJob[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R]
    ) -> DeclaredJob[P, R, Concatenate[Context, P], R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> DeclaredJob[P, R, P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Job[..., Any]:
        return self._app._declare(function, self._options)


class App:
    """Jobs on one PostgreSQL database and schema.

    Without `database_url`, `TRUEUP_DATABASE_URL`, `DATABASE_URL` or a configuration file that names one, an embedded
    PostgreSQL under `./.trueup` is started, or joined if it runs. Further keyword arguments are settings.
    """

    def __init__(
        self,
        database_url: str | None = None,
        *,
        clock: Clock | None = None,
        middleware: Iterable[Middleware] = (),
        **settings: Unpack[GivenSettings],
    ) -> None:
        self.settings: Settings = load_settings(overrides={"database_url": database_url, **settings})
        self.events = Events()
        self.logs = attach_logs(self.events)  # `logs.refresh()` after logging was configured anew
        self.registry = Registry()
        self.middlewares = Middlewares(middleware)
        self.clock: Clock = DatabaseClock() if clock is None else _clock(clock)
        self.payload_limit = self.settings.payload_limit
        self._embedded: EmbeddedPostgres | None = None
        self._store: Store | None = None
        self._schedules: dict[str, Entry] = {}
        self._scans: dict[str, Scan[Any]] = {}
        self._reconcilers = Reconcilers()
        self._closed_with_us: list[Callable[[], Awaitable[None]]] = []
        self._examined_with_us: list[Callable[[], Awaitable[Iterable[Finding]]]] = []
        self._declared_by = DeclaredBy()
        self._included: list[str] | None = None

    # -- declaring ----------------------------------------------------------------------------------------------------

    @overload
    def job(
        self, function: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> DeclaredJob[P, R, Concatenate[Context, P], Coroutine[Any, Any, R]]: ...
    @overload
    def job(self, function: Callable[P, Awaitable[R]], /) -> DeclaredJob[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def job(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> DeclaredJob[P, R, Concatenate[Context, P], R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> DeclaredJob[P, R, P, R]: ...
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
        executor: ExecutorSource | None = None,
        exhausted: OnExhausted | None = None,
    ) -> Declare: ...
    def job(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Declare a job: `@app.job` or `@app.job(queue=…, retry=…, timeout=…, …)`.

        A coroutine function runs on the event loop, a plain one in a thread, or on `executor`. `limit`, `rate` and `fair_by`
        hold for the whole fleet. `exhausted` is called in the transaction that makes the job a dead letter.
        """
        check_known("a job", options, JOB_OPTIONS)
        options["local_names"] = sys._getframe(1).f_locals
        return Declare(self, options) if function is None else self._declare(function, options)

    def _declare(self, function: Callable[..., Any], options: Mapping[str, Any]) -> Job[..., Any]:
        job: Job[..., Any] = DeclaredJob(self, function, **options)
        self.registry.add(job)
        self._declared_by.note("jobs", job.kind)
        return job

    def cron(
        self, expr: str, *, tz: str = "UTC", dst: Dst = "debian", **options: Unpack[ScheduleOptions]
    ) -> Callable[[Callable[P, Any]], Job[P, Any]]:
        """Run a function at the times of a cron expression in a time zone, once per tick for the whole fleet.

        The function may take a `Tick` and a `Context`. Its run is a job like any other; ScheduleOptions lists the options.
        """
        return self._scheduled(Cron(expr, tz, dst), options)

    def every(
        self, interval: Duration, *, anchor: datetime | None = None, **options: Unpack[ScheduleOptions]
    ) -> Callable[[Callable[P, Any]], Job[P, Any]]:
        """Run a function at a fixed interval of real time, counted from `anchor`; otherwise like `cron`."""
        return self._scheduled(Every(interval, anchor), options)

    def _scheduled(self, spec: Spec, options: ScheduleOptions) -> Callable[[Callable[P, Any]], Job[P, Any]]:
        with BUILDING:
            from trueup.declared import Declared
            from trueup.work.jobs.exclusive import Exclusive, asks_for_lease
        declared = Declared.of(spec, options)

        def declare(function: Callable[P, Any]) -> Job[P, Any]:
            if declared.lease is not None:
                function = Exclusive(self._leasing.holding, self.events).wrap(function, declared.lease, spec)
            elif asks_for_lease(function):
                raise ConfigError(f"{function.__qualname__} asks for the Lease it runs under; give its schedule lease=")
            job = cast(Job[P, Any], self._declare(function, declared.job_options))
            self._schedules[job.kind] = declared.entry(job)
            self._declared_by.note("schedules", job.kind)
            return job

        return declare

    def table(
        self,
        table: Any,
        *,
        key: Any = None,
        state: Any = None,
        changed_at: Any = None,
        version: Any = None,
        lease_columns: Iterable[Any] | None = None,
        where: Any = None,
    ) -> Table:
        """A table of yours, to declare reconcilers on: `"table"`, `"schema.table"`, a SQLAlchemy mapped class or a Django model.

        `key` is its primary key (a model's own unless given), `state` the column that says what state a row is in,
        `changed_at` when it last changed; a `version` is counted up with every change. `lease_columns` are (owner, until)
        columns of yours to which claims are written as well. `where` narrows it: SQL that is part of your code, or a
        SQLAlchemy expression.
        """
        return declare_table(self._add_reconciler, table, key, state, changed_at, version, lease_columns, where)

    def _add_reconciler(self, declared: Reconciler | Purge) -> None:
        self._reconcilers.add(declared)
        self._declared_by.note("reconcilers", declared.name)

    def scan(
        self,
        name: str,
        *,
        every: Duration,
        concurrency: int = 1,
        timeout: Duration = "5m",
        run_at_start: bool = True,
    ) -> Callable[[Callable[[Any], AsyncIterator[tuple[R, Any]]]], Scan[R]]:
        """Walk through a source that is not a table at the interval `every`: an async generator of `item, next_cursor`.

        One instance at a time scans, up to `concurrency` items at once, `timeout` for each. The function that handles an item
        is declared with `@….each`. After a crash or a stop another instance resumes at the last saved cursor.
        """

        def declare(source: Callable[[Any], AsyncIterator[tuple[R, Any]]]) -> Scan[R]:
            scan: Scan[R] = Scan(
                name, source, every=every, concurrency=concurrency, timeout=timeout, run_at_start=run_at_start
            )
            if name in self._scans:
                raise ConfigError(f"scan {name!r} is declared twice; give one of them another name")
            self._scans[name] = scan
            self._declared_by.note("scans", name)
            return scan

        return declare

    def middleware(self, middleware: Middleware) -> None:
        """Add hooks around every enqueue (`around_enqueue`), every call of a handler (`around_handler`), or both.

        `around_enqueue(call)` returns a context manager, `around_handler(call)` an async one. The first middleware is the
        outermost.
        """
        self.middlewares.add(middleware)

    def discover(self) -> list[str]:
        """Import the modules that `include` names, so that the App knows their declarations; returns their names.

        Workers, commands and `enqueue` by name call it. Raises ConfigError that names the module that cannot be imported, and
        why.
        """
        if self._included is None:
            self._included = []  # a module that calls it while it is being imported continues
            try:
                self._included = import_included(self.settings.include or ())
            except BaseException:
                self._included = None
                raise
        return list(self._included)

    # -- the database -------------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store; the first use starts or joins the embedded PostgreSQL if that is what we work on."""
        if self._store is None:
            with BUILDING:
                if self._store is None:
                    self._store = self._build_store()
        return self._store

    def _build_store(self) -> Store:
        with BUILDING:
            from trueup.store.store import Store
        store = Store(
            self._url(),
            schema=self.settings.schema,
            events=self.events,
            clock=self.clock,
            aging=self.settings.aging,
            pool_size=self.settings.pool_size,
            connect_timeout=self.settings.connect_timeout,
            statement_timeout=self.settings.statement_timeout,
            prepare=self.settings.prepare,
            retire_after=self.settings.retire_after,
            notify=self.settings.notify,
            pool_timeout=self.settings.pool_timeout,
            middlewares=self.middlewares,
        )
        if self._embedded is not None:
            store.migrate()  # only this process maintains the embedded server
        return store

    def _url(self) -> str:
        if self.settings.database_url is not None:
            url = self.settings.database_url.reveal()
        else:
            with BUILDING:
                from trueup.embedded.embedded import EmbeddedPostgres
            self._embedded = EmbeddedPostgres(Path(self.settings.data_dir))
            url = self._embedded.acquire()
        path = self.settings.search_path
        return with_search_path(url, path) if path else url

    async def open(self) -> Store:
        """Connect, without blocking the event loop while the embedded server starts."""
        self.logs.refresh()  # logging may have been configured since the App was made
        store = await asyncio.to_thread(lambda: self.store)
        await store.open()
        return store

    def on_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Let `App.close` await `close` before it closes the database's connections.

        For resources that handlers keep open. The last one registered comes first. Each is called even if another one failed,
        and every time the App is closed.
        """
        self._closed_with_us.append(close)

    def on_examine(self, examine: Callable[[], Awaitable[Iterable[Finding]]]) -> None:
        """Let `App.examine`, and so `trueup doctor`, await `examine` and add its findings.

        For services that handlers need. It should answer within a few seconds, and change nothing. One that raises is a finding.
        """
        self._examined_with_us.append(examine)

    async def close(self) -> None:
        """Close the connections, and release the embedded server, which stops after its last user."""
        async with AsyncExitStack() as ends:
            ends.push_async_callback(self._close_store)
            for close in self._closed_with_us:
                ends.push_async_callback(close)

    async def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()
        self._release()

    def close_sync(self) -> None:
        """`close` for programs without an event loop."""
        store, self._store = self._store, None
        if store is not None:
            store.sync_pool.close()
            store.transactions.close_sync()
            store.terms.close()
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

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A transaction on a connection of the App's, for your own statements and for `tx=`."""
        store = self._store or await self.open()
        async with store.transactions.begin() as connection:
            yield connection

    async def now(self, tx: Any = None) -> datetime:
        """The database's time, which decides everything. With your transaction as `tx`, the time it began."""
        store = self._store or await self.open()
        async with self._explained(tx):
            return await store.now(tx)

    def now_sync(self, tx: Any = None) -> datetime:
        """`now` for code without an event loop."""
        with self._explained(tx):
            return self.store.now_sync(tx)

    async def rate(self, name: str, rate: str | Rate, *, wait: Duration = "1m") -> None:
        """Wait until the next call of the whole fleet may start: `await app.rate("provider", "1/s")` before each one.

        Raises RateExceeded, which says how far away it is (`after`), when that would take longer than `wait`, an hour at most.
        """
        store = self._store or await self.open()
        async with self._explained():
            await store.rates.wait(name, rate, wait)

    def rate_sync(self, name: str, rate: str | Rate, *, wait: Duration = "1m") -> None:
        """`rate` for code without an event loop."""
        with self._explained():
            self.store.rates.wait_sync(name, rate, wait)

    # -- running ------------------------------------------------------------------------------------------------------

    def worker(
        self, *, queues: str | Iterable[str] | Mapping[str, int | None] | None = None, concurrency: int | None = None
    ) -> Worker:
        """A worker for this App's jobs: `async with app.worker(concurrency=50): …`, or `await app.worker().run()`."""
        with BUILDING:
            from trueup.operate.watch import watching
            from trueup.work.worker import Worker
        given: dict[str, Any] = {}
        for name, value in (("queues", queues), ("concurrency", concurrency)):
            if value is not None:
                with naming(f"worker: {name}"):
                    given[name] = SETTINGS[name].kind.read(value)
        self.logs.refresh()  # what happens before it has started is to be logged, too
        for event in self._declared_by.events(self.discover()):
            self.events.emit(event)
        return Worker(
            self.store,
            self.registry,
            self.settings,
            self.events,
            **given,
            schedules=list(self._schedules.values()),
            scans=list(self._scans.values()),
            reconcilers=[each for each in self._reconcilers.all() if not each.on_demand],
            beside=watching(self.store, self.settings, self.events, self._post_to),
        )

    def _post_to(self, url: Secret) -> Post:
        """A client that posts to this URL. Raises ConfigError when the URL is not allowed, or a package is missing."""
        webhooks: Any = imported("trueup.integrations.webhooks")
        webhook = webhooks.Webhook(url.reveal(), allow=self.settings.outgoing_allow or ())
        return lambda document, key: cast(Awaitable[object], webhook.deliver(document, key=key))

    def lease(
        self,
        name: str,
        *,
        ttl: Duration = "30s",
        wait: Duration | None = None,
        backend: Backend = "postgres",
        key: int | str | None = None,
    ) -> LeaseContext:
        """Exclusive ownership for a limited time: `async with app.lease("nightly") as lease: …`, or `with` in sync code.

        Raises NotAcquired when another process holds it; with `wait`, after waiting that long. `key` is the number of an
        advisory lock, or the key in Redis, that other programs use, too.
        """
        return self._leasing.lease(name, ttl, wait, backend, key)

    lease_sync = lease

    @property
    def _leasing(self) -> Leasing:
        with BUILDING:
            from trueup.work.leases.leasing import Leasing
        return Leasing(lambda: self.store, self.settings, self.events)

    @property
    def jobs(self) -> Operations:
        """Reading jobs and acting on them: cancel, retry, revive, discard."""
        with BUILDING:
            from trueup.operate.jobs import Operations
        return Operations(self.store, self.events)

    @property
    def workers(self) -> WorkerOperations:
        """The fleet: `await app.workers.list()`."""
        with BUILDING:
            from trueup.operate.workers import WorkerOperations
        return WorkerOperations(self.store)

    @property
    def alerts(self) -> AlertOperations:
        """Every check with its limit, and the alerts that fire: `await app.alerts.list()`."""
        with BUILDING:
            from trueup.operate.alerting import AlertOperations
        return AlertOperations(self.store, self.settings)

    @property
    def actions(self) -> ActionOperations:
        """The record of what people did: `await app.actions.list()`."""
        with BUILDING:
            from trueup.operate.actions import ActionOperations
        return ActionOperations(self.store)

    @property
    def operations(self) -> Operations:
        """The old name of `jobs`, until 0.2."""
        warnings.warn("app.operations is called app.jobs now; the old name goes with 0.2", DeprecationWarning, 2)
        return self.jobs

    @property
    def schedules(self) -> ScheduleOperations:
        """Acting on schedules: create, edit, pause, resume, retire, delete, trigger, backfill, audit."""
        with BUILDING:
            from trueup.operate.schedules import ScheduleOperations
        self.discover()
        return ScheduleOperations(
            self.store, self.registry, self.events, self.settings.keep_ticks, declared=tuple(self._schedules)
        )

    @property
    def reconcilers(self) -> ReconcileOperations:
        """Acting on reconcilers and scans: list, show, run, pause, resume, release and discard quarantined rows."""
        with BUILDING:
            from trueup.operate.reconcilers import ReconcileOperations
        self.discover()
        declared, scans = self._reconcilers, self._scans
        return ReconcileOperations(self.store, self.settings, self.events, declared, scans, knows=self.declares_work)

    def registered(self) -> Registered:
        """The names of what this App declares, and the settings that alert rules follow."""
        with BUILDING:
            from trueup.operate.rules import Registered
        self.discover()
        kinds = tuple(job.kind for job in self.registry)
        names = tuple(self._reconcilers.names())
        return Registered(kinds, names, tuple(self._scans), self.settings.check_limits, self.settings.alert_after)

    @property
    def declares_work(self) -> bool:
        """Whether there is anything for a worker to do: jobs, schedules, reconcilers or scans."""
        self.discover()
        return bool(len(self.registry) or self._reconcilers.names() or self._scans)

    async def recovery(self, since: Duration = "24h", *, backlog: Backlog | None = None) -> Recovery:
        """What was missed since then, above all in a downtime, and what has been caught up."""
        with BUILDING:
            from trueup.operate.recovery import recovery
        store = await self.open()
        async with self._explained():
            return await recovery(
                store, duration_of("since", since), self.settings.keep_ticks, backlog or self.reconcilers.behind
            )

    def named(self, kind: str) -> Job[..., Any]:
        """The job of this name, to enqueue it with options: `app.named("send").using(delay="5m").enqueue(to="ada")`.

        A kind that neither this App nor its included modules declare is assumed to belong to another program. Only its name and
        that JSON can hold the arguments are checked; arguments are named only; the job waits for a worker that knows the kind.
        """
        with BUILDING:
            from trueup.jobs.named import NamedJob
        self.discover()
        return self.registry.get(kind) or NamedJob(self, kind)

    async def enqueue(self, kind: str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Store a run of a job by its name; see `named`. Raises InvalidArguments when the arguments do not fit."""
        return await self.named(kind).enqueue(*args, **kwargs)

    def enqueue_sync(self, kind: str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """`enqueue` for code without an event loop."""
        return self.named(kind).enqueue_sync(*args, **kwargs)

    async def check(self) -> Report:
        """The findings of `trueup status --check`; an unreachable database is a finding, not an error."""
        with BUILDING:
            from trueup.operate.checks import away, check
        try:
            store = await self.open()
        except DatabaseUnavailable as error:
            return away(error)
        return await check(store, self.settings.check_limits)

    async def examine(self) -> tuple[Finding, ...]:
        """What `trueup doctor` finds about the database, this machine, the tables of this App's reconcilers and `on_examine`."""
        with BUILDING:
            from trueup.operate.doctor import examine, examine_others
        store = await self.open()
        async with self._explained():
            found = await examine(store, self.settings, self._reconcilers.all())
        return (*found, *await examine_others(self._examined_with_us))

    # -- what declared jobs ask of their App (jobs.definition.Enqueuer, jobs.handle.Waiter) -----------------------------

    async def put(self, draft: Draft, tx: Any) -> Handle[Any]:
        store = self._store or await self.open()
        async with self._explained(tx):
            stored = await store.enqueue.one(draft, tx)
        self._enqueued(draft, int(stored.created), int(not stored.created), tx)
        return Handle(stored.job_id, self, stored.created)

    def put_sync(self, draft: Draft, tx: Any) -> Handle[Any]:
        with self._explained(tx):
            stored = self.store.enqueue.one_sync(draft, tx)
        self._enqueued(draft, int(stored.created), int(not stored.created), tx)
        return Handle(stored.job_id, self, stored.created)

    async def put_many(self, template: Draft, drafts: Iterator[Draft], tx: Any) -> Enqueued:
        store = self._store or await self.open()
        async with self._explained(tx):
            stored = await store.enqueue.many(template, drafts, tx)
        self._enqueued(template, stored.created, stored.kept, tx)
        return Enqueued(stored.created, stored.kept)

    def put_many_sync(self, template: Draft, drafts: Iterator[Draft], tx: Any) -> Enqueued:
        with self._explained(tx):
            stored = self.store.enqueue.many_sync(template, drafts, tx)
        self._enqueued(template, stored.created, stored.kept, tx)
        return Enqueued(stored.created, stored.kept)

    def _explained(self, tx: Any = None) -> Explained:
        """Errors of the driver as trueup's own where these say more."""
        with BUILDING:
            from trueup.store.explained import Explained
        return Explained(self.store, tx)

    def _enqueued(self, draft: Draft, created: int, kept: int, tx: Any) -> None:
        """Emit the event: in our own transaction after the commit, in the caller's now, because we do not see its end."""
        if not self.events.wants(JobsEnqueued):
            return
        event = JobsEnqueued(draft.kind, draft.queue, created, kept)
        if tx is None or not self.store.transactions.after_commit(tx, lambda: self.events.emit(event)):
            self.events.emit(event)

    async def wait_for_result(self, job_id: int, timeout: Duration | None) -> Any:
        """Poll until the job has ended; see Handle.result."""
        with BUILDING:
            from trueup.operate.results import ResultWait
        wait = ResultWait(self.registry, job_id, timeout)
        store = self._store or await self.open()
        while True:
            async with self._explained():
                ending = await store.jobs.outcome(job_id)
            ended, value = wait.read(ending)
            if ended:
                return value
            await asyncio.sleep(wait.pause())

    def wait_for_result_sync(self, job_id: int, timeout: Duration | None) -> Any:
        with BUILDING:
            from trueup.operate.results import ResultWait
            from trueup.store.db.blocking import finish
        wait = ResultWait(self.registry, job_id, timeout)
        while True:
            with self._explained():
                ending = finish(self.store.jobs.on(self.store.blocking).outcome(job_id))
            ended, value = wait.read(ending)
            if ended:
                return value
            time.sleep(wait.pause())

    async def status_of(self, job_id: int) -> JobDetails:
        with BUILDING:
            from trueup.operate.results import known
        if self._store is None:
            await self.open()
        return known(job_id, await self.jobs.get(job_id))

    def status_of_sync(self, job_id: int) -> JobDetails:
        with BUILDING:
            from trueup.operate.results import known
        return known(job_id, self.jobs.get_sync(job_id))


def _clock(clock: Clock) -> Clock:
    if isinstance(clock, type) or not all(callable(getattr(clock, name, None)) for name in ("now", "elapsed")):
        raise wrong("clock", clock, "an object with now() and elapsed()")
    return clock
