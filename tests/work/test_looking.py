"""A worker that hears of one queue all the time still looks at the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.watching import Watched
from trueup import App, Context, Job
from trueup.events import JobCompleted

pytestmark = pytest.mark.asyncio

POLL = 0.3  # seconds


@asynccontextmanager
async def heard_of_often(job: Job[..., Any]) -> AsyncIterator[None]:
    """More often than it looks by itself."""

    async def enqueue() -> None:
        while True:
            await job.enqueue()
            await asyncio.sleep(POLL / 6)

    task = asyncio.create_task(enqueue())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_job_that_becomes_due_in_a_quiet_queue_is_not_put_off_by_a_busy_one(database_url: str) -> None:
    app = App(database_url, poll_every=f"{POLL}s")
    seen = Watched(app)

    @app.job(queue="busy")
    async def often() -> None: ...

    @app.job(queue="quiet")
    async def later() -> None: ...

    async with app, app.worker(queues=["busy", "quiet"]), heard_of_often(often):
        await seen.seen(JobCompleted, kind="often", count=3)
        await later.using(delay=f"{2 * POLL}s").enqueue()
        await seen.seen(JobCompleted, kind="later")


async def test_a_kind_at_its_limit_goes_on_though_a_queue_is_busy(database_url: str) -> None:
    app = App(database_url, poll_every=f"{POLL}s")
    seen = Watched(app)

    @app.job
    async def often() -> None: ...

    @app.job(limit=1)
    async def limited(n: int, *, ctx: Context) -> None:
        async with ctx.transaction() as tx:  # ends there, and so nobody is told that there is room
            await tx.execute("select 1")

    async with app, app.worker(), heard_of_often(often):
        await seen.seen(JobCompleted, kind="often", count=3)
        await limited.enqueue_many([(n,) for n in range(5)])
        await seen.seen(JobCompleted, kind="limited", count=5)


async def test_a_worker_that_has_no_room_waits_until_somebody_makes_some(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has ended and cannot be written takes room, and looking again at once changes nothing."""
    app = App(database_url, prefetch=4)
    seen = Watched(app)

    @app.job
    async def noop(n: int) -> None: ...

    async with app:
        await noop.enqueue_many([(n,) for n in range(300)])
        worker = app.worker(concurrency=2)
        look, send, looks = worker.claimer.run_once, worker.finisher._send, 0

        async def looking() -> float:
            nonlocal looks
            looks += 1
            return await look()

        async def slowly(*given: Any) -> Any:
            await asyncio.sleep(0.02)
            return await send(*given)

        monkeypatch.setattr(worker.claimer, "run_once", looking)
        monkeypatch.setattr(worker.finisher, "_send", slowly)
        async with worker:
            await seen.seen(JobCompleted, count=300)
    assert looks < 300  # some for each time that outcomes were written
