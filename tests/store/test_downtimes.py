"""When no worker was alive: found by the first one that comes back, once, by the database's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
import pytest_asyncio

from tests.store.desk import LEASE, Desk
from tests.support.watching import Watched
from trueup import App
from trueup.events import DowntimeFound, WorkerStarted
from trueup.store.store import Store
from trueup.store.workers import GRACE, Downtime, Identity
from trueup.testing.clock import NOON, ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

AN_HOUR_LATER = NOON + timedelta(hours=1)


class Fleet:
    def __init__(self, store: Store) -> None:
        self.store = store

    async def start(self, lease_for: timedelta = LEASE) -> tuple[UUID, Downtime | None]:
        """A worker that begins: its holder id, and the downtime it ended."""
        identity = Identity(uuid4(), "host", 1, None, ("default",), 10)
        return identity.holder, await self.store.workers.register(identity, lease_for)

    async def found(self) -> Downtime | None:
        return (await self.start())[1]

    async def recorded(self) -> list[tuple[datetime, datetime]]:
        async with self.store.pool.use() as connection:
            rows = await connection.execute("select since, until from trueup.downtimes order by until")
            return [(row[0], row[1]) for row in await rows.fetchall()]


@pytest.fixture
def fleet(store: Store) -> Fleet:
    return Fleet(store)


async def test_the_first_worker_ever_ends_no_downtime(fleet: Fleet) -> None:
    assert await fleet.found() is None
    assert await fleet.recorded() == []


async def test_after_all_have_died_the_downtime_counts_from_the_last_renewal(fleet: Fleet, clock: ManualClock) -> None:
    await fleet.start()
    late, _ = await fleet.start()
    clock.advance(seconds=10)
    assert await fleet.store.workers.renew(late, LEASE)
    clock.advance(hours=1)
    assert await fleet.found() == Downtime(NOON + timedelta(seconds=10), AN_HOUR_LATER + timedelta(seconds=10))
    assert await fleet.recorded() == [(NOON + timedelta(seconds=10), AN_HOUR_LATER + timedelta(seconds=10))]


async def test_after_all_have_left_in_order_the_downtime_counts_from_the_last_to_leave(
    fleet: Fleet, clock: ManualClock
) -> None:
    first, _ = await fleet.start(timedelta(minutes=10))
    second, _ = await fleet.start(timedelta(minutes=10))
    clock.advance(minutes=1)
    assert await fleet.store.workers.leave(first)
    clock.advance(minutes=1)
    assert await fleet.store.workers.leave(second)
    clock.advance(hours=1)
    assert await fleet.found() == Downtime(NOON + timedelta(minutes=2), AN_HOUR_LATER + timedelta(minutes=2))


async def test_workers_that_leave_out_of_order_do_not_move_the_last_sign_of_life_back(
    fleet: Fleet, clock: ManualClock
) -> None:
    dead, _ = await fleet.start()
    orderly, _ = await fleet.start(timedelta(hours=2))
    clock.advance(hours=1)
    assert await fleet.store.workers.leave(orderly)
    await fleet.store.jobs.rescue()
    assert [row[0] for row in await fleet.store.workers.forget()] == [dead]
    clock.advance(minutes=2)
    assert await fleet.found() == Downtime(AN_HOUR_LATER, AN_HOUR_LATER + timedelta(minutes=2))


async def test_a_dead_worker_that_was_forgotten_is_still_the_last_sign_of_life(
    fleet: Fleet, clock: ManualClock
) -> None:
    await fleet.start()
    clock.advance(minutes=5)
    await fleet.store.jobs.rescue()
    assert len(await fleet.store.workers.forget()) == 1
    clock.advance(minutes=55)
    assert await fleet.found() == Downtime(NOON, AN_HOUR_LATER)


async def test_one_that_leaves_after_its_lease_has_passed_was_away_since_its_last_renewal(
    fleet: Fleet, clock: ManualClock
) -> None:
    suspended, _ = await fleet.start()
    clock.advance(hours=1)
    assert await fleet.store.workers.leave(suspended)
    assert await fleet.found() == Downtime(NOON, AN_HOUR_LATER)


async def test_while_another_worker_lives_there_is_no_downtime(fleet: Fleet, clock: ManualClock) -> None:
    await fleet.start()
    await fleet.start(timedelta(hours=2))  # renewed at noon, and alive all the same
    clock.advance(hours=1)
    assert await fleet.found() is None


async def test_a_worker_whose_jobs_were_rescued_does_not_count_as_alive(
    fleet: Fleet, desk: Desk, clock: ManualClock
) -> None:
    await fleet.start(timedelta(hours=2))
    await desk.scalar("update trueup.workers set rescued_at = %s", NOON)
    clock.advance(hours=1)
    assert await fleet.found() == Downtime(NOON, AN_HOUR_LATER)


async def test_a_restart_within_the_grace_is_no_downtime(fleet: Fleet, clock: ManualClock) -> None:
    holder, _ = await fleet.start()
    assert await fleet.store.workers.leave(holder)
    clock.advance(seconds=GRACE.total_seconds())
    holder, downtime = await fleet.start()
    assert downtime is None
    assert await fleet.store.workers.leave(holder)
    clock.advance(seconds=GRACE.total_seconds() + 0.001)
    assert await fleet.found() is not None


async def test_a_clock_that_was_set_back_makes_no_downtime(fleet: Fleet, clock: ManualClock) -> None:
    holder, _ = await fleet.start()
    assert await fleet.store.workers.leave(holder)
    clock.advance(hours=-1)
    assert await fleet.found() is None


async def test_of_five_workers_that_start_at_once_one_finds_the_downtime(fleet: Fleet, clock: ManualClock) -> None:
    await fleet.start()
    for number in range(1, 6):
        clock.advance(hours=1)
        found = await asyncio.gather(*(fleet.found() for _ in range(5)))
        assert [downtime for downtime in found if downtime] == [
            Downtime(NOON + timedelta(hours=number - 1), NOON + timedelta(hours=number))
        ]
    assert len(await fleet.recorded()) == 5


async def test_one_that_waited_for_another_to_begin_sees_that_it_lives(app: App, database_url: str) -> None:
    """By the database's own clock their moments differ, so that only what the second sees can tell it."""
    fleet = Fleet(await app.open())
    holder, _ = await fleet.start()
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute(
            "update trueup.workers set renewed_at = now() - interval '2 h', lease_until = now() - interval '1 h'"
        )
        async with other.transaction():
            # What another worker's `register` does, held up before its commit.
            lock = fleet.store.statements["workers/lock"]
            await other.execute(lock)
            await other.execute("set local idle_in_transaction_session_timeout = 0")
            waiting = asyncio.ensure_future(fleet.start())
            await _is_waiting(database_url)
            await other.execute(
                "insert into trueup.workers select %s, host, pid, release, queues, concurrency, now(), now(), "
                "now() + interval '30 s' from trueup.workers where holder = %s",
                [uuid4(), holder],
            )
        assert (await waiting)[1] is None
    assert await fleet.recorded() == []


