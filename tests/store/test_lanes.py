from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any
from uuid import UUID

import pytest

from tests.store.desk import LEASE, Desk, draft
from trueup.durations import Rate
from trueup.jobs.job import ClaimedJob
from trueup.jobs.limits import AHEAD, Controls, Limit
from trueup.store.lanes import MAX_KEYS
from trueup.store.store import Store
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

LANE = "@send"
FAIR = Controls(fair_by="tenant")


async def put(desk: Desk, count: int = 1, key: str = "", **fields: Any) -> None:
    await desk.store.lanes.register([LANE])
    await desk.put_many(count, lane=LANE, key=key, **fields)


async def put_keys(desk: Desk, keys: list[str], **fields: Any) -> None:
    """A job for each key."""
    await desk.store.lanes.register([LANE])
    template = draft(lane=LANE, **fields)
    await desk.store.enqueue.many(template, (template._replace(args="{}", key=key) for key in keys))


async def claim(desk: Desk, holder: UUID, controls: Controls, most: int = 100) -> list[ClaimedJob]:
    claimed = await desk.store.lanes.claim(holder, LANE, controls, most)
    return [job for job, _ in claimed.jobs]


async def finish(desk: Desk, *jobs: ClaimedJob) -> None:
    assert len(await desk.store.jobs.complete(jobs[0].holder, jobs, [None] * len(jobs))) == len(jobs)


async def running(desk: Desk) -> int:
    return int(await desk.scalar("select count(*) from trueup.jobs where state = 'running'"))


async def test_no_more_than_the_total_run_at_once_in_the_whole_fleet(desk: Desk) -> None:
    await put(desk, 10)
    controls = Controls(limit=Limit(total=3))
    first, second = await desk.worker(), await desk.worker()
    jobs = await claim(desk, first, controls, most=2) + await claim(desk, second, controls)
    assert [job.holder for job in jobs] == [first, first, second]
    assert await claim(desk, first, controls) == []
    await finish(desk, jobs[0])
    assert len(await claim(desk, second, controls)) == 1


async def test_no_more_than_the_limit_per_key_run_at_once(desk: Desk) -> None:
    for key in ("a", "b"):
        await put(desk, 5, key)
    controls = Controls(limit=Limit(per_key=2), fair_by="tenant")
    holder = await desk.worker()
    jobs = await claim(desk, holder, controls)
    assert Counter(job.key for job in jobs) == {"a": 2, "b": 2}
    assert await claim(desk, holder, controls) == []
    await finish(desk, *(job for job in jobs if job.key == "b"))
    assert [job.key for job in await claim(desk, holder, controls)] == ["b", "b"]


async def test_the_limit_per_key_and_the_total_hold_together(desk: Desk) -> None:
    for key in ("a", "b", "c"):
        await put(desk, 5, key)
    jobs = await claim(desk, await desk.worker(), Controls(limit=Limit(total=5, per_key=2), fair_by="tenant"))
    assert Counter(job.key for job in jobs) == {"a": 2, "b": 2, "c": 1}


async def test_a_noisy_tenant_does_not_hold_up_the_small_ones(desk: Desk) -> None:
    await put(desk, 1000, "noisy")
    for key in ("small 1", "small 2", "small 3"):
        await put(desk, 2, key)
    holder = await desk.worker()
    order = [job.key for _ in range(3) for job in await claim(desk, holder, FAIR, most=4)]
    assert Counter(order[:8]) == {"noisy": 2, "small 1": 2, "small 2": 2, "small 3": 2}
    assert order[8:] == ["noisy"] * 4


async def test_turns_go_round_and_go_on_where_the_last_claim_ended(desk: Desk) -> None:
    for key in "abc":
        await put(desk, 3, key)
    holder = await desk.worker()
    order = [(await claim(desk, holder, FAIR, most=1))[0].key for _ in range(9)]
    assert order == ["a", "b", "c"] * 3
    assert await claim(desk, holder, FAIR) == []


