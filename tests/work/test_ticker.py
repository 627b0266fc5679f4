"""Ticks as workers fire and run them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from tests.store.desk import Desk
from tests.support.watching import TIMEOUT, Watched, until
from trueup import App, Retry, Tick
from trueup.clock import elapsed
from trueup.events import JobBuried, JobCompleted, JobDropped, ScheduleChanged, ScheduleUnreadable, TicksDecided
from trueup.schedules import Cron
from trueup.schedules.policy import SchedulePolicy
from trueup.store.schedules import Entry
from trueup.testing.clock import NOON, ManualClock
from trueup.testing.worker import ManualWorker
from trueup.work.ticker import AGAIN, MAX_WAIT, SPREAD, Ticker

pytestmark = pytest.mark.asyncio

MINUTE = timedelta(minutes=1)


class Hourglass:
    """A worker without loops, and a clock that is turned."""

    def __init__(self, app: App, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock
        self.worker: ManualWorker | None = None

    async def begin(self) -> None:
        """Start the worker, with the schedules that are declared by now."""
        self.worker = ManualWorker(self.app)
        await self.worker.begin()

    @property
    def ticker(self) -> Ticker:
        assert self.worker is not None
        return self.worker.worker.ticker

    async def pass_time(self, **duration: float) -> int:
        """Move the clock, plan, and run what is due. Returns how many runs there were."""
        assert self.worker is not None
        self.clock.advance(**duration)
        while (await self.ticker.plan()).more:
            pass
        return await self.worker.run_pending()


@pytest_asyncio.fixture
async def glass(still: App, clock: ManualClock) -> AsyncIterator[Hourglass]:
    glass = Hourglass(still, clock)
    yield glass
    if glass.worker is not None:
        await glass.worker.end()


# -- what a run is given ------------------------------------------------------------------------------------------------------


async def test_a_run_is_told_its_tick_and_how_late_it_is(still: App, glass: Hourglass) -> None:
    seen: list[Tick] = []

    @still.cron("* * * * *")
    async def minutely(tick: Tick) -> None:
        seen.append(tick)

    await glass.begin()
    assert await glass.pass_time(seconds=67) == 1
    assert seen == [Tick("minutely", NOON + MINUTE, timedelta(seconds=7), 1)]


async def test_a_plain_function_in_a_thread_is_told_its_tick_too(still: App, glass: Hourglass) -> None:
    seen: list[Tick] = []

    @still.every("1m", name="by-the-minute")
    def minutely(tick: Tick) -> None:
        seen.append(tick)

    await glass.begin()
    assert await glass.pass_time(minutes=1) == 1
    assert seen == [Tick("by-the-minute", NOON + MINUTE, timedelta(), 1)]


async def test_a_scheduled_function_that_is_enqueued_by_hand_is_told_when_it_was_due(
    still: App, glass: Hourglass
) -> None:
    seen: list[Tick] = []

    @still.cron("0 0 * * *")
    async def nightly(tick: Tick) -> None:
        seen.append(tick)

    await glass.begin()
    await nightly.enqueue()
    assert await glass.pass_time(seconds=5) == 1
    assert seen == [Tick("nightly", NOON, timedelta(seconds=5), 1)]


async def test_a_run_that_fails_is_tried_again_for_the_same_tick_and_then_buried(still: App, glass: Hourglass) -> None:
    seen: list[Tick] = []
    watched = Watched(still)

    @still.cron("0 * * * *", retry=Retry(max_attempts=3, first="1s"))
    async def hourly(tick: Tick) -> None:
        seen.append(tick)
        raise ValueError("boom")

    await glass.begin()
    await glass.pass_time(hours=1)
    await glass.pass_time(seconds=10)
    await glass.pass_time(seconds=10)
    assert [(tick.due_at, tick.attempt) for tick in seen] == [(NOON + 60 * MINUTE, attempt) for attempt in (1, 2, 3)]
    (buried,) = watched.of(JobBuried)
    assert buried.kind == "hourly"
    dead = "select schedule || ' ' || due_at from trueup.history where state = 'dead'"
    assert await Desk(still.store).scalar(dead) == "hourly 2026-06-01 13:00:00+00"
    await glass.pass_time(hours=1)
    assert seen[-1].due_at == NOON + 120 * MINUTE, "the next tick is fired all the same"


async def test_a_run_over_its_timeout_is_a_failed_attempt(still: App, glass: Hourglass) -> None:
    watched = Watched(still)

    @still.cron("* * * * *", timeout="50ms", retry=Retry(max_attempts=1))
    async def hangs(tick: Tick) -> None:
        await asyncio.Event().wait()

    await glass.begin()
    assert await glass.pass_time(minutes=1) == 1
    (buried,) = watched.of(JobBuried)
    assert "timeout" in str((await Desk(still.store).row(buried.job_id))["errors"])


async def test_nothing_runs_while_paused(still: App, glass: Hourglass) -> None:
    @still.cron("* * * * *")
    async def minutely(tick: Tick) -> None: ...

    await glass.begin()
    assert await glass.pass_time(minutes=1) == 1
    await still.store.schedules.pause(["minutely"], "an incident")
    assert await glass.pass_time(minutes=5) == 0
    await still.store.schedules.resume(["minutely"])
    assert await glass.pass_time(minutes=1) == 1


# -- the loop --------------------------------------------------------------------------------------------------------------------


async def test_it_sleeps_until_the_next_tick_and_never_for_long(
    still: App, glass: Hourglass, clock: ManualClock
) -> None:
    @still.cron("* * * * *")
    async def minutely(tick: Tick) -> None: ...

    await glass.begin()
    assert MAX_WAIT <= await glass.ticker.run_once() <= MAX_WAIT + SPREAD
    clock.advance(seconds=57)
    assert 3 <= await glass.ticker.run_once() <= 3 + SPREAD
    clock.advance(seconds=3)
    watched = Watched(still)
    assert MAX_WAIT <= await glass.ticker.run_once() <= MAX_WAIT + SPREAD
    assert watched.of(TicksDecided, fired=1, skipped=0)


async def test_a_schedule_it_cannot_read_is_said_once_and_not_asked_for_all_the_time(
    still: App, glass: Hourglass, clock: ManualClock
) -> None:
    @still.cron("* * * * *")
    async def minutely(tick: Tick) -> None: ...

    await glass.begin()
    await Desk(still.store).scalar("""update trueup.schedules set policy = '{"mood": "good"}'""")
    clock.advance(minutes=1)
    watched = Watched(still)
    pauses = [await glass.ticker.run_once() for _ in range(3)]
    assert min(pauses) >= MAX_WAIT
    (event,) = watched.of(ScheduleUnreadable)
    assert event.schedule == "minutely"
    assert "mood" in event.error


async def test_while_another_plans_it_looks_again_soon(still: App, glass: Hourglass, clock: ManualClock) -> None:
    @still.cron("* * * * *")
    async def minutely(tick: Tick) -> None: ...

    await glass.begin()
    clock.advance(minutes=1)
    async with still.store.pool.transaction() as connection:
        await connection.execute("select pg_advisory_xact_lock(hashtextextended('trueup planner trueup', 0))")
        assert await glass.ticker.run_once() == SPREAD
    assert await glass.ticker.run_once() >= MAX_WAIT


async def test_while_somebody_changes_what_is_due_it_does_not_wait_for_the_row(
    still: App, glass: Hourglass, clock: ManualClock
) -> None:
    @still.cron("* * * * *")
    async def minutely(tick: Tick) -> None: ...

    await glass.begin()
    clock.advance(minutes=1)
    async with await AsyncConnection.connect(still.store.url) as frozen:
        await frozen.execute("select from trueup.schedules for update")
        assert await asyncio.wait_for(glass.ticker.run_once(), TIMEOUT) == AGAIN
    assert await glass.ticker.run_once() >= MAX_WAIT


async def test_what_the_code_declares_is_stored_at_start_and_only_what_is_new_is_an_event(database_url: str) -> None:
    for declared, new in ((["one"], ["one"]), (["one", "two"], ["two"])):
        async with App(database_url) as app:
            watched = Watched(app)
            for name in declared:

                @app.cron("0 0 1 1 *", name=name)
                async def yearly(tick: Tick) -> None: ...

            async with app.worker():
                assert [(event.schedule, event.what) for event in watched.of(ScheduleChanged)] == [
                    (name, "declared") for name in new
                ]


@pytest.mark.slow
async def test_a_schedule_made_while_workers_sleep_is_heard_of(app: App, events: Watched) -> None:
    @app.job
    async def work() -> None: ...

    entry = Entry("new", "people", Cron("* * * * * *"), SchedulePolicy(), "work", "default", "default", 4)
    async with app.worker():
        began = elapsed()
        await app.store.schedules.put(entry)
        await events.seen(JobCompleted, kind="work", count=2)
        assert elapsed() - began < MAX_WAIT / 2


@pytest.mark.slow
async def test_cancel_running_stops_the_run_at_work_and_starts_the_next(app: App, events: Watched) -> None:
    started: list[Tick] = []
    over = asyncio.Event()

    @app.every("1s", overlap="cancel_running")
    async def endless(tick: Tick) -> None:
        started.append(tick)
        await over.wait()

    async with app.worker():
        await until(lambda: len(started) >= 2)
        await events.seen(JobDropped, kind="endless")
        over.set()
    assert started[0].due_at < started[1].due_at
