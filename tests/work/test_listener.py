"""Channels have no rights: whatever strangers send, the listener goes on, and notifications of our own still wake workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.database import TestServer
from tests.support.pgbouncer import PgBouncer
from tests.support.proxy import Proxy
from tests.support.watching import Watched, until
from trueup import App
from trueup.events import JobCompleted, ListenUnavailable, NotificationIgnored, ServiceFailed
from trueup.store.db.listen import UNREADABLE, NotifyConnection
from trueup.store.db.load import Statements, names, source
from trueup.work.listener import parse_work

HOSTILE = [
    "",
    " ",
    "default inf",
    "default -inf",
    "default nan",
    "default -1",
    "default 1e308",
    "default 1e400",
    "default 999999999999999999999999",
    "default " + "9" * 7000,
    "default 0x10",
    "default 1_000",
    "default ١",
    "default 5\n",
    "default",
    "default 999999999999",
    "@nobody 0",
    "elsewhere 0",
    " 0",
    "stop stop",
    "schedules\n",
    "ping",
    "ping inf",
    "\x01\x1b[31m\u202e",
    "é" * 3500,
    "{'password': 'geheim'}",
]


@pytest.fixture
def stranger(server: TestServer, database_url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A role that has nothing but the right to connect."""
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("drop role if exists stranger")
        owner.execute("create role stranger login")
    with psycopg.connect(make_conninfo(database_url, user="stranger"), autocommit=True) as connection:
        yield connection
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("drop role stranger")


@pytest.mark.asyncio
async def test_no_payload_of_a_stranger_hurts_the_listener(
    database_url: str, stranger: psycopg.Connection[tuple[object, ...]]
) -> None:
    app = App(database_url, poll_every="5m")  # only a notification can be in time
    events = Watched(app)

    @app.job
    async def work() -> None: ...

    async with app.worker() as worker:
        await until(lambda: worker.claimer.listening)
        for payload in HOSTILE * 20:
            stranger.execute("select pg_notify('trueup_trueup', %s)", [payload])
        for seconds in range(2000):
            stranger.execute("select pg_notify('trueup_trueup', %s)", [f"default {seconds / 1000}"])
        stranger.execute("select pg_notify('trueup_trueup', 'default inf')")
        await events.seen(NotificationIgnored, count=20 * 10)
        job = await work.enqueue()
        await events.seen(JobCompleted, job_id=job.id)
        later = await work.using(delay="200ms").enqueue()
        await events.seen(JobCompleted, job_id=later.id)
    assert not events.of(ServiceFailed)
    assert not events.of(ListenUnavailable)
    ignored = events.of(NotificationIgnored)
    assert len(ignored) >= 20 * 10
    assert all(len(event.payload) < 200 and "geheim" not in event.payload for event in ignored)


@given(st.text())
def test_any_payload_is_work_or_nothing(payload: str) -> None:
    work = parse_work(payload)
    assert work is None or timedelta(seconds=work.seconds) >= timedelta()


@pytest.mark.parametrize(
    "payload", ["default 0", "default 0.000000", "@send 12.5", "a queue 3", "mail:x/y.z 86400.000001"]
)
def test_our_own_payloads_are_work(payload: str) -> None:
    work = parse_work(payload)
    assert work is not None
    assert (work.lane, work.seconds) == (payload.rpartition(" ")[0], float(payload.rpartition(" ")[2]))


@pytest.mark.asyncio
async def test_bytes_that_are_not_text_do_not_end_the_listening(server: TestServer, empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as owner:
        owner.execute("drop database if exists any_bytes")
        owner.execute("create database any_bytes encoding 'SQL_ASCII' template template0 locale 'C'")
    url = make_conninfo(empty_database_url, dbname="any_bytes")
    notify_connection = NotifyConnection(url, Statements("trueup"), timedelta(seconds=5))
    try:
        assert await notify_connection.open()
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(b"select pg_notify('trueup_trueup', '\xff\xfe')")
            heard = notify_connection.heard()
            assert await anext(heard) == UNREADABLE
            other.execute(b"select pg_notify('trueup_trueup', 'default 0')")
            assert await anext(heard) == "default 0"
            await heard.aclose()
    finally:
        await notify_connection.close()
        with psycopg.connect(empty_database_url, autocommit=True) as owner:
            owner.execute("drop database any_bytes with (force)")


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_server_that_takes_the_connection_and_says_nothing_is_given_up(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = psycopg.AsyncConnection.connect
    with Proxy.before(database_url) as proxy:

        async def connected(**settings: Any) -> Any:
            connection = await connect(**settings)
            proxy.black_hole()
            return connection

        monkeypatch.setattr("trueup.store.db.listen.AsyncConnection.connect", connected)
        notify_connection = NotifyConnection(proxy.url(database_url), Statements("trueup"), timedelta(seconds=1))
        notify_connection._within = 0.5
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(notify_connection.open()), 30)
        await notify_connection.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(("mode", "hears"), [("transaction", False), ("session", True)])
async def test_behind_a_pooler_no_session_that_others_get_next_listens(
    database_url: str, mode: str, hears: bool
) -> None:
    name = str(conninfo_to_dict(database_url)["dbname"])
    with PgBouncer(database_url, pool_mode=mode) as pooler:
        notify_connection = NotifyConnection(pooler.url(name), Statements("trueup"), timedelta(seconds=5))
        try:
            assert await notify_connection.open() is hears
        finally:
            await notify_connection.close()
        left = pooler.sessions(name) if mode == "transaction" else []  # one that was listened on ends with its client
        assert [each.channels for each in left] == [0] * len(left)
        assert left or hears


# -- notify=false ----------------------------------------------------------------------------------------------------------------


def test_without_notify_no_statement_sends_a_notification() -> None:
    sending = [name for name in names() if "pg_notify" in source(name)]
    assert len(sending) > 10
    quiet = Statements("trueup", notify=False)
    assert [name for name in sending if b"pg_notify" in quiet[name]] == []


@pytest.mark.asyncio
async def test_without_notify_work_is_done_by_polling(database_url: str) -> None:
    app = App(database_url, notify=False, poll_without_listen="50ms")
    watched = Watched(app)

    @app.job
    async def send(n: int) -> None: ...

    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("listen trueup_trueup")
        async with app, app.worker():
            await send.enqueue(1)
            await send.enqueue_many((n,) for n in range(600))
            await watched.seen(JobCompleted, count=601)
            assert list(other.notifies(timeout=0)) == []
            listening = "select count(*) from pg_stat_activity where application_name = 'trueup listen'"
            assert other.execute(listening).fetchone() == (0,)
