"""When a scan is due and how far it has come, by the database's clock and fenced by its lease."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from tests.store.desk import Desk
from trueup import LostLease
from trueup.reconcile.progress import Point
from trueup.store.leases import RowLeases
from trueup.store.rows.scans import FREE, Began, Due, Scans, lease_name
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock

pytestmark = pytest.mark.asyncio

NAME = "orphans"
HOUR = timedelta(hours=1)


class Holder:
    """Somebody with the lease of the scan."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._holder = uuid4()
        term = RowLeases(store.terms).acquire(lease_name(NAME), self._holder, timedelta(seconds=30))
        assert term is not None, "it is held elsewhere"
        self.term = term

    async def fence(self, tx: AsyncConnection[Any]) -> None:
        await self._store.terms.fence(lease_name(NAME), self._holder, self.term, tx)

    def release(self) -> None:
        RowLeases(self._store.terms).release(lease_name(NAME), self._holder, self.term)


@pytest_asyncio.fixture
async def scans(store: Store) -> AsyncIterator[Scans]:
    yield Scans(store.pool, store.statements)


@pytest.fixture
def holder(store: Store) -> Holder:
    return Holder(store)


async def begin(scans: Scans, holder: Holder, *, anyway: bool = False) -> Began | None:
    return await scans.begin(NAME, HOUR, holder.fence, anyway=anyway)


async def seconds(scans: Scans) -> float:
    due = await scans.due(NAME)
    assert due is not None
    return due.seconds


async def test_a_new_scan_is_due_at_once_or_after_its_first_interval(scans: Scans) -> None:
    assert await scans.due(NAME) is None
    await scans.declare(NAME, HOUR)
    await scans.declare("other", HOUR, run_at_start=False)
    assert await scans.due(NAME) == Due(0.0, False)
    assert await scans.due("other") == Due(3600.0, False)


async def test_declaring_it_again_puts_nothing_off(scans: Scans, clock: ManualClock) -> None:
    await scans.declare(NAME, HOUR, run_at_start=False)
    clock.advance(minutes=50)
    await scans.declare(NAME, HOUR, run_at_start=False)
    assert await seconds(scans) == 600
    await scans.declare(NAME, HOUR, run_at_start=True)
    assert await seconds(scans) == 600


async def test_a_shorter_interval_counts_from_the_last_start(scans: Scans, holder: Holder, clock: ManualClock) -> None:
    await scans.declare(NAME, HOUR)
    await begin(scans, holder)
    await scans.finish(NAME, Point("9", 9, 0), HOUR, holder.fence)
    clock.advance(minutes=5)
    await scans.declare(NAME, HOUR / 6)
    assert await seconds(scans) == 300
    await scans.declare(NAME, HOUR)
    assert await seconds(scans) == 300


async def test_whoever_looks_is_told_that_it_is_held(scans: Scans, holder: Holder, clock: ManualClock) -> None:
    await scans.declare(NAME, HOUR)
    assert await scans.due(NAME) == Due(0.0, True)
    clock.advance(seconds=31)
    assert await scans.due(NAME) == Due(-31.0, False)
    holder.release()
    assert await scans.due(NAME) == Due(-31.0, False)


async def test_one_that_ended_is_due_an_interval_after_its_start(
    scans: Scans, holder: Holder, clock: ManualClock, desk: Desk
) -> None:
    await scans.declare(NAME, HOUR)
    assert await begin(scans, holder) == Began(None, 0, 0, 1)
    clock.advance(minutes=20)
    await scans.save(NAME, Point('"p2"', 7, 1), 1, holder.fence)
    assert await scans.finish(NAME, Point('"p2"', 9, 2), HOUR, holder.fence) == 20 * 60 * 1000
    assert await seconds(scans) == 40 * 60
    row = "select cursor is null and not underway and items = 9 and failed = 2 and failures = 0 from trueup.scans"
    assert await desk.scalar(row)
    assert await begin(scans, holder) is None


async def test_one_that_took_longer_than_its_interval_is_due_now_and_not_earlier(
    scans: Scans, holder: Holder, clock: ManualClock
) -> None:
    await scans.declare(NAME, HOUR)
    await begin(scans, holder)
    clock.advance(hours=5)
    await scans.finish(NAME, Point(None, 0, 0), HOUR, holder.fence)
    assert await seconds(scans) == 0


