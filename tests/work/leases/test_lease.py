"""The lease of a running worker: kept whatever handlers do, and what happens when it is lost all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import psycopg
import pytest
import pytest_asyncio

from tests.support.watching import Watched, until
from trueup import App, Context, injected
from trueup.events import (
    DatabaseLost,
    JobClaimLost,
    JobCompleted,
    JobStarted,
    LoopBlocked,
    WorkerLeaseLost,
    WorkerStarted,
)

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def brief(database_url: str) -> AsyncIterator[App]:
    """An App with short leases and a small pool."""
    app = App(database_url, lease_for="2s", rescue_every="200ms", pool_size=2, blocked_after="300ms")
    yield app
    await app.close()


@pytest.mark.slow
async def test_a_handler_that_blocks_the_loop_for_long_keeps_its_lease_and_is_named(brief: App) -> None:
    events = Watched(brief)

    @brief.job
    async def rude() -> str:
        time.sleep(5)
        return "sorry"

    async with brief.worker():
        job = await rude.enqueue()
        assert await job.result(timeout="30s") == "sorry"
    (blocked,) = events.of(LoopBlocked)
    assert blocked.handler == "rude"
    assert "time.sleep(5)" in blocked.stack
    assert not events.of(WorkerLeaseLost)
    assert [event.attempt for event in events.of(JobCompleted)] == [1]


async def test_handlers_that_take_every_pooled_connection_do_not_stop_the_worker(
    brief: App,
) -> None:
    events = Watched(brief)
    release = asyncio.Event()

    @brief.job
    async def greedy() -> None:
        async with brief.store.pool.use():
            await release.wait()

    @brief.job
    async def modest() -> None: ...

    await greedy.enqueue_many([(), ()])
    await modest.using(delay="3s").enqueue_many([()] * 20)
    async with brief.worker():
        await events.seen(JobStarted, count=2, kind="greedy")
        await events.seen(JobCompleted, count=20, kind="modest")  # later than a lease after the pool was used up
        assert not events.of(WorkerLeaseLost)
        release.set()
        await events.seen(JobCompleted, count=2, kind="greedy")


async def test_a_lost_lease_cancels_the_handler_and_the_worker_goes_on_as_another_holder(
    brief: App, database_url: str
) -> None:
    events = Watched(brief)
    seen: list[str] = []
    told = asyncio.Event()

    @brief.job
    async def long(ctx: Context = injected) -> None:
        if ctx.term > 1:
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            if ctx.lost.is_set():
                seen.append("lost")
            told.set()
            raise

    async with brief.worker() as worker:
        job = await long.enqueue()
        await events.seen(JobStarted)
        first = worker.holder
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as thief:
            await thief.execute("update trueup.workers set lease_until = now() - interval '1 second'")
        await asyncio.wait_for(told.wait(), 15)
        await events.seen(WorkerStarted, count=2)
        assert worker.holder != first
        await job.result(timeout="15s")
    assert seen == ["cancelled", "lost"]
    assert [event.holder for event in events.of(WorkerLeaseLost)] == [first]
    assert [(event.job_id, event.term) for event in events.of(JobClaimLost)] == [(job, 1)]
    assert [event.attempt for event in events.of(JobCompleted)] == [2]


async def test_a_sync_handler_learns_in_its_thread_that_the_lease_is_lost(brief: App, database_url: str) -> None:
    events = Watched(brief)
    told: list[bool] = []

    @brief.job
    def long(ctx: Context = injected) -> None:
        if ctx.term == 1:
            told.append(ctx.lost.wait_sync(15))

    async with brief.worker():
        job = await long.enqueue()
        await events.seen(JobStarted)
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as thief:
            await thief.execute("update trueup.workers set lease_until = now() - interval '1 second'")
        await until(lambda: told)
        await job.result(timeout="15s")
    assert told == [True]


async def test_two_workers_of_one_process_are_two_holders(app: App) -> None:
    @app.job
    async def noop() -> None: ...

    async with app.worker() as one, app.worker() as two:
        assert one.holder != two.holder
        assert {str(row["holder"]) for row in await app.store.views.workers()} == {one.holder, two.holder}


@pytest.mark.slow
async def test_a_worker_whose_sessions_are_all_ended_says_so_and_works_on(app: App, database_url: str) -> None:
    events = Watched(app)

    @app.job
    async def noop() -> None: ...

    async with app.worker():
        await (await noop.enqueue()).result(timeout="15s")
        for _ in range(5):
            async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as killer:
                await killer.execute(
                    "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                    " where datname = current_database() and pid <> pg_backend_pid()"
                )
            await (await noop.enqueue()).result(timeout="15s")
    assert events.of(DatabaseLost)
    assert not events.of(WorkerLeaseLost)
