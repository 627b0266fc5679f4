"""Every page and every answer of the API over what real operations leave behind: nothing at all, scans, moves, released leases, …"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.web.dashboard.test_who_may import OPERATOR, TOKENS, client
from trueup import App, Retry, Row
from trueup.schedules.once import Once
from trueup.testing.worker import ManualWorker
from trueup.web import dashboard
from trueup.web.dashboard.api.endpoints import ENDPOINTS

pytestmark = pytest.mark.asyncio

PAGES = (
    "",
    "?window=24h",
    "/jobs",
    "/reconcilers",
    "/schedules",
    "/fleet",
    "/recovery",
    "/queues",
    "/alerts",
    "/audit",
)
ANSWERS = tuple(each.path for each in ENDPOINTS if each.method == "GET" and "{" not in each.path)
RECONCILERS = ("drop", "forward", "proposed", "objects")
TABLES = """
create table papers (id int primary key, state text not null, made_at timestamptz default now() - interval '1 hour');
insert into papers select n, 'new' from generate_series(1, 3) as n;
"""
# What an older release, a person with psql or a crash may leave.
REMAINS = (
    "delete from trueup.workers",
    "update trueup.scans set underway = true, started_at = now(), error = 'no answer', failures = 2",
    "update trueup.rows set errors = '[{}]', state = 'quarantined', due_at = 'infinity'",
    "update trueup.history set errors = '[{}]', holder = null, claimed_at = null",
)


async def refused(app: App, pages: Iterable[str], answers: Iterable[str]) -> list[tuple[str, int, str]]:
    """Those that are not answered well."""
    paths = [*(f"/trueup{page}" for page in pages), *(f"/api/v1/trueup{answer}" for answer in answers)]
    async with client(dashboard.asgi(app, TOKENS), headers={"authorization": f"Bearer {OPERATOR}"}) as operator:
        answered = [(path, await operator.get(path)) for path in paths]
    return [(path, answer.status_code, answer.text[-200:]) for path, answer in answered if answer.status_code != 200]


async def test_every_page_is_there_before_anything_has_happened(app: App) -> None:
    assert await refused(app, PAGES, ANSWERS) == []


async def test_every_page_is_there_whatever_has_happened(app: App, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(TABLES)
    papers = app.table("papers", key="id", state="state", changed_at="made_at")
    papers.delete("old", name="drop", stale_for="1m")
    papers.move("new", to="seen", name="forward", stale_for="1m")

    @papers.reconcile("new", mode="shadow", every="1h")
    async def proposed(row: Row) -> None: ...

    @app.scan("objects", every="1h")
    async def objects(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        yield 1, 1

    @objects.each
    async def handle(item: int) -> None:
        raise ValueError("no such object")

    @app.every("1h")
    async def hourly() -> None: ...

    @app.job(retry=Retry(max_attempts=1))
    async def fail(x: int) -> None:
        raise ValueError("boom")

    @app.job
    async def succeed() -> dict[str, Any]:
        return {"a": 1}

    await app.open()
    jobs = [await fail.enqueue(x=1), await succeed.enqueue()]
    worker = ManualWorker(app)
    await worker.begin()
    await worker.run_pending()
    for name in ("proposed", "forward", "drop", "objects"):
        await app.reconcilers.run(name)
    async with app.lease("released"):
        pass
    jobs.append(await succeed.using(delay="1h").enqueue())
    await app.schedules.create("once", Once(datetime.now(UTC) + timedelta(hours=1)), succeed.call())
    await app.jobs.pause(queue="default")
    each = [*(f"/jobs/{job.id}" for job in jobs), *(f"/reconcilers/{name}" for name in RECONCILERS)]
    each.append("/schedules/once")
    pages = [*PAGES, *each, "/reconcilers/forward/row", *(f"/reconcilers/{name}/row?key=1" for name in RECONCILERS)]
    assert await refused(app, pages, [*ANSWERS, *each]) == []
    await worker.end()
    with psycopg.connect(database_url, autocommit=True) as connection:
        for remains in REMAINS:
            connection.execute(remains)
    assert await refused(app, pages, [*ANSWERS, *each]) == []
    async with App(database_url) as other:  # that declares nothing of it
        assert await refused(other, pages, [*ANSWERS, *each]) == []
