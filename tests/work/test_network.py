"""A worker behind a bad network, a pooler, and a server without free connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.support.pgbouncer import PgBouncer
from tests.support.proxy import Proxy
from tests.support.watching import Watched, until
from trueup import App, Context, Discard, GiveUp, Retry, Snooze, Tick, injected
from trueup.events import (
    DatabaseLost,
    DatabaseRestored,
    JobBuried,
    JobClaimLost,
    JobCompleted,
    JobDropped,
    JobRetried,
    JobSnoozed,
    ListenRestored,
    ListenUnavailable,
    WorkerLeaseLost,
    WorkerStarted,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

SHORT: dict[str, Any] = {"lease_for": "2s", "rescue_every": "200ms", "poll_every": "500ms", "statement_timeout": "1s"}


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    with Proxy.before(database_url) as proxy:
        yield proxy


async def test_a_worker_heals_after_its_network_was_cut(proxy: Proxy, database_url: str) -> None:
    app = App(proxy.url(database_url), **SHORT)
    events = Watched(app)

    @app.job
    async def noop() -> None: ...

    async with app.worker():
        await (await noop.enqueue()).result(timeout="15s")
        proxy.cut()
        await events.seen(DatabaseLost)
        proxy.heal()
        await events.seen(DatabaseRestored)
        await events.seen(ListenRestored)
        await (await noop.enqueue()).result(timeout="15s")
    await app.close()


async def test_a_worker_heals_after_its_network_went_silent_past_its_lease(proxy: Proxy, database_url: str) -> None:
    app = App(proxy.url(database_url), **SHORT)
    events = Watched(app)

    @app.job
    async def noop() -> None: ...

    async with app.worker():
        await (await noop.enqueue()).result(timeout="15s")
        proxy.black_hole()
        await events.seen(WorkerLeaseLost)
        proxy.heal()
        await events.seen(WorkerStarted, count=2)
        await (await noop.enqueue()).result(timeout="15s")
    await app.close()


async def test_a_worker_heals_although_handlers_keep_every_thread_of_the_event_loop(
    proxy: Proxy, database_url: str
) -> None:
    """`asyncio.to_thread` has a few threads for all who call it, and a handler's call may never end."""
    app = App(proxy.url(database_url).replace("127.0.0.1", "localhost"), **SHORT)
    events, over = Watched(app), threading.Event()

    @app.job
    async def hog() -> None:
        await asyncio.gather(*(asyncio.to_thread(over.wait) for _ in range(40)))

    @app.job
    async def noop() -> None: ...

    over_anyway = threading.Timer(30, over.set)
    over_anyway.start()
    try:
        async with app.worker() as worker:
            await hog.enqueue()
            await until(lambda: worker.hand.running)
            proxy.cut()
            await events.seen(DatabaseLost)
            proxy.heal()
            await (await noop.enqueue()).result(timeout="15s")
            async with asyncio.timeout(10):  # nor do they keep it from stopping
                await worker.stop(timedelta())
    finally:
        over.set()
        over_anyway.cancel()
    await app.close()


async def test_a_slow_network_costs_time_and_no_lease(proxy: Proxy, database_url: str) -> None:
    app = App(proxy.url(database_url), lease_for="5s")
    events = Watched(app)

    @app.job
    async def noop() -> None: ...

    proxy.delay(0.1)
    async with app.worker():
        await noop.enqueue_many([()] * 50)
        await events.seen(JobCompleted, count=50)
    assert not events.of(WorkerLeaseLost)
    assert not events.of(JobClaimLost)
    await app.close()