async def test_within_one_claim_each_key_has_a_turn_before_any_has_a_second(desk: Desk) -> None:
    for key in "cab":
        await put(desk, 2, key)
    assert [job.key for job in await claim(desk, await desk.worker(), FAIR)] == ["a", "b", "c"] * 2


async def test_the_jobs_of_one_key_keep_their_order(desk: Desk) -> None:
    await put(desk, 3, "a")
    await put(desk, 1, "a", priority=5)
    ids = [job.id for job in await claim(desk, await desk.worker(), FAIR)]
    assert ids == [4, 1, 2, 3]


async def test_a_key_whose_jobs_are_not_due_loses_no_turn_of_the_others(desk: Desk) -> None:
    await put(desk, 2, "a", delay=timedelta(hours=1))
    await put(desk, 2, "b")
    holder = await desk.worker()
    assert [job.key for job in await claim(desk, holder, FAIR, most=1)] == ["b"]
    assert [job.key for job in await claim(desk, holder, FAIR, most=1)] == ["b"]


async def test_more_keys_than_one_claim_looks_at_all_have_their_turn(desk: Desk) -> None:
    keys = [f"{n:04}" for n in range(1200)]
    await put_keys(desk, keys)
    holder = await desk.worker(timedelta(hours=1))
    seen = [job.key for _ in range(4) for job in await claim(desk, holder, FAIR, most=400)]
    assert sorted(seen) == keys


@pytest.mark.parametrize("due", ["0000", "0700", "1999"])
async def test_a_due_job_is_found_at_once_however_many_keys_are_not_due(desk: Desk, due: str) -> None:
    await put_keys(desk, [f"{n:04}" for n in range(2000)], delay=timedelta(hours=1))
    await put(desk, 1, due)
    assert [job.key for job in await claim(desk, await desk.worker(), FAIR)] == [due]


@pytest.mark.parametrize("due", ["0000", "0700", "1999"])
async def test_a_due_job_behind_keys_without_due_jobs_has_its_turn_beside_a_noisy_key(desk: Desk, due: str) -> None:
    await put(desk, 200, "noisy")
    await put_keys(desk, [f"{n:04}" for n in range(2000)], delay=timedelta(hours=1))
    await put(desk, 1, due)
    holder = await desk.worker()
    claimed = [job.key for _ in range(6) for job in await claim(desk, holder, FAIR, most=5)]
    assert due in claimed, "each claim passes 500 keys"
    assert len(claimed) == 30, "and finds as many as were asked for"


async def test_a_due_job_is_reached_behind_keys_at_their_limit_and_keys_that_are_not_due(desk: Desk) -> None:
    await put(desk, 200, "noisy")
    await put_keys(desk, [f"{n:04}" for n in range(2000)], delay=timedelta(hours=1))
    await put(desk, 1, "1999")
    holder, controls = await desk.worker(), Controls(limit=Limit(per_key=1), fair_by="tenant")
    claims = [await desk.store.lanes.claim(holder, LANE, controls, 5) for _ in range(6)]
    assert sorted(job.key for each in claims for job, _ in each.jobs) == ["1999", "noisy"]
    assert any(each.unseen for each in claims), "it says that it has not looked at every key"


async def test_a_burst_of_keys_that_the_statistics_do_not_know_is_claimed_by_its_index(desk: Desk) -> None:
    """A claim that reads the lane once per key reads millions of rows; one probe per key is a few thousand pages."""
    await desk.scalar("alter table trueup.jobs set (autovacuum_enabled = off)")
    await desk.scalar("analyze trueup.jobs")
    await put_keys(desk, [f"{n:05}" for n in range(5000)])
    holder = await desk.worker(timedelta(hours=1))
    before = await touched(desk)
    for _ in range(3):
        assert len(await claim(desk, holder, FAIR, most=50)) == 50
    assert await touched(desk) - before < 15 * MAX_KEYS * 3


