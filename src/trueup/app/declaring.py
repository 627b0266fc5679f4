"""The part of an App that programs declare on: jobs, schedules, tables with reconcilers, scans, middleware, modules to import."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, overload

from trueup.app.enqueueing import Enqueueing
from trueup.backoff import Retry
from trueup.building import BUILDING
from trueup.durations import Duration, Rate
from trueup.errors import ConfigError
from trueup.include import DeclaredBy, import_included
from trueup.jobs.context import Context
from trueup.jobs.definition import DeclaredJob, ExecutorSource, Job
from trueup.jobs.exhausted import OnExhausted
from trueup.jobs.handle import Handle
from trueup.jobs.job import OnConflict
from trueup.jobs.limits import Limit
from trueup.jobs.middleware import Middleware
from trueup.jobs.options import UniqueKey
from trueup.options import advised, check_function, check_known
from trueup.reconcile.declare import DeclaredReconcilers, Table
from trueup.reconcile.declare import table as declare_table
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.reconcile.scan import Scan
from trueup.schedules.cron import Cron, Dst
from trueup.schedules.spec import Spec
from trueup.schedules.when import Every

if TYPE_CHECKING:
    from trueup.app.declared import ScheduleOptions
    from trueup.store.schedules import Entry

P = ParamSpec("P")
R = TypeVar("R")
JOB_OPTIONS = (Job.__init__.__kwdefaults__ or {}).keys() - {"local_names"}


class Declare:
    """The decorator `@app.job(…)` with its options filled in; typed so that `enqueue` takes what the function takes."""

    def __init__(self, app: Declaring, options: dict[str, Any]) -> None:
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


class Declaring(Enqueueing):
    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._schedules: dict[str, Entry] = {}
        self._scans: dict[str, Scan[Any]] = {}
        self._reconcilers = DeclaredReconcilers()
        self._declared_by = DeclaredBy()
        self._included: list[str] | None = None

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

    @advised("a schedule")
    def cron(
        self, expr: str, *, tz: str = "UTC", dst: Dst = "debian", **options: Unpack[ScheduleOptions]
    ) -> Callable[[Callable[P, R]], DeclaredJob[P, Any, P, R]]:
        """Run a function at the times of a cron expression in a time zone, once per tick for the whole fleet.

        The function may take a `Tick` and a `Context`. Its run is a job like any other; ScheduleOptions lists the options.
        """
        return self._scheduled(Cron(expr, tz, dst), options)

    @advised("a schedule")
    def every(
        self, interval: Duration, *, anchor: datetime | None = None, **options: Unpack[ScheduleOptions]
    ) -> Callable[[Callable[P, R]], DeclaredJob[P, Any, P, R]]:
        """Run a function at a fixed interval of real time, counted from `anchor`; otherwise like `cron`."""
        return self._scheduled(Every(interval, anchor), options)

    def _scheduled(self, spec: Spec, options: ScheduleOptions) -> Callable[[Callable[P, R]], DeclaredJob[P, Any, P, R]]:
        with BUILDING:
            from trueup.app.declared import Declared
            from trueup.work.jobs.exclusive import Exclusive, asks_for_lease
        declared = Declared.of(spec, options)

        def declare(function: Callable[P, R]) -> DeclaredJob[P, Any, P, R]:
            check_function("@app.cron" if isinstance(spec, Cron) else "@app.every", function)
            if declared.lease is not None:
                function = Exclusive(self._leasing.holding, self.events).wrap(function, declared.lease, spec)
            elif asks_for_lease(function):
                raise ConfigError(f"{function.__qualname__} has a Lease parameter, but its schedule has no lease=")
            job = cast("DeclaredJob[P, Any, P, R]", self._declare(function, declared.job_options))
            self._schedules[job.kind] = declared.entry(job)
            self._declared_by.note("schedules", job.kind)
            return job

        return declare

    @advised("a table")
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

    @advised("a scan")
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

    @property
    def declares_work(self) -> bool:
        """Whether there is anything for a worker to do: jobs, schedules, reconcilers or scans."""
        self.discover()
        return bool(len(self.registry) or self._reconcilers.names() or self._scans)

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
