"""Connections, and whether statements are prepared on the server."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.pgbouncer import PgBouncer
from tests.support.proxy import Proxy
from tests.support.watching import Watched
from trueup import App, Row, To
from trueup.errors import ConfigError, DatabaseUnavailable
from trueup.events import DatabaseLost, Events
from trueup.store.db.blocking import SyncPool
from trueup.store.db.confirmed import Unconfirmed
from trueup.store.db.connect import NO_TIMEOUT, connecting_takes, connection_settings, is_away, may_pass, unanswered
from trueup.store.db.message import StalePlan
from trueup.store.db.own_connection import OwnConnection
from trueup.store.db.pool import HandlerConnections
from trueup.store.db.steps import fetch_sync
from trueup.testing.worker import ManualWorker


async def prepared_statements(app: App) -> int:
    """How many the one connection of the pool has after the same job was enqueued ten times."""

    @app.job
    async def send(n: int) -> None: ...

    async with app:
        for number in range(10):
            await send.enqueue(number)
        async with app.store.pool.use() as connection:
            rows = await (await connection.execute("select count(*) from pg_prepared_statements")).fetchall()
    return int(rows[0][0])


@pytest.mark.asyncio
async def test_statements_that_come_again_are_prepared_where_nothing_stands_in_between(database_url: str) -> None:
    assert await prepared_statements(App(database_url, pool_size=1)) > 0


@pytest.mark.asyncio
async def test_nothing_is_prepared_when_that_is_not_wanted(database_url: str) -> None:
    assert await prepared_statements(App(database_url, pool_size=1, prepare=False)) == 0


def test_a_sync_pool_prepares_likewise(database_url: str) -> None:
    for prepare, expected in (("auto", True), ("true", True), ("false", False)):
        pool = SyncPool(database_url, 1, timedelta(seconds=5), prepare=prepare)
        for _ in range(10):
            with pool.use() as connection:
                fetch_sync(connection, b"select %(n)s::int", {"n": 1}, often=True)
                count = connection.execute("select count(*) from pg_prepared_statements").fetchone()
        pool.close()
        assert count is not None
        assert (count[0] > 0) is expected


@pytest.mark.asyncio
async def test_behind_a_pooler_in_transaction_mode_nothing_is_prepared_and_all_works(database_url: str) -> None:
    name = conninfo_to_dict(database_url)["dbname"]
    with PgBouncer(database_url) as pooler, psycopg.connect(database_url, autocommit=True) as user:
        user.execute("create table things (id int primary key, state text not null, changed_at timestamptz)")
        user.execute("insert into things select n, 'open' from generate_series(1, 30) as n")
        user.execute("insert into things select n, 'old', now() - interval '1 d' from generate_series(31, 430) as n")
        app = App(pooler.url(str(name)))
        things = app.table("things", key="id", state="state", changed_at="changed_at")
        things.delete("old", stale_for="1h", every="1h", batch=10, name="purge")

        @things.reconcile("open", every="1h", claim="row_lock", concurrency=3, name="fix")
        async def fix(thing: Row) -> To:
            return To("done")

        worker = ManualWorker(app)
        await worker.begin()
        assert (await worker.sweep("fix")).changed == 30
        assert (await worker.sweep("purge")).changed == 400  # several batches in a message, prepared within it
        await worker.end()
        assert await prepared_statements(app) == 0
        app.store.sync_pool.close()
        with app.store.sync_pool.use() as connection:
            assert connection.prepare_threshold is None
        app.store.sync_pool.close()
        await app.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("prepare", ["auto", "true"])
async def test_only_what_is_worth_it_is_prepared(database_url: str, prepare: str) -> None:
    """A plan for all values is a bad one for statements over many rows."""
    app = App(database_url, pool_size=1, prepare=prepare)

    @app.job
    async def send(n: int) -> None: ...

    async with app:
        for number in range(10):
            handle = await send.enqueue(number)
            await send.enqueue_many([(1,), (2,)])
            await app.jobs.cancel([handle])
        async with app.store.pool.use() as connection:
            rows = await (await connection.execute("select statement from pg_prepared_statements")).fetchall()
        line = app.store.own_connection("test")
        for _ in range(10):
            await line.fetch(b"select 1")
        assert await line.fetch(b"select count(*) from pg_prepared_statements") == [(0,)]
        await line.close()
    assert len(rows) == 1
    assert "enqueue" in rows[0][0]


def raised(sqlstate: str) -> psycopg.Error:
    return psycopg.errors.lookup(sqlstate)("as the server says it")


AWAY = ["08000", "08006", "08P01", "57P01", "57P02", "57P03", "57P05", "53300", "40001", "40P01", "25006", "25P03"]
PASSING = ["53100", "53200", "57014", "55P03", "58030"]
OWN = ["22001", "23505", "23P01", "42883", "54000", "P0001", "XX000", "21000", "44000", "0A000", "25P02", "55000"]


@pytest.mark.parametrize("sqlstate", AWAY)
def test_a_server_that_is_away_or_asks_to_repeat_is_not_the_statements_fault(sqlstate: str) -> None:
    assert is_away(raised(sqlstate))
    assert not may_pass(raised(sqlstate))


@pytest.mark.parametrize("sqlstate", PASSING)
def test_locks_timeouts_and_full_disks_may_pass_and_are_not_taken_for_an_absence(sqlstate: str) -> None:
    assert may_pass(raised(sqlstate))
    assert not is_away(raised(sqlstate))


@pytest.mark.asyncio
async def test_a_refused_statement_does_not_cost_the_connection(database_url: str) -> None:
    """Whatever a trigger raises: the session is as good as before, and the database is not called lost."""
    app = App(database_url)
    events = Watched(app)
    line = OwnConnection(database_url, "test", app.events, timedelta(seconds=5), timedelta(seconds=5))
    pid = await line.fetch(b"select pg_backend_pid()")
    for sqlstate in [*OWN, *PASSING, "40001", "40P01"]:
        raising = f"do $$ begin raise exception 'no' using errcode = '{sqlstate}'; end $$".encode()
        with pytest.raises(psycopg.errors.lookup(sqlstate)):
            await line.fetch(raising)
        with pytest.raises(psycopg.errors.lookup(sqlstate)):
            async with line.conversation() as talk:
                await talk.send(raising)
    assert await line.fetch(b"select pg_backend_pid()") == pid
    assert events.of(DatabaseLost) == []
    await line.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "where", ["pool.leads_to_the_server", "own_connection.leads_to_the_server", "connect.make_readable"]
)
@pytest.mark.parametrize("error", [asyncio.CancelledError, psycopg.OperationalError])
async def test_a_connection_is_closed_when_its_first_steps_fail_or_are_cancelled(
    database_url: str, monkeypatch: pytest.MonkeyPatch, where: str, error: type[BaseException]
) -> None:
    opened: list[psycopg.AsyncConnection[Any]] = []
    within = timedelta(seconds=5)

    async def fail(connection: psycopg.AsyncConnection[Any], **_: bool) -> None:
        opened.append(connection)
        raise error

    monkeypatch.setattr(f"trueup.store.db.{where}", fail)
    with pytest.raises(error):
        if where.startswith("own_connection"):
            await OwnConnection(database_url, "test", Events(), within, within, prepare="auto").fetch(b"select 1")
        else:
            await HandlerConnections(database_url, within).take()
    assert [connection.closed for connection in opened] == [True]


@pytest.mark.parametrize("sqlstate", OWN)
def test_every_other_refusal_is_the_statements_own(sqlstate: str) -> None:
    assert not is_away(raised(sqlstate))
    assert not may_pass(raised(sqlstate))


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (psycopg.OperationalError("server closed the connection unexpectedly"), True),
        (psycopg.InterfaceError("the connection is closed"), True),
        (psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"), False),
        (psycopg.ProgrammingError("cannot adapt type 'object'"), False),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (DatabaseUnavailable("refused"), True),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), False),
        (KeyError("a mistake of ours"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_without_an_answer_the_kind_of_error_decides(error: Exception, away: bool) -> None:
    assert is_away(error) is away


@pytest.mark.slow
@pytest.mark.asyncio
async def test_all_servers_of_a_url_but_the_last_may_be_silent(database_url: str) -> None:
    with ExitStack() as stack:
        silent, other, alive = (stack.enter_context(Proxy.before(database_url)) for _ in range(3))
        silent.black_hole()
        other.black_hole()
        given = {"host": "127.0.0.1,127.0.0.1,127.0.0.1", "port": f"{silent.port},{other.port},{alive.port}"}
        url = make_conninfo(alive.url(database_url), connect_timeout=2, **given)
        line = App(url).store.own_connection("test")
        try:
            assert await line.fetch(b"select 1") == [(1,)]
            assert min(silent.connections, other.connections) > 0, "they were not tried"
        finally:
            await line.close()


@pytest.mark.parametrize(
    ("url", "seconds"),
    [
        ("postgresql://db/shop", 10),
        ("postgresql://db1,db2,db3/shop", 20),
        ("postgresql://db1,db2/shop?hostaddr=10.0.0.1,10.0.0.2", 15),
        ("postgresql://db1,db2,db3/shop?connect_timeout=2", 8),
        ("postgresql:///shop?host=/run/a,/run/b", 15),
        ("postgresql://db/shop?connect_timeout=0", 2 * NO_TIMEOUT),
        ("postgresql://db/shop?connect_timeout=soon", 2 * NO_TIMEOUT),
        ("postgresql:///shop", 10),
    ],
)
def test_each_server_of_a_url_has_the_whole_timeout(url: str, seconds: float) -> None:
    assert connecting_takes(connection_settings(url, "test", timedelta(seconds=5))) == seconds


def test_a_session_that_is_terminated_leaves_open_what_became_of_its_statement(database_url: str) -> None:
    """The server says why it hangs up, with a SQLSTATE, also when the commit has already happened."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.AdminShutdown) as ended:
            connection.execute("select pg_terminate_backend(pg_backend_pid())")
        assert unanswered(ended.value)


