from __future__ import annotations

import asyncio
from collections import Counter
from uuid import UUID

import pytest

from tests.store.desk import Desk, draft
from tests.support.interleave import Side, interleave, overlap
from trueup.errors import DuplicateJob
from trueup.jobs.job import ClaimedJob
from trueup.store.inserting import Stored
from trueup.store.store import Store

pytestmark = pytest.mark.asyncio


class Claiming:
    """A claim by a worker, as work for a side."""

    def __init__(self, holder: UUID) -> None:
        self.holder = holder

    async def __call__(self, side: Side) -> list[ClaimedJob]:
        return await side.jobs.claim(self.holder, "default", 10, ["send"])


async def replace(side: Side) -> Stored:
    return await side.enqueue(draft(unique_key="u", on_conflict="replace", args='{"n": 2}'))


async def test_a_cancel_that_waited_out_a_claim_changes_nothing(desk: Desk, store: Store) -> None:
    job_id = await desk.put()
    claimed, cancelled = await interleave(
        store, hold=Claiming(await desk.worker()), then=lambda side: side.jobs.cancel([job_id], "no")
    )
    assert [job.id for job in claimed] == [job_id]
    assert cancelled.value == set()
    assert await desk.state(job_id) == "running"


async def test_a_claim_passes_over_a_job_that_is_being_cancelled(desk: Desk, store: Store) -> None:
    job_id, other = await desk.put(), await desk.put()
    cancelled, claimed = await overlap(
        store, hold=lambda side: side.jobs.cancel([job_id], "no"), then=Claiming(await desk.worker())
    )
    assert cancelled == {job_id}
    assert [job.id for job in claimed.value] == [other]
    assert await desk.state(job_id) == "cancelled"


async def test_a_replace_that_waited_out_a_claim_is_refused(desk: Desk, store: Store) -> None:
    job_id = await desk.put(unique_key="u", args='{"n": 1}')
    _, replaced = await interleave(store, hold=Claiming(await desk.worker()), then=replace)
    assert isinstance(replaced.error, DuplicateJob)
    assert (await desk.row(job_id))["args"] == {"n": 1}


async def test_a_claim_skips_a_job_being_replaced_and_the_next_claim_gets_the_new_one(desk: Desk, store: Store) -> None:
    job_id = await desk.put(unique_key="u", args='{"n": 1}')
    holder = await desk.worker()
    replaced, claimed = await overlap(store, hold=replace, then=Claiming(holder))
    assert replaced == Stored(job_id, created=False)
    assert claimed.value == []
    assert [job.args for job in await desk.claim(holder)] == ['{"n": 2}']


async def test_of_two_revivals_at_once_one_revives(desk: Desk, store: Store) -> None:
    job_id = await desk.dead()

    async def revive(side: Side) -> set[int]:
        return await side.jobs.revive([job_id])

    first, second = await interleave(store, hold=revive, then=revive)
    assert first == {job_id}
    assert second.value == set()
    assert await desk.scalar("select count(*) from trueup.jobs") == 1
    assert await desk.scalar("select count(*) from trueup.history") == 0


async def test_a_revival_that_waited_out_a_discard_changes_nothing(desk: Desk, store: Store) -> None:
    job_id = await desk.dead()
    discarded, revived = await interleave(
        store,
        hold=lambda side: side.jobs.discard([job_id], "no"),
        then=lambda side: side.jobs.revive([job_id]),
    )
    assert discarded == {job_id}
    assert revived.error is not None or revived.value == set()
    assert await desk.state(job_id) == "cancelled"


async def test_two_claimers_at_once_do_not_wait_for_each_other_and_share_nothing(desk: Desk, store: Store) -> None:
    await desk.put_many(15)
    first, second = await overlap(store, hold=Claiming(await desk.worker()), then=Claiming(await desk.worker()))
    assert len(first) == 10
    assert {job.id for job in first}.isdisjoint(job.id for job in second.value)


@pytest.mark.slow
async def test_ten_claimers_share_two_thousand_jobs_without_a_duplicate(desk: Desk, store: Store) -> None:
    await desk.put_many(2000)

    async def drain() -> list[int]:
        holder, mine = await desk.worker(), []
        line = store.own_connection("claimer")
        jobs = store.jobs.on(line)
        while claimed := await jobs.claim(holder, "default", 7, ["send"]):
            assert len(claimed) <= 7
            mine += [job.id for job in claimed]
            assert await jobs.complete(holder, claimed, [None] * len(claimed)) == {job.id for job in claimed}
        await line.close()
        return mine

    shares = await asyncio.gather(*(drain() for _ in range(10)))
    counts = Counter(job_id for share in shares for job_id in share)
    assert len(counts) == 2000
    assert set(counts.values()) == {1}
    assert await desk.scalar("select count(*) from trueup.history where attempt = 1 and term = 1") == 2000
