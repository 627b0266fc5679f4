from __future__ import annotations

from uuid import uuid4

import pytest

from tests.store.desk import LEASE, Desk
from trueup.store.store import Store
from trueup.store.workers import Identity
from trueup.testing.clock import NOON, ManualClock

pytestmark = pytest.mark.asyncio

LEASE_S = LEASE.total_seconds()


async def lease_left(desk: Desk) -> float:
    (row,) = await desk.store.views.workers()
    return float(row["lease_left_s"])


async def test_a_worker_has_its_lease_from_the_moment_it_registers(desk: Desk) -> None:
    await desk.worker(LEASE)
    assert await lease_left(desk) == LEASE_S


async def test_a_renewal_counts_from_now(desk: Desk, store: Store, clock: ManualClock) -> None:
    holder = await desk.worker(LEASE)
    clock.advance(seconds=20)
    assert await lease_left(desk) == LEASE_S - 20
    assert await store.workers.renew(holder, LEASE)
    assert await lease_left(desk) == LEASE_S


async def test_a_renewal_is_refused_once_the_lease_has_passed(desk: Desk, store: Store, clock: ManualClock) -> None:
    holder = await desk.worker(LEASE)
    clock.advance(seconds=LEASE_S)
    assert not await store.workers.renew(holder, LEASE)
    assert await lease_left(desk) == 0


async def test_somebody_who_never_registered_cannot_renew(store: Store) -> None:
    assert not await store.workers.renew(uuid4(), LEASE)


async def test_a_worker_with_empty_hands_leaves(desk: Desk, store: Store) -> None:
    holder = await desk.worker()
    assert await store.workers.leave(holder)
    assert await desk.holders() == set()
    assert not await store.workers.leave(holder)


async def test_a_worker_with_jobs_in_hand_cannot_leave_before_they_are_handed_back(desk: Desk, store: Store) -> None:
    job = await desk.running()
    assert not await store.workers.leave(job.holder)
    assert await desk.holders() == {job.holder}
    await store.jobs.release(job.holder, [job], ["default"], [""])
    assert await store.workers.leave(job.holder)


async def test_only_rescued_workers_with_nothing_left_are_forgotten(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    gone = await desk.worker(host="gone", pid=9)
    clock.advance(seconds=1)
    alive = await desk.worker()
    assert list(await store.workers.forget()) == []
    clock.advance(seconds=LEASE_S - 1)
    assert list(await store.workers.forget()) == [], "expired, but not rescued yet"
    await store.jobs.rescue()
    assert list(await store.workers.forget()) == [(gone, "gone", 9)]
    assert await desk.holders() == {alive}


async def test_a_worker_shows_people_who_and_where_it_is(store: Store, desk: Desk) -> None:
    await store.workers.register(Identity(uuid4(), "blade", 7, "1.2", ("mail",), 5), LEASE)
    (row,) = await store.views.workers()
    assert (row["host"], row["pid"], row["release"]) == ("blade", 7, "1.2")
    assert (row["queues"], row["concurrency"], row["running"], row["started_at"]) == (["mail"], 5, 0, NOON)
