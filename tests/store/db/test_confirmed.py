"""Commits that wait for a synchronous standby, and whose wait is cancelled: nothing that commits takes them for durable.
Connections that break in the middle of an answer are lost connections."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.support.database import TEMPLATE, TestServer
from trueup import App, DatabaseUnavailable, Job
from trueup.store.db.confirmed import AsyncConfirmedConnection, ConfirmedConnection, Unconfirmed
from trueup.store.db.connect import RETRYABLE, is_away, may_pass, unanswered
from trueup.store.db.message import BEGIN

pytestmark = pytest.mark.asyncio

CANCEL = "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep' and datname = %s"
WRITE = b"create table written (n int)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """A server whose commits wait for a standby that is not there, where they are asked to wait at all."""
    directory = tmp_path_factory.mktemp("synchronous")
    with TestServer(directory, synchronous_standby_names="nobody", synchronous_commit="local") as server:
        yield server


@pytest.fixture
def waiting_url(server: TestServer) -> Iterator[str]:
    with server.database(TEMPLATE) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"alter database {connection.info.dbname} set synchronous_commit to on".encode())
        yield url


@contextmanager
def every_wait_is_cancelled(url: str) -> Iterator[list[int]]:
    """Yields what grows with each."""
    ended, cancelled = threading.Event(), list[int]()

    def cancel() -> None:
        with psycopg.connect(url, autocommit=True, options="-c synchronous_commit=local") as connection:
            while not ended.wait(0.01):
                cancelled.extend(row[0] for row in connection.execute(CANCEL, [connection.info.dbname]))

    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        yield cancelled
    finally:
        ended.set()
        thread.join()


async def in_a_transaction(app: App, send: Job[..., Any]) -> None:
    async with app.transaction() as tx:
        await send.using(tx=tx).enqueue(1)


def in_a_sync_transaction(app: App, send: Job[..., Any]) -> None:
    with app.store.transactions.begin_sync() as tx:
        send.using(tx=tx).enqueue_sync(1)


def with_a_lease(app: App, _: Job[..., Any]) -> None:
    with app.lease("nightly"):
        raise AssertionError("a lease that a failover forgets must not be held")


async def in_a_line(app: App, _: Job[..., Any]) -> None:
    line = app.store.own_connection("test")
    try:
        await line.fetch(WRITE)
    finally:
        await line.close()


async def in_a_steered_line(app: App, _: Job[..., Any]) -> None:
    line = app.store.own_connection("test")
    try:
        await line.fetch_steered(b"select 1", WRITE, {})
    finally:
        await line.close()


async def in_repeated_messages(app: App, _: Job[..., Any]) -> None:
    line = app.store.own_connection("test")
    try:
        await line.repeat(1, [BEGIN, WRITE, b"COMMIT"], lambda _: None)
    finally:
        await line.close()


WAYS: dict[str, Callable[[App, Job[..., Any]], Any]] = {
    "enqueue": lambda _, send: send.enqueue(1),
    "enqueue_sync": lambda _, send: asyncio.to_thread(send.enqueue_sync, 1),
    "enqueue_many": lambda _, send: send.enqueue_many([(1,), (2,)]),
    "enqueue_many_sync": lambda _, send: asyncio.to_thread(send.enqueue_many_sync, [(1,), (2,)]),
    "a transaction": in_a_transaction,
    "a sync transaction": lambda app, send: asyncio.to_thread(in_a_sync_transaction, app, send),
    "a lease": lambda app, send: asyncio.to_thread(with_a_lease, app, send),
    "a line": in_a_line,
    "a steered line": in_a_steered_line,
    "repeated messages": in_repeated_messages,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
async def test_a_commit_whose_wait_was_cancelled_is_an_error_of_unknown_outcome(
    waiting_url: str, way: Callable[[App, Job[..., Any]], Awaitable[Any]]
) -> None:
    async with App(waiting_url) as app:

        @app.job
        async def send(n: int) -> None: ...

        refused = pytest.raises((Unconfirmed, DatabaseUnavailable), match="synchronous standby")
        with every_wait_is_cancelled(waiting_url) as cancelled, refused:
            await way(app, send)
        assert cancelled, "no commit has waited"
        async with app.store.pool.use() as connection:  # the connections go on
            assert await (await connection.execute("select 1")).fetchone() == (1,)


async def test_it_is_like_a_connection_that_was_lost_during_the_commit() -> None:
    error = Unconfirmed()
    assert isinstance(error, RETRYABLE)
    assert is_away(error)
    assert not may_pass(error)
    assert error.sqlstate == "08007"


# -- connections that a pooler breaks ---------------------------------------------------------------------------------


def message(kind: bytes, content: bytes) -> bytes:
    return kind + (len(content) + 4).to_bytes(4, "big") + content


COMMITTED = message(b"C", b"COMMIT\0")
CRASHED = message(b"E", b"SFATAL\0VFATAL\0C08P01\0Mserver conn crashed?\0\0")


@contextmanager
def a_pooler_whose_server_has_gone(last: bytes) -> Iterator[str]:
    """It answers BEGIN, and to COMMIT it sends this and hangs up."""

    def serve() -> None:
        client, _ = listener.accept()
        with client, client.makefile("rb") as sent:
            sent.read(int.from_bytes(sent.read(4), "big") - 4)
            client.sendall(message(b"R", bytes(4)) + message(b"Z", b"I"))
            while kind := sent.read(1):
                content = sent.read(int.from_bytes(sent.read(4), "big") - 4)
                if b"COMMIT" in content:
                    client.sendall(last)
                    return
                if kind == b"Q":
                    client.sendall(message(b"C", b"BEGIN\0") + message(b"Z", b"T"))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"host=127.0.0.1 port={listener.getsockname()[1]} user=u dbname=d sslmode=disable gssencmode=disable"
        thread.join(10)


async def commit_async(conninfo: str) -> None:
    async with (
        await AsyncConfirmedConnection.connect(conninfo, autocommit=True) as connection,
        connection.transaction(),
    ):
        pass


def commit_sync(conninfo: str) -> None:
    with ConfirmedConnection.connect(conninfo, autocommit=True) as connection, connection.transaction():
        pass


@pytest.mark.parametrize(
    "last", [b"", CRASHED, COMMITTED, COMMITTED + CRASHED], ids=["nothing", "error", "answer", "answer and error"]
)
@pytest.mark.parametrize("commit", [commit_async, lambda conninfo: asyncio.to_thread(commit_sync, conninfo)])
async def test_a_connection_broken_by_a_pooler_mid_answer_leaves_the_outcome_unknown(
    commit: Callable[[str], Awaitable[None]], last: bytes
) -> None:
    with a_pooler_whose_server_has_gone(last) as conninfo, pytest.raises(psycopg.Error) as raised:
        await commit(conninfo)
    assert is_away(raised.value), raised.value
    assert unanswered(raised.value)
