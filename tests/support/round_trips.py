"""Everything trueup does with a database, once: what must work on any server, under any settings that people give it."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from tests.support.watching import until, until_beside
from trueup import App, Context, DuplicateJob, Exhausted, Handle, Job, LostLease, NotAcquired, Retry, Row, Tick, To
from trueup.testing.worker import ManualWorker

ROWS = 10  # of each state
BULK = 600  # more than one statement takes: it is copied
# Text that every encoding of the table of servers can hold, and that is something else when it is read as another.
LATIN = "Größe déjà ¿qué? ½"
TABLES = """
create table papers (
  id int primary key, state text not null, changed_at timestamptz not null default now() - interval '1 d',
  leased_by text, leased_until timestamptz, note text
);
create index on papers (state, changed_at, id);
create table written (way text not null, id int not null, unique (way, id));
insert into papers (id, state) select row_number() over (), state
  from unnest(array['by_lease', 'by_columns', 'by_row_lock', 'failing', 'trial', 'initiated']) as state, generate_series(1, 10);
"""
WRITE = "insert into written values (%s, %s)"
OFTEN: dict[str, Any] = {"stale_for": "1h", "every": "500ms", "run_at_start": True}
# Handlers' own transactions are refused now and then at stricter isolation levels, and must not try again in lockstep.
SOON = Retry(max_attempts=50, first="10ms", cap="300ms", jitter=True)


async def everything(url: str, *, web_url: str | None = None, look: str | None = None) -> None:
    """All of it on a migrated database that has TABLES.

    `web_url` is the database for a role that only enqueues. `look` is the database for one that may see and change
    everything: what is checked here is asked through it.
    """
    app = App(url, rescue_every="200ms")
    try:
        await lose_a_worker(url, look or url)
        await work(app, url, web_url or url, look or url)
        await repair(app)
        await hold_leases(app)
    finally:
        await app.close()


def declare_rows(app: App) -> None:
    papers = app.table("papers", key="id", state="state", changed_at="changed_at")
    with_columns = app.table(
        "papers", key="id", state="state", changed_at="changed_at", lease_columns=("leased_by", "leased_until")
    )

    @papers.reconcile("by_lease", rate="1000/s", retry=SOON, concurrency=1, **OFTEN)
    async def by_lease(paper: Row, *, ctx: Context) -> None:
        async with ctx.transaction(To("done")) as tx:
            await tx.execute(WRITE, ["by_lease", paper.id])

    @with_columns.reconcile("by_columns", retry=SOON, **OFTEN)
    async def by_columns(paper: Row, *, ctx: Context) -> To:
        await ctx.checkpoint(note=LATIN)
        return To("done")

    @papers.reconcile("by_row_lock", claim="row_lock", retry=SOON, concurrency=1, **OFTEN)
    async def by_row_lock(paper: Row, *, tx: AsyncConnection[Any]) -> To:
        await tx.execute(WRITE, ["by_row_lock", paper.id])
        return To("done")

    @papers.reconcile("failing", retry=Retry(max_attempts=2, first="10ms"), **OFTEN)
    async def failing(paper: Row) -> To:
        raise ValueError(LATIN)

    papers.move("trial", to="expired", **OFTEN)
    papers.delete("initiated", **OFTEN)


def declare_jobs(app: App, said: list[str]) -> dict[str, Job[..., Any]]:
    @app.job(retry=Retry(max_attempts=2, first="10ms"))
    async def double(n: int, *, ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ConnectionError(LATIN)
        await ctx.progress(0.5, LATIN)
        return 2 * n

    @app.job(rate="1000/s", limit=2, fair_by="tenant", retry=SOON)
    async def limited(tenant: str, *, ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("select 1")

    @app.job(limit=1)
    async def bounded() -> None: ...

    @app.job
    async def say(what: str) -> str:
        said.append(what)
        return what

    @app.job(retry=Retry(max_attempts=1))
    async def fail(what: str) -> None:
        raise ValueError(what)

    async def note(dead: Exhausted) -> None:
        await dead.tx.execute(WRITE, ["exhausted", 1])

    @app.job(retry=Retry(max_attempts=1), exhausted=note)
    async def doomed() -> None:
        raise ValueError(LATIN)

    return {"double": double, "limited": limited, "bounded": bounded, "say": say, "fail": fail, "doomed": doomed}


async def enqueue(jobs: dict[str, Job[..., Any]]) -> tuple[Handle[Any], Handle[Any]]:
    """In every way there is. Returns one whose result is 42, and one that waits for an hour."""
    first = await jobs["double"].using(unique="once").enqueue(21)
    with pytest.raises(DuplicateJob):
        await jobs["double"].using(unique="once", on_conflict="raise").enqueue(21)
    window = jobs["say"].using(unique=LATIN, unique_for="1h")
    assert (await window.enqueue(LATIN)).id == (await window.enqueue(LATIN)).id
    replace = jobs["say"].using(unique="later", on_conflict="replace", delay="1h")
    later = await replace.enqueue("first")
    assert (await replace.enqueue("second")).id == later.id
    await jobs["limited"].enqueue_many([("a",), ("b",), ("a",)])
    await jobs["bounded"].enqueue_many([(), ()])
    await jobs["fail"].enqueue_many([(LATIN,), (LATIN,)])
    await jobs["doomed"].enqueue()
    assert (await jobs["say"].enqueue_many((LATIN,) for _ in range(BULK))).created == BULK
    await asyncio.to_thread(jobs["say"].enqueue_sync, LATIN)
    await asyncio.to_thread(jobs["say"].enqueue_many_sync, [(LATIN,)] * BULK)
    return first, later


def enqueue_with(connection: psycopg.Connection[Any], say: Job[..., Any]) -> None:
    """In a transaction of the caller's own."""
    say.using(tx=connection).enqueue_sync(LATIN)
    say.using(tx=connection).enqueue_many_sync([(LATIN,)] * BULK)