async def _is_waiting(database_url: str) -> None:
    async with asyncio.timeout(10), await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        query = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        while True:
            row = await (await connection.execute(query)).fetchone()
            if row is not None and row[0] > 0:
                return
            await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def sleeper(still: App) -> AsyncIterator[ManualWorker]:
    worker = ManualWorker(still)
    yield worker
    await worker.end()


async def test_a_worker_tells_of_the_downtime_it_ended_after_it_has_begun(
    still: App, sleeper: ManualWorker, fleet: Fleet, clock: ManualClock
) -> None:
    events = Watched(still)
    await fleet.start()
    clock.advance(hours=1)
    await sleeper.begin()
    (told,) = events.of(DowntimeFound)
    assert told == DowntimeFound(NOON.isoformat(), AN_HOUR_LATER.isoformat(), 3600.0)
    assert [type(event) for event in events.events[-2:]] == [WorkerStarted, DowntimeFound]


async def test_the_only_worker_suspended_for_an_hour_finds_its_own_downtime(
    still: App, sleeper: ManualWorker, clock: ManualClock
) -> None:
    events = Watched(still)
    await sleeper.begin()
    assert not events.of(DowntimeFound)
    clock.advance(hours=1)
    await sleeper.run_pending()
    assert [event.seconds for event in events.of(DowntimeFound)] == [3600.0]


async def test_a_new_life_while_others_live_is_no_downtime(
    still: App, sleeper: ManualWorker, fleet: Fleet, clock: ManualClock
) -> None:
    events = Watched(still)
    await sleeper.begin()
    await fleet.start(timedelta(hours=2))
    clock.advance(hours=1)
    await sleeper.run_pending()
    assert len(events.of(WorkerStarted)) == 2
    assert not events.of(DowntimeFound)
