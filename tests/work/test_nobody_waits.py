"""Sessions that hold locks for seconds, as a backup or a forgotten transaction does, beside everything that a worker does by itself.

A worker may have to wait for them, but never so that others wait for the worker. The server logs each lock that was waited for
longer than `deadlock_timeout`, and who held it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.support.database import TestServer
from tests.support.watching import until
from trueup import App, Retry, Row, To
from trueup.store.db.migrate import Migrator, Step, all_steps

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

LONGER_THAN = "2s"  # each of our own limits is a second or less
HELD_FOR = 3.5  # seconds
WAITED = re.compile(r"process (\d+) still waiting for .*\n.*Process(?:es)? holding the lock: ([\d, ]+)\.")
TABLES = """
create table things (id int primary key, state text, due timestamptz default now(), touched int default 0);
insert into things (id, state) select n, (array['new', 'lapsed', 'old'])[1 + n % 3] from generate_series(1, 300) as n;
"""
NEXT = Step(all_steps()[-1].number + 1, "pre", "add_tag", "alter table {schema}.jobs add column tag text;")


def app_on(url: str, go: asyncio.Event) -> App:
    app = App(url, rescue_every="100ms", statement_timeout="20s")

    @app.job(retry=Retry(first="100ms", cap="100ms", max_attempts=1_000))
    async def flaky() -> None:
        raise ValueError("again")

    @app.job(limit=2, retry=Retry(first="100ms", cap="100ms", max_attempts=1_000))
    async def limited() -> None:
        raise ValueError("again")

    @app.every("1s")
    async def tick() -> None: ...

    things = app.table("things", key="id", state="state")

    @things.reconcile("new", every="100ms", batch=50)
    async def fix(row: Row) -> To:
        await go.wait()
        return To("done")

    things.move("lapsed", to="new", due_at="due", every="100ms")
    things.delete("old", due_at="due", every="100ms")
    return app


READS_EVERYTHING = "select format('select from %s limit 1', oid::regclass) from pg_class where relkind in ('r', 'p')"
HELD = "select count(*) > 20 from trueup.rows where state = 'held'"
LOCKS = (
    "select from things where id % 7 = 0 for update",
    "select from trueup.jobs where id % 2 = 0 for update",
    "select from trueup.schedules for key share",
    "select from trueup.rows where key::int % 2 = 0 for update",
    *(
        f"select from trueup.{table} for update"
        for table in ("leases", "lanes", "declarations", "reconcilers", "scans", "ticks", "sweeps", "rates", "fleet")
    ),
)


@asynccontextmanager
async def holding(url: str) -> AsyncIterator[int]:
    """What a backup has locked, which is every table against changes of its shape, and rows of users and of ours."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        for (read,) in await (await connection.execute(READS_EVERYTHING)).fetchall():
            await connection.execute(read)
        for lock in LOCKS:
            await connection.execute(lock)
        yield connection.info.backend_pid


async def use_the_tables(url: str, app: App, locked: asyncio.Event) -> int:
    """What an application does meanwhile, on rows that nobody else has locked."""
    done = 0
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while locked.is_set():
            await connection.execute("update things set touched = touched + 1 where id % 7 <> 0")
            await connection.execute("insert into things (id, state) select max(id) + 1, 'new' from things")
            await app.named("flaky").enqueue()
            await app.named("limited").enqueue()
            done += 1
            await asyncio.sleep(0.02)
    return done


def migrate(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        Migrator(connection, "trueup", steps=[*all_steps(), NEXT]).migrate()


def waits(log: Path, since: int) -> list[tuple[int, set[int]]]:
    """Who has waited for a lock for too long, and who has held it."""
    with log.open("rb") as file:
        file.seek(since)
        text = file.read().decode(errors="replace")
    return [(int(waiter), {int(pid) for pid in holders.split(", ")}) for waiter, holders in WAITED.findall(text)]


async def test_only_the_session_that_holds_locks_makes_others_wait(server: TestServer) -> None:
    with server.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(TABLES)
            name = sql.Identifier(connection.info.dbname)
            connection.execute(sql.SQL("alter database {} set log_lock_waits = on").format(name))
            connection.execute(sql.SQL("alter database {} set deadlock_timeout = {}").format(name, LONGER_THAN))
        since = server.cluster.log.stat().st_size
        app = app_on(url, go := asyncio.Event())
        async with app, app.worker(), app.lease("mine"):
            await asyncio.gather(*(app.named(kind).enqueue() for kind in ("flaky", "limited") for _ in range(20)))
            locked = asyncio.Event()
            locked.set()
            with psycopg.connect(url, autocommit=True) as look:
                await until(lambda: look.execute(HELD).fetchone() == (True,))
            async with holding(url) as hog:
                go.set()
                using = asyncio.create_task(use_the_tables(url, app, locked))
                migrating = asyncio.create_task(asyncio.to_thread(migrate, url))
                await asyncio.wait([using, migrating], timeout=HELD_FOR)
                assert not migrating.done(), "it waits for the backup"
                locked.clear()
                used = await using
            await migrating
        assert [(waiter, by) for waiter, by in waits(server.cluster.log, since) if by - {hog}] == []
        assert used