async def touched(desk: Desk) -> int:
    """Rows that index scans and others have read of the jobs so far."""
    await desk.scalar("select pg_stat_force_next_flush()")
    return int(await desk.scalar("select seq_tup_read + idx_tup_fetch from pg_stat_user_tables where relname = 'jobs'"))


async def test_a_lane_without_room_keeps_its_turn(desk: Desk) -> None:
    await put_keys(desk, [f"{n:04}" for n in range(600)])
    holder, controls = await desk.worker(), Controls(limit=Limit(total=1), fair_by="tenant")
    (first,) = await claim(desk, holder, controls)
    assert await claim(desk, holder, controls) == []
    await finish(desk, first)
    assert [job.key for job in await claim(desk, holder, controls)] == ["0001"]


async def test_a_rate_spaces_the_starts_and_says_when_to_ask_again(desk: Desk, clock: ManualClock) -> None:
    await put(desk, 10)
    controls, holder = Controls(rate=Rate.parse("1/s")), await desk.worker()
    first = await desk.store.lanes.claim(holder, LANE, controls, 10)
    assert [wait for _, wait in first.jobs] == [timedelta()]
    second = await desk.store.lanes.claim(holder, LANE, controls, 10)
    assert second.jobs == []
    assert second.ask_again_after == timedelta(seconds=1) - AHEAD
    clock.advance(seconds=second.ask_again_after.total_seconds())
    third = await desk.store.lanes.claim(holder, LANE, controls, 10)
    assert [wait for _, wait in third.jobs] == [AHEAD]


async def test_a_rate_holds_over_the_whole_fleet_and_time_without_jobs_is_not_saved_up(
    desk: Desk, clock: ManualClock
) -> None:
    controls = Controls(rate=Rate.parse("10/s"))
    holders = [await desk.worker(timedelta(hours=2)) for _ in range(2)]
    await put(desk, 100)
    clock.advance(hours=1)
    starts = []
    for step in range(40):
        claimed = await desk.store.lanes.claim(holders[step % 2], LANE, controls, 5)
        starts += [clock.now() + wait for _, wait in claimed.jobs]
        clock.advance(milliseconds=25)
    assert len(starts) in (12, 13), "a second at ten a second, and what was given out ahead"
    assert all(later - earlier >= timedelta(milliseconds=100) for earlier, later in pairwise(starts))


async def test_a_worker_without_a_lease_claims_nothing_and_uses_no_slot(desk: Desk, clock: ManualClock) -> None:
    await put(desk, 1)
    holder = await desk.worker()
    clock.advance(seconds=LEASE.total_seconds())
    controls = Controls(rate=Rate.parse("1/h"))
    assert await claim(desk, holder, controls) == []
    assert len(await claim(desk, await desk.worker(), controls)) == 1


async def test_while_one_claims_through_a_lane_another_gets_nothing_at_once(desk: Desk, store: Store) -> None:
    await put(desk, 5)
    holder = await desk.worker()
    async with store.pool.transaction() as connection:
        await connection.execute("select from trueup.lanes where lane = %s for update", [LANE])
        assert await claim(desk, holder, FAIR) == []
    assert len(await claim(desk, holder, FAIR)) == 5


async def test_a_plain_claim_does_not_take_jobs_of_a_lane(desk: Desk) -> None:
    await put(desk, 3)
    assert await desk.claim(await desk.worker()) == []
    assert await running(desk) == 0


async def test_lanes_with_due_jobs_are_told_from_those_without(desk: Desk, store: Store) -> None:
    await put(desk, 1, delay=timedelta(hours=1))
    await desk.put(lane="@fetch")
    lanes = dict.fromkeys([LANE, "@fetch", "@none"], Controls())
    assert await store.lanes.waiting(lanes) == {LANE: 3600.0, "@fetch": 0.0}


