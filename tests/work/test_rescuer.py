"""Dead workers: what they held is taken over at once, and their rows do not stay."""

from __future__ import annotations

import psycopg
import pytest

from trueup import App
from trueup.events import WorkerExpired
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker
from trueup.work.housekeeping import FORGET_EVERY

pytestmark = pytest.mark.asyncio


def registered(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("select count(*) from trueup.workers").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("passes_before", range(FORGET_EVERY))
@pytest.mark.parametrize("held_a_job", [True, False])
async def test_a_dead_worker_is_reported_once_and_forgotten_at_once_if_it_held_jobs(
    still: App, clock: ManualClock, database_url: str, held_a_job: bool, passes_before: int
) -> None:
    @still.job
    async def greet() -> None: ...

    survivor, victim = ManualWorker(still), ManualWorker(still)
    expired: list[WorkerExpired] = []
    still.events.subscribe(expired.append, WorkerExpired)
    try:
        await survivor.begin()
        for _ in range(passes_before):
            await survivor.rescue()
        await victim.begin()
        holder = victim.worker.registrations.present
        assert holder is not None
        if held_a_job:
            await greet.enqueue()
            await victim.claim()
        clock.advance(hours=1)
        await survivor.worker.register()
        passes = 0
        while not any(each.holder == str(holder.holder) for each in expired):
            await survivor.rescue()
            passes += 1
            assert passes <= FORGET_EVERY
        assert passes == 1 or not held_a_job
        for _ in range(FORGET_EVERY):
            await survivor.rescue()
        assert len(expired) == len({each.holder for each in expired})
        assert registered(database_url) == 1, "the survivor"
    finally:
        await survivor.end()
        await victim.end()