@pytest.mark.parametrize(
    "statement", [b"-- complete:", b"-- retry:", b"-- snooze:", b"-- bury:", b"-- drop:", b"-- claim:"]
)
async def test_a_lost_reply_is_looked_up_and_the_job_ends_once(
    proxy: Proxy, database_url: str, statement: bytes
) -> None:
    # The lease outlasts the test: when it passes, the job is rescued instead of looked up.
    app = App(proxy.url(database_url), **{**SHORT, "lease_for": "20s"})
    events = Watched(app)
    runs: list[int] = []

    @app.job(retry=Retry(max_attempts=3, first="1h"))
    async def act(how: str, ctx: Context = injected) -> str:
        runs.append(ctx.term)
        match how, ctx.term:
            case "retry", 1:
                raise OSError("again")
            case "snooze", 1:
                raise Snooze("1h")
            case "bury", _:
                raise GiveUp("no")
            case "drop", _:
                raise Discard("no")
        return how

    how = statement[3:-1].decode()
    expected = {"bury": "dead", "drop": "cancelled"}.get(how, "done")
    async with app.worker():
        loss = proxy.drop_next_reply(statement)
        job = await act.enqueue(how)
        if back := {"retry": JobRetried, "snooze": JobSnoozed}.get(how):
            await events.seen(back, job_id=job)
            await app.jobs.hurry(
                [int(job)]
            )  # not before its outcome is looked up: one that is claimed again counts as lost
        ended = {"dead": JobBuried, "cancelled": JobDropped}.get(expected, JobCompleted)
        await events.seen(ended, job_id=job)
        loss.wait()
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("select state from trueup.history where id = %s", [job]).fetchall()
    assert rows == [(expected,)]
    assert len(events.of(ended)) == 1
    assert not events.of(JobClaimLost)
    assert len(runs) == (2 if how in ("retry", "snooze") else 1)
    await app.close()


async def test_all_works_through_pgbouncer_in_transaction_mode_without_notifications(
    database_url: str,
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    with PgBouncer(database_url) as bouncer:
        app = App(bouncer.url(str(name)))
        events = Watched(app)

        @app.job(retry=Retry(max_attempts=2, first="10ms"))
        async def choosy(n: int, ctx: Context = injected) -> int:
            match n % 5:
                case 0:
                    raise Discard("not wanted")
                case 1:
                    raise GiveUp("hopeless")
                case 2 if ctx.term == 1:
                    raise Snooze("10ms")
                case 3 if ctx.attempt == 1:
                    raise OSError("again")
                case 4:
                    async with ctx.transaction() as tx:
                        await tx.execute("select 1")
            return n

        async with app.worker():
            await choosy.enqueue_many([(n,) for n in range(500)])
            await events.seen(ListenUnavailable)
            await events.seen(JobCompleted, count=300)
            await events.seen(JobDropped, count=100)
            await events.seen(JobBuried, count=100)
        assert len(events.of(JobSnoozed)) == 100
        assert not events.of(JobClaimLost)
        await app.close()


async def test_a_worker_that_is_refused_connections_waits_and_goes_on(proxy: Proxy, database_url: str) -> None:
    app = App(proxy.url(database_url), **SHORT)
    events = Watched(app)

    @app.job
    async def noop() -> None: ...

    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    async with app.worker():
        await (await noop.enqueue()).result(timeout="15s")
        with psycopg.connect(database_url.replace(f"/{name}", "/postgres"), autocommit=True) as owner:
            owner.execute(f"alter database {name} with allow_connections false".encode())
            proxy.cut()
            proxy.heal()
            await events.seen(WorkerLeaseLost)
            owner.execute(f"alter database {name} with allow_connections true".encode())
        await events.seen(DatabaseRestored)
        await (await noop.enqueue()).result(timeout="15s")
    await app.close()


async def test_ticks_fire_once_each_through_pgbouncer_in_transaction_mode(database_url: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    with PgBouncer(database_url) as bouncer:
        apps = [App(bouncer.url(str(name))) for _ in range(2)]
        due: list[datetime] = []
        for app in apps:

            @app.cron("* * * * * *", lease="postgres")
            async def beat(tick: Tick) -> None:
                due.append(tick.due_at)

        async with apps[0], apps[1], apps[0].worker(), apps[1].worker():
            await until(lambda: len(due) >= 3)
            audit = await apps[0].schedules.audit("1m")
    assert len(set(due)) == len(due)
    assert [findings.name for findings in audit.schedules] == ["beat"]
    assert audit.clean