async def test_a_lane_at_its_limit_is_told_from_one_that_has_room(desk: Desk, store: Store) -> None:
    await put(desk, 5)
    holder, controls = await desk.worker(), Controls(limit=Limit(total=2))
    assert await store.lanes.waiting({LANE: controls}) == {LANE: 0.0}
    (first, _) = await claim(desk, holder, controls)
    assert await store.lanes.waiting({LANE: controls}) == {LANE: None}
    assert await store.lanes.waiting({LANE: Controls(limit=Limit(total=3))}) == {LANE: 0.0}
    await finish(desk, first)
    assert await store.lanes.waiting({LANE: controls}) == {LANE: 0.0}


async def test_a_lane_whose_rate_allows_no_start_yet_says_when_it_does(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    await put(desk, 5)
    holder, controls = await desk.worker(timedelta(hours=3)), Controls(rate=Rate.parse("1/m"))
    assert await store.lanes.waiting({LANE: controls}) == {LANE: 0.0}
    assert len(await claim(desk, holder, controls)) == 1
    wait = (timedelta(minutes=1) - AHEAD).total_seconds()
    assert await store.lanes.waiting({LANE: controls}) == {LANE: wait}
    clock.advance(seconds=wait)
    assert await store.lanes.waiting({LANE: controls}) == {LANE: 0.0}
    assert len(await claim(desk, holder, controls)) == 1
    clock.advance(hours=-1)
    await put(desk, 1)
    assert await store.lanes.waiting({LANE: controls}) == {LANE: 0.0}, "the clock was set back; nobody waits for it"
    assert len(await claim(desk, holder, controls)) == 1


@pytest.mark.parametrize("controls", [Controls(limit=Limit(total=1000)), FAIR])
async def test_due_jobs_of_a_lane_are_claimed_in_the_order_of_their_rank(
    desk: Desk, clock: ManualClock, controls: Controls
) -> None:
    put_in, expected = Desk(desk.store), []
    await desk.store.lanes.register([LANE])
    chance = Random(1)
    for _ in range(40):
        priority, delay = chance.choice([-7, 0, 0, 3, 20]), timedelta(seconds=chance.choice([0, 0, 90, 5000]))
        job_id = await put_in.put(lane=LANE, priority=priority, delay=delay)
        if delay.total_seconds() < 5000:
            expected.append((clock.now() + delay - priority * desk.store.statements.aging, job_id))
        clock.advance(seconds=chance.choice([0, 5, 30]))
    clock.advance(seconds=90)
    holder, claimed = await desk.worker(timedelta(hours=3)), []
    while jobs := await claim(desk, holder, controls, most=7):
        claimed += [job.id for job in jobs]
    assert claimed == [job_id for _, job_id in sorted(expected)]


async def test_registering_a_lane_twice_keeps_its_place(desk: Desk, store: Store) -> None:
    await put(desk, 2)
    controls, holder = Controls(rate=Rate.parse("1/h")), await desk.worker()
    assert len(await claim(desk, holder, controls)) == 1
    await store.lanes.register([LANE])
    assert await claim(desk, holder, controls) == []


async def test_jobs_of_a_lane_that_is_no_more_go_back_to_their_queue(desk: Desk, store: Store) -> None:
    await put(desk, 2)
    await store.jobs.adopt([LANE])
    assert len(await desk.claim(await desk.worker())) == 2


async def test_jobs_in_a_lane_whose_holder_died_free_their_slots(desk: Desk, clock: ManualClock, store: Store) -> None:
    await put(desk, 3)
    controls = Controls(limit=Limit(total=1))
    assert len(await claim(desk, await desk.worker(), controls)) == 1
    clock.advance(seconds=LEASE.total_seconds())
    await store.jobs.rescue()
    assert len(await claim(desk, await desk.worker(), controls)) == 1
    assert await running(desk) == 1
