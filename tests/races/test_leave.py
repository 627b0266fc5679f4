"""A worker that leaves while a claim of its own is still under way in the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from tests.store.desk import LEASE, Desk
from tests.support.interleave import UNBOUND, Side, interleave
from trueup import App
from trueup.jobs.limits import Controls, Limit
from trueup.store.store import Store
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

LANE = "@send"


def claim(holder: UUID) -> Callable[[Side], Awaitable[object]]:
    return lambda side: side.jobs.claim(holder, "default", 10, ["send"])


def claim_lane(holder: UUID) -> Callable[[Side], Awaitable[object]]:
    async def claiming(side: Side) -> object:
        await side.connection.execute("select 1")  # its transaction is ours to end
        claimed = await side.lanes.claim(holder, LANE, Controls(Limit(total=2)), 10)
        await side.connection.execute(UNBOUND)
        return claimed

    return claiming


@pytest.mark.parametrize(("lane", "claiming"), [("default", claim), (LANE, claim_lane)], ids=["queue", "lane"])
async def test_leaving_waits_for_a_claim_under_way_and_keeps_the_row_for_what_it_took(
    desk: Desk,
    store: Store,
    clock: ManualClock,
    lane: str,
    claiming: Callable[[UUID], Callable[[Side], Awaitable[object]]],
) -> None:
    if lane == LANE:
        await store.lanes.register([LANE])
    holder, job_id = await desk.worker(), await desk.put(lane=lane)
    _, left = await interleave(store, hold=claiming(holder), then=lambda side: side.workers.leave(holder))
    assert left.value is False
    assert holder in await desk.holders()
    clock.advance(seconds=LEASE.total_seconds())
    assert [rescued.job_id for rescued in await store.jobs.rescue()] == [job_id]


async def test_leaving_goes_when_the_claim_under_way_took_nothing(desk: Desk, store: Store) -> None:
    holder = await desk.worker()
    _, left = await interleave(store, hold=claim(holder), then=lambda side: side.workers.leave(holder))
    assert left.value is True
    assert await desk.holders() == set()


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
async def test_a_worker_stopped_while_the_server_stalls_leaves_no_job_running(
    database_url: str, isolation: str
) -> None:
    """The claim waits behind a lock, the worker gives up and leaves, the lock goes: somebody else runs the job."""
    with psycopg.connect(database_url, autocommit=True) as admin:
        database = admin.info.dbname
        admin.execute(f"alter database \"{database}\" set default_transaction_isolation = '{isolation}'")
    ran: list[int] = []
    app = App(database_url, statement_timeout="1s", lease_for="5s", rescue_every="200ms")

    @app.job
    async def send(n: int) -> None:
        ran.append(n)

    async with app, await psycopg.AsyncConnection.connect(database_url) as stall:
        worker = app.worker(concurrency=2)
        await worker.start()
        await stall.execute("lock table trueup.jobs in share row exclusive mode")
        await send.using(tx=stall).enqueue(1)  # by the transaction that stalls the others
        async with asyncio.timeout(20):
            while not await _claim_waits(database_url):
                worker.hints.hear("default")  # again and again: a look that falls on it sees no job, and drops the hint
                await asyncio.sleep(0.01)
            await worker.stop(timedelta(seconds=1))
            await stall.commit()
            async with app.worker(concurrency=2):
                while not ran:
                    await asyncio.sleep(0.01)
    assert ran == [1]


async def _claim_waits(url: str) -> bool:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        cursor = await connection.execute(
            "select count(*) from pg_stat_activity where application_name = 'trueup claim' and wait_event_type = 'Lock'"
        )
        return (await cursor.fetchone() or (0,))[0] > 0
