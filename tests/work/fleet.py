"""Instances of services on one database, as deployments start and stop them; their time is moved by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import psycopg
from psycopg import sql

from trueup import App, Tick
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

Declare = Callable[[App], None]


def crons(*names: str, expr: str = "0 * * * *", queue: str = "default") -> Declare:
    """A release that declares these schedules."""

    def declare(app: App) -> None:
        for name in names:

            @app.cron(expr, name=name, queue=queue)
            async def run(tick: Tick) -> None: ...

    return declare


def jobs(*names: str, **options: Any) -> Declare:
    """A release that declares these jobs."""

    def declare(app: App) -> None:
        for name in names:

            @app.job(name=name, **options)
            async def run(tenant: str = "a") -> None: ...

    return declare


class Pod:
    """One instance of a service, without loops."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.worker: ManualWorker | None = None

    async def start(self) -> None:
        self.worker = ManualWorker(self.app)
        await self.worker.begin()

    async def renew(self) -> None:
        assert self.worker is not None
        worker = self.worker.worker
        if not await worker.store.workers.renew(worker.registrations.current.holder, worker.settings.lease_for):
            await worker.register()

    async def pass_by(self) -> None:
        """What its loops do now and then, with its lease renewed."""
        await self.renew()
        assert self.worker is not None
        declarer = self.worker.worker.declarer
        await declarer._adopt()
        await declarer.look()
        await declarer.survey()

    async def work(self) -> int:
        """Plan what is due, and run it. Returns how many jobs were run."""
        assert self.worker is not None
        while (await self.worker.worker.ticker.plan()).more:
            pass
        return await self.worker.run_pending()

    async def stop(self) -> None:
        assert self.worker is not None
        worker, self.worker = self.worker.worker, None
        await worker.store.workers.leave(worker.registrations.current.holder)
        await worker.abandon()


class Fleet:
    def __init__(self, url: str, clock: ManualClock) -> None:
        self.url, self.clock = url, clock
        self.pods: list[Pod] = []
        self.events: list[Any] = []

    @property
    def alive(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.worker is not None]

    async def start(self, *declares: Declare, **settings: Any) -> Pod:
        app = App(self.url, clock=self.clock, **settings)
        for declare in declares:
            declare(app)
        pod = Pod(app)
        self.pods.append(pod)
        app.events.subscribe(self.events.append)
        await pod.start()
        return pod

    async def live(self, hours: float) -> None:
        """Let time pass; whoever runs does what its loops do."""
        for _ in range(round(hours * 4)):
            self.clock.advance(minutes=15)
            for pod in self.alive:
                await pod.renew()
            for pod in self.alive:
                await pod.pass_by()

    async def close(self) -> None:
        for pod in self.pods:
            if pod.worker is not None:
                await pod.worker.end()
            await pod.app.close()

    def states(self) -> dict[str, str]:
        return dict(self.rows("select name, state from trueup.schedules"))

    def said(self, cls: type, field: str = "schedule") -> list[str]:
        return [getattr(event, field) for event in self.events if isinstance(event, cls)]

    def run(self, query: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL(query))  # type: ignore[arg-type]

    def rows(self, query: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(query.encode(), params).fetchall()

    def one(self, query: str) -> Any:
        rows = self.rows(query)
        return rows[0][0] if rows else None

    def bury_all(self) -> None:
        """Every queued job is dead, as if all its attempts had failed."""
        self.run(
            "with gone as (delete from trueup.jobs returning *) insert into trueup.history (id, kind, queue, lane, key, state, priority,"
            " run_at, args, attempt, max_attempts, crashes, term, enqueued_at, finished_at, errors) select id, kind, queue, lane, key,"
            " 'dead', priority, run_at, args, 1, 1, 0, 1, enqueued_at, now(), '[]' from gone"
        )
