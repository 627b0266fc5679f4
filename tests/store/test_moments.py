"""Moments that no client can read never reach a worker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import psycopg
import pytest

from tests.store.desk import Desk
from trueup import App
from trueup.errors import ConfigError
from trueup.jobs.records import JobFilter
from trueup.store.store import Store

pytestmark = pytest.mark.asyncio

UNREADABLE = [
    "-infinity",
    "infinity",
    "0001-01-01 00:00:00+00",
    "4713-01-01 00:00:00+00 BC",
    "1969-12-31 23:59:59+00",
    "20000-01-01",
]


@pytest.mark.parametrize("moment", UNREADABLE)
async def test_the_table_refuses_them_from_any_program(desk: Desk, moment: str) -> None:
    job_id = await desk.put()
    with pytest.raises(psycopg.errors.CheckViolation, match="jobs_run_at"):
        await desk.scalar("update trueup.jobs set run_at = %s where id = %s", moment, job_id)


@pytest.mark.parametrize(
    "moment",
    [
        datetime.min.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))),
        datetime(1969, 12, 31, tzinfo=UTC),
        datetime(9000, 1, 1, tzinfo=UTC),
    ],
    ids=str,
)
async def test_enqueueing_refuses_them_before_anything_is_sent(app: App, moment: datetime) -> None:
    @app.job
    async def send() -> None: ...

    with pytest.raises(ConfigError, match="a time from 1970 to 8999 is needed"):
        send.using(run_at=moment)


@pytest.mark.parametrize("zone", ["America/Lima", "Pacific/Kiritimati", "UTC"])
async def test_the_ends_of_what_is_allowed_are_read_in_every_zone(store: Store, desk: Desk, zone: str) -> None:
    await desk.scalar(f"alter database {await desk.scalar('select current_database()')} set timezone = '{zone}'")
    early = await desk.put(run_at=datetime(1970, 1, 1, tzinfo=UTC))
    late = await desk.put(run_at=datetime(8999, 12, 31, tzinfo=UTC))
    async with await psycopg.AsyncConnection.connect(store.url) as connection:
        moments = await (await connection.execute("select run_at from trueup.jobs order by id")).fetchall()
    assert len(moments) == 2
    assert [job.id for job in await desk.claim(await desk.worker())] == [early]
    assert {row["id"] for row in await store.views.jobs(JobFilter(("queued", "running")), limit=10)} == {early, late}


@pytest.mark.parametrize("moment", UNREADABLE)
async def test_ended_jobs_with_such_moments_can_still_be_listed(desk: Desk, store: Store, moment: str) -> None:
    job_id = await desk.dead()
    await desk.scalar("update trueup.history set run_at = %s where id = %s", moment, job_id)
    assert [row["id"] for row in await store.views.jobs(JobFilter(("dead",)), limit=10)] == [job_id]
    assert (await desk.row(job_id))["state"] == "dead"
