"""Timeouts that a role or a database sets for every session, as short as they can be.

Each operation works, or its error names the setting. A worker's own connections are exempt, so that it never loses them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from tests.support.database import TestServer
from tests.support.watching import Watched, until
from trueup import App, Context, JobFailed, Retry, TrueupError
from trueup.events import DatabaseLost, ListenUnavailable
from trueup.store.db.connect import went_away
from trueup.web import dashboard

pytestmark = pytest.mark.asyncio

# The value, and how PostgreSQL names the setting when it ends something because of it.
SHORT = {
    "statement_timeout": ("20ms", "statement timeout"),
    "lock_timeout": ("20ms", "lock timeout"),
    "idle_in_transaction_session_timeout": ("20ms", "idle-in-transaction timeout"),
    "transaction_timeout": ("20ms", "transaction timeout"),
}
BROKEN = (
    "server closed the connection",
    "connection to the server",
    "connection is",
)  # seen before the reason was read
IDLE = "1s"
Double = Any  # a job of one argument


@contextmanager
def database(server: TestServer, setting: str, value: str) -> Iterator[str]:
    with server.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            name = sql.Identifier(connection.info.dbname)
            connection.execute(
                sql.SQL("alter database {} set {} = {}").format(name, sql.Identifier(setting), sql.Literal(value))
            )
        yield url


async def open_app(app: App, double: Double) -> None:
    await app.open()


async def run_a_worker(app: App, double: Double) -> None:
    async with app.worker():
        pass


async def enqueue(app: App, double: Double) -> None:
    await double.enqueue(1)


async def enqueue_sync(app: App, double: Double) -> None:
    await asyncio.to_thread(double.enqueue_sync, 1)


async def enqueue_many(app: App, double: Double) -> None:
    await double.enqueue_many((n,) for n in range(600))


async def hold_a_lease(app: App, double: Double) -> None:
    async with app.lease("deploy"):
        pass


async def hold_a_transaction(app: App, double: Double) -> None:
    async with app.transaction() as tx:
        await tx.execute("select")


async def read_the_dashboard(app: App, double: Double) -> None:
    transport = httpx.ASGITransport(dashboard.asgi(app, dashboard.Open()), client=("127.0.0.1", 40_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", follow_redirects=True) as client:
        answer = await client.get("/")
        if answer.status_code != 200:
            raise TrueupError(answer.text)


OPERATIONS: tuple[Callable[[App, Double], Awaitable[None]], ...] = (
    open_app,
    run_a_worker,
    enqueue,
    enqueue_sync,
    enqueue_many,
    hold_a_lease,
    hold_a_transaction,
    read_the_dashboard,
)


def app_on(url: str) -> tuple[App, Double]:
    app = App(url, start_within="0s", pool_timeout="5s")

    @app.job
    async def double(n: int) -> int:
        return 2 * n

    return app, double


@pytest.mark.parametrize("setting", SHORT)
async def test_everything_works_or_the_error_names_the_setting(
    server: TestServer, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trueup.work.leases.hold.RETRY_DELAYS", ())
    value, name = SHORT[setting]
    said = {}
    with database(server, setting, value) as url:
        app, double = app_on(url)
        for operation in OPERATIONS:
            try:
                async with asyncio.timeout(30):
                    await operation(app, double)
            except (psycopg.Error, TrueupError) as error:
                said[operation.__name__] = str(error)
        await app.close()
    clear = (name, setting, *BROKEN)
    unclear = [(each, text) for each, text in said.items() if not any(phrase in text for phrase in clear)]
    assert unclear == []


async def test_an_idle_session_timeout_costs_a_worker_none_of_its_connections(server: TestServer) -> None:
    with database(server, "idle_session_timeout", IDLE) as url:
        app, double = app_on(url)
        watched = Watched(app)
        async with app, app.worker(), app.lease("mine", backend="advisory") as lease:
            assert await (await double.enqueue(4)).result("30s") == 8
            with psycopg.connect(url, autocommit=True) as canary:  # it becomes idle after all of the others
                await until(lambda: went_away(canary))
            assert lease.held()
            assert await (await double.enqueue(5)).result("30s") == 10
        assert watched.of(DatabaseLost) == []
        assert watched.of(ListenUnavailable) == []


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("set local transaction_timeout to '20ms'", "transaction timeout"),
        ("set local idle_in_transaction_session_timeout to '20ms'", "idle-in-transaction timeout"),
    ],
    ids=["transaction", "idle in transaction"],
)
async def test_a_job_whose_transaction_takes_too_long_spends_its_attempts(app: App, limit: str, said: str) -> None:
    @app.job(retry=Retry(max_attempts=1))
    async def slow(*, ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(limit)
            await until(lambda: went_away(tx))

    async with app.worker():
        job = await slow.enqueue()
        with pytest.raises(JobFailed, match=said):
            await job.result("30s")
