"""Schedules after the database's clock was ahead for a while."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.store.desk import Desk
from tests.support.watching import Watched
from trueup import App
from trueup.errors import NotFound
from trueup.events import ScheduleAhead
from trueup.operate.audit import audit
from trueup.schedules import Cron
from trueup.schedules.policy import SchedulePolicy
from trueup.store.planning import Planned
from trueup.store.schedules import Entry
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock
from trueup.work.ticker import Ticker

pytestmark = pytest.mark.asyncio

MINUTE = timedelta(minutes=1)
ENTRY = Entry(
    "nightly",
    "people",
    Cron("* * * * *"),
    SchedulePolicy(missed="latest", overlap="allow"),
    "send",
    "default",
    "default",
    4,
)


async def jump(store: Store, clock: ManualClock, **ahead: float) -> None:
    """A planner looks while the clock is ahead; then the clock is set right."""
    before = clock.now()
    clock.advance(**ahead)
    while (await store.schedules.plan()).more:
        pass
    clock._now = before


async def test_a_schedule_that_got_ahead_fires_again_after_it_was_rewound(store: Store, clock: ManualClock) -> None:
    desk = Desk(store)
    await store.schedules.put(ENTRY)
    await jump(store, clock, days=30)
    clock.advance(minutes=5)
    assert await store.schedules.plan() == Planned()
    await store.schedules.pause(["nightly"], "try that")
    await store.schedules.resume(["nightly"])
    clock.advance(minutes=5)
    assert await store.schedules.plan() == Planned(), "resuming follows the watermark, too"
    assert await store.schedules.rewind("nightly")
    assert not await store.schedules.rewind("nightly"), "it is not ahead any more"
    clock.advance(minutes=2)
    assert (await store.schedules.plan()).fired >= 1
    await desk.scalar("delete from trueup.jobs")
    found = await audit(store.schedules, timedelta(minutes=1), timedelta(days=90))
    assert found.clean, found


async def test_a_tick_that_was_fired_on_the_clock_that_was_ahead_is_not_fired_again(
    store: Store, clock: ManualClock
) -> None:
    desk = Desk(store)
    await store.schedules.put(ENTRY)
    await jump(store, clock, minutes=3)
    assert NOON + 3 * MINUTE in await desk.scalar("select array_agg(due_at) from trueup.jobs")
    assert await store.schedules.rewind("nightly")
    for _ in range(5):
        clock.advance(minutes=1)
        await store.schedules.plan()
    dues = await desk.scalar("select array_agg(due_at order by due_at) from trueup.jobs")
    assert dues.count(NOON + 3 * MINUTE) == 1
    assert NOON + MINUTE not in dues, "it was skipped then, and keeps its verdict"
    assert dues[-2:] == [NOON + 4 * MINUTE, NOON + 5 * MINUTE]
    assert len(dues) == len(set(dues))
    found = await audit(store.schedules, timedelta(minutes=5), timedelta(days=90))
    assert found.clean, found


async def test_a_schedule_that_is_ahead_is_said_once_and_shown(still: App, store: Store, clock: ManualClock) -> None:
    events = Watched(still)
    await store.schedules.put(ENTRY)
    ticker = Ticker(store.schedules, still.events)
    await ticker.run_once()
    assert events.of(ScheduleAhead) == []
    await jump(store, clock, days=30)
    for _ in range(2):
        ticker._looked_ahead_at = None
        await ticker.run_once()
    (event,) = events.of(ScheduleAhead)
    assert event.schedule == "nightly"
    assert event.seconds == pytest.approx(30 * 86_400, rel=0.01)
    assert (await store.views.planning())["ahead"] == ["nightly"]
    assert await still.schedules.rewind("nightly")
    assert (await store.views.planning())["ahead"] == []


async def test_only_what_is_there_can_be_rewound(still: App, store: Store) -> None:
    with pytest.raises(NotFound):
        await still.schedules.rewind("nobody")
    await store.schedules.put(ENTRY)
    assert not await still.schedules.rewind("nightly")
