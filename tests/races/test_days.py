"""A day's partition is made while somebody writes a row of that day, on the way to the catch-all partition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.store.desk import LEASE, Desk, failure
from tests.support.interleave import Ended, OneConnection, Side, interleave, overlap
from trueup.schedules import Cron
from trueup.schedules.policy import SchedulePolicy
from trueup.store.history import History, day_name
from trueup.store.schedules import Entry, Schedules
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock

pytestmark = pytest.mark.asyncio

TODAY = NOON.date()
MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held here is held for as long as the test takes."""
    monkeypatch.setattr("trueup.store.history.LOCK_WAIT", timedelta(seconds=10))


PARENTS = {"done": "history_done", "dead": "history_dead", "cancelled": "history_cancelled"}


def making(parent: str) -> Callable[[Side], Awaitable[str | None]]:
    async def make(side: Side) -> str | None:
        await side.connection.execute("select")  # a transaction is open, and what follows is not committed
        history = History(OneConnection(side.connection), side.statements)
        (made,) = await history._create(parent, TODAY) or [None]
        return made

    return make


async def while_made(store: Store, parent: str, write: Callable[[Side], Awaitable[Any]]) -> Ended[Any]:
    made, written = await interleave(store, hold=making(parent), then=write)
    assert made == day_name(parent, TODAY)
    return written


async def in_its_day(desk: Desk, state: str, job_id: int) -> bool:
    day = day_name(PARENTS[state], TODAY)
    return bool(await desk.scalar(f"select count(*) from trueup.{day} where id = %s", job_id))


async def test_a_finish_keeps_its_result(desk: Desk, store: Store) -> None:
    job = await desk.running()
    written = await while_made(store, "history_done", lambda side: side.jobs.complete(job.holder, [job], ['"kept"']))
    assert written.value == {job.id}
    assert (await desk.row(job.id))["result"] == "kept"
    assert await in_its_day(desk, "done", job.id)


async def test_a_burial_keeps_its_reason(desk: Desk, store: Store) -> None:
    job = await desk.running()
    written = await while_made(
        store, "history_dead", lambda side: side.jobs.bury(job.holder, [job], ["hopeless"], [failure()])
    )
    assert written.value == {job.id}
    assert (await desk.row(job.id))["reason"] == "hopeless"
    assert await in_its_day(desk, "dead", job.id)


async def test_a_handler_that_discards_its_job_is_heard(desk: Desk, store: Store) -> None:
    job = await desk.running()
    written = await while_made(
        store, "history_cancelled", lambda side: side.jobs.drop(job.holder, [job], ["not wanted"])
    )
    assert written.value == {job.id}
    assert await in_its_day(desk, "cancelled", job.id)


async def test_a_person_cancels_a_job(desk: Desk, store: Store) -> None:
    job_id = await desk.put()
    written = await while_made(store, "history_cancelled", lambda side: side.jobs.cancel([job_id], "not needed"))
    assert written.value == {job_id}
    assert await in_its_day(desk, "cancelled", job_id)


async def test_a_person_discards_a_dead_job(desk: Desk, store: Store) -> None:
    job_id = await desk.dead()
    written = await while_made(store, "history_cancelled", lambda side: side.jobs.discard([job_id], "not needed"))
    assert written.value == {job_id}
    assert await in_its_day(desk, "cancelled", job_id)


async def test_a_rescue_buries_what_has_no_attempt_left(desk: Desk, store: Store, clock: ManualClock) -> None:
    job = await desk.running(max_attempts=1)
    clock.advance(seconds=LEASE.total_seconds())
    written = await while_made(store, "history_dead", lambda side: side.jobs.rescue())
    assert [each.job_id for each in written.value] == [job.id]
    assert await in_its_day(desk, "dead", job.id)


async def schedules(side: Side) -> Schedules:
    await side.connection.execute("select")
    return Schedules(OneConnection(side.connection), side.statements)


async def declare(store: Store, clock: ManualClock) -> None:
    """A schedule with a tick that is due."""
    entry = Entry("nightly", "people", Cron("* * * * *"), SchedulePolicy(), "send", "default", "default", 4)
    await store.schedules.put(entry)
    clock.advance(seconds=60)


async def ticks_of_the_day(desk: Desk) -> int:
    return int(await desk.scalar(f"select count(*) from trueup.{day_name('ticks', TODAY)}"))


async def test_a_tick_is_fired(desk: Desk, store: Store, clock: ManualClock) -> None:
    await declare(store, clock)

    async def plan(side: Side) -> int:
        return (await (await schedules(side)).plan()).fired

    assert (await while_made(store, "ticks", plan)).value == 1
    assert await ticks_of_the_day(desk) == 1


async def test_past_ticks_are_backfilled(desk: Desk, store: Store, clock: ManualClock) -> None:
    await declare(store, clock)
    assert (await store.schedules.plan()).fired == 1
    await desk.scalar("delete from trueup.ticks")  # the catch-all is empty, as it is where the days are made in time

    async def backfill(side: Side) -> int:
        return await (await schedules(side)).backfill("nightly", [NOON - MINUTE, NOON - 2 * MINUTE])

    assert (await while_made(store, "ticks", backfill)).value == 2
    assert await ticks_of_the_day(desk) == 2


async def test_a_schedule_is_triggered(desk: Desk, store: Store, clock: ManualClock) -> None:
    await declare(store, clock)
    assert (await store.schedules.plan()).fired == 1
    await desk.scalar("delete from trueup.ticks")

    async def trigger(side: Side) -> int | None:
        # Without its second try, which is for days made by older releases.
        return await (await schedules(side))._trigger("nightly", None)

    clock.advance(seconds=1)
    assert (await while_made(store, "ticks", trigger)).value is not None
    assert await ticks_of_the_day(desk) == 1


async def test_a_day_that_is_made_waits_for_whoever_is_writing(desk: Desk, store: Store) -> None:
    job = await desk.running()
    done, made = await interleave(
        store, hold=lambda side: side.jobs.complete(job.holder, [job], [None]), then=making("history_done")
    )
    assert done == {job.id}
    assert made.value is None, "the catch-all has a row of that day by now, and keeps the others too"
    assert await desk.state(job.id) == "done"


async def test_a_day_that_is_made_holds_up_nothing_that_ends_otherwise(desk: Desk, store: Store) -> None:
    job_id = await desk.put()
    _, cancelled = await overlap(
        store, hold=making("history_done"), then=lambda side: side.jobs.cancel([job_id], "not needed")
    )
    assert cancelled.value == {job_id}
