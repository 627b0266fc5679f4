"""App: a program declares its jobs on it and runs them with it. It wires the parts; each part does its own work.

`database.py` connects, `enqueueing.py` stores the runs of declared jobs and waits for their results, `declaring.py` has the decorators,
and this module makes workers and the groups of operations.

What an App needs to work (the database driver, the store, the worker) is imported by the first call that needs it: a program
that only imports its declarations starts without them. `tests/test_imports.py` lists what must stay out.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack, cast

from trueup.app.declaring import Declaring
from trueup.building import BUILDING, imported
from trueup.clock import Clock
from trueup.config.given import GivenSettings
from trueup.config.settings import SETTINGS
from trueup.durations import Duration, duration_of
from trueup.errors import DatabaseUnavailable
from trueup.instead import missing
from trueup.jobs.middleware import Middleware, Middlewares
from trueup.options import advised, naming

if TYPE_CHECKING:
    from trueup.dsn import Secret
    from trueup.operate.actions import ActionOperations
    from trueup.operate.alerts import AlertOperations, Post
    from trueup.operate.checks import Finding, Report
    from trueup.operate.jobs import Operations
    from trueup.operate.reconcilers import ReconcileOperations
    from trueup.operate.recovery import Backlog, Recovery
    from trueup.operate.rules import Registered
    from trueup.operate.schedules import ScheduleOperations
    from trueup.operate.workers import WorkerOperations
    from trueup.work.worker import Worker


class App(Declaring):
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
        super().__init__(database_url, clock, **settings)
        self.middlewares = Middlewares(middleware)
        self._examine_hooks: list[Callable[[], Awaitable[Iterable[Finding]]]] = []

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name):
            return missing(self, "App", name)

    def on_examine(self, examine: Callable[[], Awaitable[Iterable[Finding]]]) -> None:
        """Let `App.examine`, and so `trueup doctor`, await `examine` and add its findings.

        For services that handlers need. It should answer within a few seconds, and change nothing. One that raises is a finding.
        """
        self._examine_hooks.append(examine)

    @advised("a worker")
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
        self.logs.refresh()  # so that events before its start are logged, too
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
            from trueup.operate.alerts import AlertOperations
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
        warnings.warn("app.operations is now app.jobs; 0.2 removes the old name", DeprecationWarning, 2)
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

    async def recovery(self, since: Duration = "24h", *, backlog: Backlog | None = None) -> Recovery:
        """The ticks, rows and jobs of that time that were missed, above all in a downtime, and whether they are caught up."""
        with BUILDING:
            from trueup.operate.recovery import recovery
        store = await self.open()
        async with self.store.explained():
            return await recovery(
                store, duration_of("since", since), self.settings.keep_ticks, backlog or self.reconcilers.behind
            )

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
        """What `trueup doctor` finds about the database, this machine, the tables of this App's reconcilers and `on_examine`.

        An unreachable database is a finding, not an error.
        """
        with BUILDING:
            from trueup.operate.checks import away
            from trueup.operate.doctor import examine, examine_others
        try:
            store = await self.open()
            found = await examine(store, self.settings, self._reconcilers.all())
        except DatabaseUnavailable as error:
            found = away(error).findings
        return (*found, *await examine_others(self._examine_hooks))