def test_the_same_said_by_a_trigger_is_an_answer(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.AdminShutdown) as refused:
            connection.execute("do $$ begin raise exception 'no' using errcode = '57P01'; end $$")
        assert not unanswered(refused.value)


@pytest.mark.parametrize(
    ("error", "open_what_became"),
    [
        (Unconfirmed(), True),
        (psycopg.OperationalError("server closed the connection unexpectedly"), True),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (StalePlan("prepared again"), False),
        (psycopg.errors.UniqueViolation(), False),
        (ValueError(), False),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_leaves_open_what_became_of_a_statement(error: Exception, open_what_became: bool) -> None:
    assert unanswered(error) is open_what_became


def set_for_new_sessions(url: str, setting: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set default_transaction_read_only = off")
        connection.execute(f'alter database "{connection.info.dbname}" {setting}'.encode())


@pytest.mark.asyncio
async def test_a_server_that_reads_null_in_arrays_as_text_is_refused(database_url: str) -> None:
    """Jobs without a unique key would have the key "NULL", and all but the first would be left out as duplicates."""
    set_for_new_sessions(database_url, "set array_nulls = off")
    app = App(database_url)

    @app.job
    async def send(n: int) -> None: ...

    with pytest.raises(ConfigError, match="array_nulls = on"):
        await app.open()
    with pytest.raises(ConfigError, match="array_nulls = on"):
        await send.enqueue_many([(1,), (2,)])
    with pytest.raises(ConfigError, match="array_nulls = on"):
        await asyncio.to_thread(send.enqueue_many_sync, [(1,), (2,)])
    await app.close()


@pytest.mark.asyncio
async def test_jobs_are_stored_again_when_a_database_takes_writes_again(database_url: str) -> None:
    """A session that began read-only stays so, whatever is set for new ones. Each in the pool is refused once more at most."""
    set_for_new_sessions(database_url, "set default_transaction_read_only = on")
    async with App(database_url, pool_size=1) as app:

        @app.job
        async def send(n: int) -> None: ...

        with pytest.raises(DatabaseUnavailable, match="default_transaction_read_only"):
            await send.enqueue(1)
        with pytest.raises(DatabaseUnavailable, match="default_transaction_read_only"):
            await asyncio.to_thread(send.enqueue_sync, 2)
        set_for_new_sessions(database_url, "reset default_transaction_read_only")
        with suppress(DatabaseUnavailable):
            await send.enqueue(1)
        with suppress(DatabaseUnavailable):
            await asyncio.to_thread(send.enqueue_sync, 2)
        await send.enqueue(1)
        await asyncio.to_thread(send.enqueue_sync, 2)
        assert len(await app.jobs.list()) >= 2