async def work(app: App, url: str, web_url: str, look: str) -> None:
    said: list[str] = []
    ticks: list[Tick] = []
    declare_rows(app)
    declare_jobs(app, said)

    @app.job
    async def orphan() -> None: ...

    @app.cron("* * * * * *", lease="postgres")
    async def secondly(tick: Tick) -> None:
        ticks.append(tick)

    async with App(web_url) as web, app.worker():
        jobs = declare_jobs(web, said)
        first, later = await enqueue(jobs)
        with psycopg.connect(url) as connection:
            enqueue_with(connection, jobs["say"])
        assert await first.result(timeout="30s") == 42
        await until(lambda: len(ticks) >= 1)
        await until_beside(lambda: states(look) == {"done": 3 * ROWS, "expired": ROWS, "failing": ROWS})
        await until_beside(lambda: count(look, "trueup.rows where state = 'quarantined'") == ROWS)
        await until_beside(
            lambda: count(look, "trueup.history where kind in ('limited', 'bounded') and state = 'done'") == 5
        )
        await until_beside(
            lambda: count(look, "trueup.history where kind = 'orphan' and state = 'done' and crashes = 1") == 1
        )
        await until(lambda: len(said) == 3 * BULK + 3)
        await until_beside(lambda: count(look, "trueup.history where kind = 'doomed' and state = 'dead'") == 1)
        web.close_sync()
    await app.schedules.trigger("secondly")
    assert set(said) == {LATIN}
    assert count(look, "written") == 2 * ROWS + 1
    assert await app.now() is not None
    await app.rate("calls", "1000/s")
    await app.rate("calls", "1000/s")
    assert count(look, "(select due_at from trueup.ticks group by due_at having count(*) > 1) as twice") == 0
    await app.jobs.hurry([later.id])
    assert await app.jobs.cancel([later.id])


async def lose_a_worker(url: str, look: str) -> None:
    """A worker is killed with a job in its hand. The next one has to take it over."""
    app = App(url)

    @app.job
    async def orphan() -> None: ...

    gone = ManualWorker(app)
    await gone.begin()
    job = await orphan.enqueue()
    assert [claimed.id for claimed in await gone.claim()] == [job.id]
    await gone.end()
    await app.close()
    with psycopg.connect(look, autocommit=True) as connection:
        connection.execute("update trueup.workers set lease_until = now() - interval '1 s'")


async def repair(app: App) -> None:
    """What people do after something went wrong."""
    found = await app.jobs.list(state="dead", error_contains=LATIN, older_than="1ms")
    said = await app.jobs.list(state="dead", arguments={"what": LATIN})
    assert {job.kind for job in said} == {"fail"}
    assert (await app.jobs.count(state="dead", error_contains=LATIN)).any
    dead, other = (job for job in found if job.kind == "fail")
    assert dead.error is not None
    assert LATIN in dead.error.message
    assert await app.jobs.revive([dead.id]) == {dead.id}
    assert (await app.jobs.cancel([dead.id])).cancelled == {dead.id}
    assert await app.jobs.discard([other.id]) == {other.id}
    assert len(await app.reconcilers.quarantined("failing")) == ROWS
    assert await app.reconcilers.release_all("failing") == ROWS
    await app.recovery()


async def hold_leases(app: App) -> None:
    for backend in ("postgres", "advisory"):
        async with app.lease("nightly", backend=backend) as lease:  # type: ignore[arg-type]
            with pytest.raises(NotAcquired):
                async with app.lease("nightly", backend=backend):  # type: ignore[arg-type]
                    raise AssertionError("two hold it")
        async with app.lease("nightly", backend=backend) as later:  # type: ignore[arg-type]
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
