from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pytest
import pytest_asyncio

from tests.store.desk import LEASE, Desk
from tests.support.interleave import Side, interleave, overlap
from trueup.jobs.job import ClaimedJob
from trueup.store.jobs import Rescued
from trueup.store.store import Store
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio


@dataclass
class Late:
    """A worker whose lease passes while it has a job in hand."""

    job: ClaimedJob
    clock: ManualClock

    @property
    def holder(self) -> UUID:
        return self.job.holder

    async def rescue(self, side: Side) -> list[Rescued]:
        """By the clock of somebody for whom the lease has passed; the others' statements carry an earlier moment."""
        self.clock.advance(seconds=LEASE.total_seconds())
        try:
            return await side.jobs.rescue()
        finally:
            self.clock.advance(seconds=-LEASE.total_seconds())

    async def complete(self, side: Side) -> set[int]:
        return await side.jobs.complete(self.holder, [self.job], [None])

    async def renew(self, side: Side) -> bool:
        return await side.workers.renew(self.holder, LEASE)

    async def claim(self, side: Side) -> list[ClaimedJob]:
        return await side.jobs.claim(self.holder, "default", 10, ["send"])


@pytest_asyncio.fixture
async def late(desk: Desk, clock: ManualClock) -> Late:
    return Late(await desk.running(), clock)


async def test_a_complete_that_waited_out_a_rescue_is_refused(desk: Desk, store: Store, late: Late) -> None:
    rescued, completed = await interleave(store, hold=late.rescue, then=late.complete)
    assert [each.job_id for each in rescued] == [late.job.id]
    assert completed.value == set()
    assert await desk.state(late.job.id) == "queued"


async def test_a_complete_that_waited_out_a_rescue_that_failed_succeeds(desk: Desk, store: Store, late: Late) -> None:
    _, completed = await interleave(store, hold=late.rescue, then=late.complete, commit=False)
    assert completed.value == {late.job.id}
    assert await desk.state(late.job.id) == "done"


async def test_a_rescue_leaves_a_job_whose_complete_is_in_flight(desk: Desk, store: Store, late: Late) -> None:
    completed, rescued = await overlap(store, hold=late.complete, then=late.rescue)
    assert completed == {late.job.id}
    assert rescued.value == []
    assert await desk.state(late.job.id) == "done"
    assert late.holder in await desk.holders()
    assert [row[0] for row in await store.workers.forget()] == [late.holder]


async def test_a_job_whose_complete_never_committed_is_rescued_at_the_next_pass(
    desk: Desk, store: Store, late: Late, clock: ManualClock
) -> None:
    await overlap(store, hold=late.complete, then=late.rescue, commit=False)
    assert await desk.state(late.job.id) == "running"
    assert list(await store.workers.forget()) == [], "it still holds a job"
    clock.advance(seconds=LEASE.total_seconds())
    assert [each.job_id for each in await store.jobs.rescue()] == [late.job.id]


async def test_a_renewal_that_waited_out_a_rescue_is_refused(store: Store, late: Late) -> None:
    _, renewed = await interleave(store, hold=late.rescue, then=late.renew)
    assert renewed.value is False


async def test_a_rescue_does_not_touch_a_worker_whose_renewal_is_in_flight(
    desk: Desk, store: Store, late: Late
) -> None:
    renewed, rescued = await overlap(store, hold=late.renew, then=late.rescue)
    assert renewed is True
    assert rescued.value == []
    assert await desk.state(late.job.id) == "running"
    assert await store.workers.renew(late.holder, LEASE)


async def test_a_claim_that_waited_out_a_rescue_of_its_worker_claims_nothing(
    desk: Desk, store: Store, late: Late
) -> None:
    waiting = await desk.put()
    _, claimed = await interleave(store, hold=late.rescue, then=late.claim)
    assert claimed.value == []
    row = await desk.row(waiting)
    assert (row["state"], row["attempt"]) == ("queued", 0)


async def test_a_rescue_skips_a_worker_with_a_claim_in_flight_until_the_next_pass(
    desk: Desk, store: Store, late: Late, clock: ManualClock
) -> None:
    waiting = await desk.put()
    claimed, rescued = await overlap(store, hold=late.claim, then=late.rescue)
    assert [job.id for job in claimed] == [waiting]
    assert rescued.value == []
    clock.advance(seconds=LEASE.total_seconds())
    assert {each.job_id for each in await store.jobs.rescue()} == {late.job.id, waiting}


async def test_of_two_rescuers_one_takes_the_jobs_and_the_other_does_not_wait(
    desk: Desk, store: Store, late: Late
) -> None:
    first, second = await overlap(store, hold=late.rescue, then=late.rescue)
    assert [each.job_id for each in first] == [late.job.id]
    assert second.value == []
    row = await desk.row(late.job.id)
    assert (row["crashes"], len(row["errors"])) == (1, 1)


async def test_a_finish_that_waited_out_a_rescue_and_the_next_claim_changes_nothing(
    desk: Desk, store: Store, late: Late
) -> None:
    other = await desk.worker(10 * LEASE)

    async def rescue_and_claim(side: Side) -> list[ClaimedJob]:
        await late.rescue(side)
        late.clock.advance(seconds=LEASE.total_seconds())
        return await side.jobs.claim(other, "default", 1, ["send"])

    (new,), completed = await interleave(store, hold=rescue_and_claim, then=late.complete)
    assert completed.value == set()
    assert (new.id, new.term) == (late.job.id, late.job.term + 1)
    assert await store.jobs.complete(other, [new], [None]) == {new.id}
