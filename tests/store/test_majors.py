"""Everything once on each older major version of PostgreSQL. The rest of the suite runs on the newest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from tests.support.majors import WHEELS, MajorServer
from tests.support.watching import until
from trueup import App, Context, LostLease, NotAcquired, Retry, Row, Tick, To
from trueup.store.migrate import Migrator

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

MAJORS = sorted({*WHEELS, 16})  # 16 is in the embedded package
TABLES = """
create table papers (
  id int primary key, state text not null, changed_at timestamptz not null default now() - interval '1 d',
  leased_by text, leased_until timestamptz
);
create index on papers (state, changed_at, id);
create table written (way text not null, id int not null, unique (way, id));
insert into papers (id, state) select row_number() over (), state
  from unnest(array['by_lease', 'by_columns', 'by_row_lock', 'trial', 'initiated']) as state, generate_series(1, 20);
"""
WRITE = "insert into written values (%s, %s)"


@pytest.fixture(params=MAJORS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, str]]:
    """The major version, and the URL of an empty database."""
    with MajorServer(tmp_path / "pg", request.param) as server, server.database(template="template1") as url:
        yield request.param, url


def declare_rows(app: App) -> None:
    papers = app.table("papers", key="id", state="state", changed_at="changed_at")
    with_columns = app.table(
        "papers", key="id", state="state", changed_at="changed_at", lease_columns=("leased_by", "leased_until")
    )
    often: dict[str, Any] = {"stale_for": "1h", "every": "500ms", "run_at_start": True}

    @papers.reconcile("by_lease", rate="1000/s", **often)
    async def by_lease(paper: Row, *, ctx: Context) -> None:
        async with ctx.transaction(To("done")) as tx:
            await tx.execute(WRITE, ["by_lease", paper.id])

    @with_columns.reconcile("by_columns", **often)
    async def by_columns(paper: Row) -> To:
        return To("done")

    @papers.reconcile("by_row_lock", claim="row_lock", **often)
    async def by_row_lock(paper: Row, *, tx: AsyncConnection[Any]) -> To:
        await tx.execute(WRITE, ["by_row_lock", paper.id])
        return To("done")

    papers.move("trial", to="expired", **often)
    papers.delete("initiated", **often)


async def test_an_older_server_serves(old: tuple[int, str]) -> None:
    major, url = old
    app = App(url)
    ticks: list[Tick] = []
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.info.server_version // 10_000 == major
        Migrator(connection, "trueup").migrate()
        connection.execute(TABLES)
    declare_rows(app)

    @app.job(retry=Retry(max_attempts=2, first="10ms"))
    async def double(n: int, *, ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ConnectionError("the first attempt always fails")
        return 2 * n

    @app.job(rate="100/s", limit=2, fair_by="tenant")
    async def limited(tenant: str, *, ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("select 1")

    @app.cron("* * * * * *", lease="postgres")
    async def secondly(tick: Tick) -> None:
        ticks.append(tick)

    async with app.worker():
        first = await double.using(unique="once").enqueue(21)
        await limited.enqueue_many([("a",), ("b",), ("a",)])
        assert await first.result(timeout="10s") == 42
        await until(lambda: len(ticks) >= 2)
        await until(lambda: states(url) == {"done": 60, "expired": 20})
        await until(lambda: count(url, "trueup.history where kind = 'limited' and state = 'done'") == 3)
        await app.schedules.trigger("secondly")
    assert count(url, "written") == 40
    assert count(url, "(select due_at from trueup.ticks group by due_at having count(*) > 1) as twice") == 0
    await hold_leases(app)
    await app.close()


async def hold_leases(app: App) -> None:
    for backend in ("postgres", "advisory"):
        async with app.lease("nightly", backend=backend) as lease:
            with pytest.raises(NotAcquired):
                async with app.lease("nightly", backend=backend):
                    raise AssertionError("two hold it")
        async with app.lease("nightly", backend=backend) as later:
            assert later.term > lease.term
            async with app.transaction() as tx:
                await later.fence(tx)
                with pytest.raises(LostLease):
                    await lease.fence(tx)


def states(url: str) -> dict[str, int]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute("select state, count(*) from papers group by state").fetchall())


def count(url: str, what: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(f"select count(*) from {what}".encode()).fetchone()
    assert row is not None
    return int(row[0])