async def test_one_left_unfinished_is_due_at_once_and_goes_on_from_its_cursor(
    scans: Scans, store: Store, clock: ManualClock, desk: Desk
) -> None:
    await scans.declare(NAME, HOUR)
    first = Holder(store)
    await begin(scans, first)
    await scans.save(NAME, Point('{"page": 2, "seen": [1, null]}', 7, 1), 1, first.fence)
    clock.advance(seconds=31)
    assert await scans.due(NAME) == Due(-31.0, False)
    second = Holder(store)
    assert await begin(scans, second) == Began({"page": 2, "seen": [1, None]}, 7, 1, 2)
    assert await desk.scalar("select started_at from trueup.scans") == NOON


async def test_a_new_scan_begins_at_the_beginning_with_nothing_counted(
    scans: Scans, holder: Holder, clock: ManualClock
) -> None:
    await scans.declare(NAME, HOUR)
    await begin(scans, holder)
    await scans.finish(NAME, Point("5", 5, 5), HOUR, holder.fence)
    clock.advance(hours=1)
    assert await begin(scans, holder) == Began(None, 0, 0, 1)


async def test_one_that_is_not_due_can_be_begun_all_the_same_and_then_is_gone_on_with(
    scans: Scans, holder: Holder
) -> None:
    await scans.declare(NAME, HOUR, run_at_start=False)
    assert await begin(scans, holder) is None
    assert await begin(scans, holder, anyway=True) == Began(None, 0, 0, 1)
    assert await seconds(scans) == 0


async def test_an_older_holder_moves_nothing(scans: Scans, store: Store, clock: ManualClock, desk: Desk) -> None:
    await scans.declare(NAME, HOUR)
    old = Holder(store)
    await begin(scans, old)
    clock.advance(seconds=31)
    new = Holder(store)
    await begin(scans, new)
    await scans.save(NAME, Point('"far"', 100, 0), 1, new.fence)
    point = Point('"near"', 10, 0)
    for write in (
        lambda: begin(scans, old),
        lambda: scans.save(NAME, point, 0, old.fence),
        lambda: scans.fail(NAME, point, 1, "boom", HOUR, old.fence),
        lambda: scans.finish(NAME, point, HOUR, old.fence),
    ):
        with pytest.raises(LostLease):
            await write()
    assert await desk.scalar("select cursor = '\"far\"' and items = 100 and underway from trueup.scans")


async def test_a_failing_one_is_tried_again_after_a_pause_that_grows_up_to_its_interval(
    scans: Scans, holder: Holder, clock: ManualClock, desk: Desk
) -> None:
    await scans.declare(NAME, HOUR)
    pauses = []
    for failures in range(1, 12):
        began = await begin(scans, holder)
        assert began is not None
        assert (began.cursor, began.failures) == (None if failures == 1 else "p1", failures)
        await scans.fail(NAME, Point('"p1"', 3, 0), began.failures, "ValueError: boom", HOUR, holder.fence)
        pauses.append(await seconds(scans))
        clock.advance(seconds=pauses[-1])
    assert pauses == [15, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert await desk.scalar("select error from trueup.scans") == "ValueError: boom"
    await begin(scans, holder)
    await scans.finish(NAME, Point(None, 3, 0), HOUR, holder.fence)
    assert await desk.scalar("select error is null and failures = 0 from trueup.scans")


async def test_starting_a_worker_tries_a_failing_one_soon(scans: Scans, holder: Holder) -> None:
    await scans.declare(NAME, HOUR)
    await begin(scans, holder)
    await scans.fail(NAME, Point(None, 0, 0), 9, "boom", HOUR, holder.fence)
    assert await seconds(scans) == 3600
    await scans.declare(NAME, HOUR)
    assert await seconds(scans) == 15


async def test_one_that_kills_its_process_again_and_again_does_not_kill_the_fleet(
    scans: Scans, holder: Holder, clock: ManualClock
) -> None:
    await scans.declare(NAME, HOUR)
    pauses = []
    for _ in range(FREE + 3):
        assert await begin(scans, holder) is not None
        pauses.append(await seconds(scans))
        clock.advance(seconds=pauses[-1])
    assert pauses == [0] * FREE + [15, 30, 60]


async def test_one_that_gets_further_each_time_is_gone_on_with_at_once(scans: Scans, holder: Holder) -> None:
    await scans.declare(NAME, HOUR)
    for page in range(3 * FREE):
        assert await begin(scans, holder) is not None
        await scans.save(NAME, Point(str(page), page, 0), 1, holder.fence)
        assert await seconds(scans) == 0


async def test_intervals_of_a_lifetime_overflow_nothing(scans: Scans, holder: Holder) -> None:
    century = timedelta(days=36525)
    await scans.declare(NAME, century)
    await scans.begin(NAME, century, holder.fence)
    await scans.fail(NAME, Point(None, 0, 0), 1_000_000, "boom", century, holder.fence)
    assert await seconds(scans) == century.total_seconds()
