"""The application over a clock that tests move, with a real Redis for its locks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from apps.pulse.config import Config
from apps.pulse.plan import Job
from apps.pulse.service import build
from apps.servers.valkey import Valkey
from trueup import App
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker


class Office:
    def __init__(self, url: str, clock: ManualClock, redis: Valkey, **variables: str) -> None:
        self.config = Config.from_environment({"PULSE_REDIS_URL": redis.url, **variables})
        self.app = App(url, clock=clock, **self.config.settings)
        self.service = build(self.config, self.app)
        self.clock, self.redis = clock, redis
        self.worker = ManualWorker(self.app)

    async def begin(self) -> None:
        await self.service.prepare()
        await self.worker.begin()
        for entry in self.app._schedules.values():
            await self.app.store.schedules.put(entry)

    async def end(self) -> None:
        await self.worker.end()
        await self.service.close()

    async def run(self, job: Job) -> None:
        """One tick of the job, now, and what comes of it; nothing is waited for."""
        await self.app.schedules.trigger(job.name)
        await self.worker.run_pending()
        self.clock.advance(microseconds=1)  # the next one is another tick

    # -- the tables -----------------------------------------------------------------------------------------------------

    async def all(self, statement: str, **params: Any) -> list[dict[str, Any]]:
        async with self.app.transaction() as tx:
            return await rows(tx, statement, params)

    async def one(self, statement: str, **params: Any) -> Any:
        """The only value of the only row."""
        (row,) = await self.all(statement, **params)
        (value,) = row.values()
        return value

    async def do(self, statement: str, **params: Any) -> None:
        async with self.app.transaction() as tx:
            await tx.execute(statement.encode(), params)

    async def projects(self, count: int, checked_at: datetime | None = None) -> list[int]:
        """So many, last checked then."""
        found = await self.all(
            "insert into projects (name, last_health_check) select 'p' || n, %(at)s from generate_series(1, %(count)s) as n"
            " returning id",
            at=checked_at,
            count=count,
        )
        return [row["id"] for row in found]

    async def spoil(self, project_id: int) -> None:
        """A member with hours that are no number: nothing can be said about such a project."""
        await self.do(
            "with u as (insert into users (name) values ('nobody') returning id)"
            " insert into members (project_id, user_id, weekly_hours) select %(project)s, id, 'NaN' from u",
            project=project_id,
        )

    async def report(self, frequency: str, next_run: datetime, project_id: int | None = None) -> int:
        project = project_id or (await self.projects(1))[0]
        return int(
            await self.one(
                "insert into report_schedules (project_id, frequency, anchor_day, next_run)"
                " values (%(project)s, %(frequency)s, %(day)s, %(next_run)s) returning id",
                project=project,
                frequency=frequency,
                day=next_run.day,
                next_run=next_run,
            )
        )


async def rows(tx: AsyncConnection[Any], statement: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement.encode(), params)
        return await cursor.fetchall() if cursor.description else []
