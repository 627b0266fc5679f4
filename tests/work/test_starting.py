"""A worker that starts while its database, or the pooler in front of it, is restarting."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.pgbouncer import PgBouncer
from tests.support.waiting import wait_until
from tests.support.watching import Watched
from trueup import App, ConfigError, DatabaseUnavailable, Row
from trueup.clock import elapsed
from trueup.events import DatabaseLost, DatabaseRestored
from trueup.store.db.connect import restarts

pytestmark = pytest.mark.asyncio


def app_on(url: str, start_within: str) -> App:
    app = App(url, start_within=start_within, connect_timeout="2s")

    @app.job
    async def send() -> None: ...

    return app


@pytest.mark.slow
async def test_it_waits_for_a_pooler_that_restarts(database_url: str) -> None:
    with PgBouncer(database_url, default_pool_size=10) as pooler:
        app = app_on(pooler.url(str(conninfo_to_dict(database_url)["dbname"])), "60s")
        watched = Watched(app)
        pooler.stop()
        worker = app.worker()
        starting = asyncio.create_task(worker.start())
        await watched.seen(DatabaseLost, part="start")
        await asyncio.to_thread(pooler.start)
        await asyncio.wait_for(starting, 30)
        assert len(watched.of(DatabaseLost, part="start")) == 1
        assert watched.of(DatabaseRestored, part="start")
        await worker.stop()
        await app.close()


async def test_it_waits_while_no_server_of_the_url_takes_writes(database_url: str) -> None:
    """As during a failover, when the old primary is a standby already and no other has been promoted."""
    writable = "alter database {} set default_transaction_read_only to {}"
    app = app_on(make_conninfo(database_url, target_session_attrs="read-write"), "60s")
    watched = Watched(app)
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(writable.format(name, "on").encode())
        worker = app.worker()
        starting = asyncio.create_task(worker.start())
        await watched.seen(DatabaseLost, part="start")
        connection.execute(writable.format(name, "off").encode())
    await asyncio.wait_for(starting, 30)
    await worker.stop()
    await app.close()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"user": "unheard_of"}, "does not exist"),
        ({"dbname": "unheard_of"}, "does not exist"),
        ({"options": "-c unheard_of=1"}, "unrecognized configuration parameter"),
        ({"options": "-c work_mem=much"}, "invalid value for parameter"),
        ({"sslmode": "unheard_of"}, "invalid sslmode"),
    ],
    ids=str,
)
async def test_what_does_not_pass_is_said_at_once(database_url: str, wrong: dict[str, str], said: str) -> None:
    app = app_on(make_conninfo(database_url, **wrong), "60s")
    began = elapsed()
    with pytest.raises(DatabaseUnavailable, match=said):
        await app.worker().start()
    assert elapsed() - began < 30
    await app.close()


@pytest.mark.parametrize("within", ["0s", "1s"])
async def test_it_does_not_wait_for_ever(within: str) -> None:
    app = app_on("postgresql://app@127.0.0.1:1/shop", within)
    with pytest.raises(DatabaseUnavailable, match="refused"):
        await asyncio.wait_for(app.worker().start(), 30)
    await app.close()


async def test_a_request_to_stop_ends_the_wait() -> None:
    app = app_on("postgresql://app@127.0.0.1:1/shop", "1h")
    watched = Watched(app)
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    await watched.seen(DatabaseLost, part="start")
    worker.request_stop()
    with pytest.raises(DatabaseUnavailable):
        await asyncio.wait_for(running, 30)
    await app.close()


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        ('connection to server at "10.0.0.1", port 5432 failed: Connection refused', True),
        ('connection to server on socket "/run/.s.PGSQL.5432" failed: No such file or directory', True),
        ("connection failed: FATAL:  the database system is starting up", True),
        ("connection failed: FATAL:  the database system is shutting down", True),
        ("connection failed: server closed the connection unexpectedly", True),
        ("connection failed: FATAL:  sorry, too many clients already", True),
        ('connection to server at "10.0.0.1", port 5432 failed: session is read-only', True),
        ('connection to server at "10.0.0.1", port 5432 failed: server is in hot standby mode', True),
        ("FATAL:  server login has been failing, cached error: connect failed (server_login_retry)", True),
        ("connection failed: FATAL:  das Datenbanksystem startet", True),
        ("connection failed: FATAL:  le système de bases de données se lance", True),
        ("connection failed: FATAL:  tut mir leid, schon zu viele Verbindungen", True),
        ("connection failed: Verbindungsaufbau abgelehnt", True),  # the process's own locale
        ("failed to resolve host 'db': [Errno -3] Temporary failure in name resolution", True),
        ("", True),  # a TimeoutError has no text
        ('FATAL:  server login has been failing, cached error: password authentication failed for user "x"', False),
        ('connection failed: FATAL:  password authentication failed for user "app"', False),
        ('connection failed: FATAL:  database "shop" does not exist', False),
        ('connection failed: FATAL:  no pg_hba.conf entry for host "10.0.0.1"', False),
        ("connection failed: root certificate file does not exist", False),
        ("connection failed: fe_sendauth: no password supplied", False),
        ('connection failed: FATAL:  role "app" is not permitted to log in', False),
        ('connection failed: FATAL:  permission denied for database "shop"', False),
        ("connection failed: FATAL:  no such database: shop", False),
        ("connection failed: SSL error: certificate verify failed", False),
        ("connection failed: server does not support SSL, but SSL was required", False),
    ],
)
async def test_which_refusals_pass(said: str, passes: bool) -> None:
    assert restarts(psycopg.OperationalError(said)) is passes


@pytest.mark.asyncio
async def test_a_start_that_is_refused_leaves_no_connection_open(database_url: str) -> None:
    app = App(database_url)

    @app.table("no_such_table", key="id", state="state").reconcile("new")
    async def fix(row: Row) -> None: ...

    with pytest.raises(ConfigError, match="no_such_table"):
        await app.worker().start()
    await app.close()
    with psycopg.connect(database_url, autocommit=True) as look:
        others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        wait_until(lambda: look.execute(others).fetchone() == (0,), "no session of the worker is left")


@pytest.mark.slow
async def test_behind_a_pooler_in_statement_mode_it_says_what_to_set_and_does_not_wait(database_url: str) -> None:
    with PgBouncer(database_url, pool_mode="statement") as pooler:
        app = app_on(pooler.url(str(conninfo_to_dict(database_url)["dbname"])), "1h")
        async with asyncio.timeout(60):
            with pytest.raises(DatabaseUnavailable, match=r"^the pooler .* refuses transactions: .*; set pool_mode ="):
                await app.worker().start()
        await app.close()
