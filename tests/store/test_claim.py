from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest
import pytest_asyncio
from psycopg.conninfo import conninfo_to_dict

from tests.store.desk import LEASE, Desk
from tests.support.urls import connection_url
from trueup import App
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock

pytestmark = pytest.mark.asyncio


async def test_a_claimed_job_is_handed_over_with_everything_its_run_needs(desk: Desk, clock: ManualClock) -> None:
    job_id = await desk.put(args='{"to": "a"}', priority=2, max_attempts=5)
    clock.advance(seconds=3)
    holder = await desk.worker()
    (job,) = await desk.claim(holder)
    assert (job.id, job.kind, job.queue, job.lane, job.key) == (job_id, "send", "default", "default", "")
    assert (job.args, job.attempt, job.max_attempts, job.crashes) == ('{"to": "a"}', 1, 5, 0)
    assert (job.holder, job.term, job.claimed_at) == (holder, 1, NOON + timedelta(seconds=3))
    assert job.lateness == timedelta(seconds=3)


async def test_jobs_are_claimed_in_the_order_they_became_due(desk: Desk, clock: ManualClock) -> None:
    later = await desk.put(run_at=NOON + timedelta(seconds=2))
    first = await desk.put()
    second = await desk.put()
    clock.advance(seconds=5)
    assert [job.id for job in await desk.claim(await desk.worker())] == [first, second, later]


async def test_a_higher_priority_is_claimed_first(desk: Desk) -> None:
    ids = {priority: await desk.put(priority=priority) for priority in (0, -5, 10)}
    assert [job.id for job in await desk.claim(await desk.worker())] == [ids[10], ids[0], ids[-5]]


async def test_an_old_job_of_low_priority_overtakes_new_ones_of_higher_priority(
    desk: Desk, clock: ManualClock, store: Store
) -> None:
    old = await desk.put(priority=0)
    clock.advance(seconds=5 * store.aging.total_seconds() + 1)
    urgent = await desk.put(priority=6)
    newer = await desk.put(priority=5)
    assert [job.id for job in await desk.claim(await desk.worker())] == [urgent, old, newer]


async def test_a_job_that_is_not_due_is_not_claimed_until_it_is(desk: Desk, clock: ManualClock) -> None:
    by_time = await desk.put(run_at=NOON + timedelta(seconds=10))
    by_delay = await desk.put(delay=timedelta(seconds=20), priority=100)
    holder = await desk.worker(timedelta(minutes=5))
    assert await desk.claim(holder) == []
    clock.advance(seconds=10)
    assert [job.id for job in await desk.claim(holder)] == [by_time]
    clock.advance(seconds=10)
    assert [job.id for job in await desk.claim(holder)] == [by_delay]


async def test_kinds_a_worker_does_not_know_are_left_for_others(desk: Desk) -> None:
    unknown, known = await desk.put("resize"), await desk.put("send")
    holder = await desk.worker()
    assert [job.id for job in await desk.claim(holder, kinds=["send"])] == [known]
    row = await desk.row(unknown)
    assert (row["state"], row["attempt"]) == ("queued", 0)
    assert [job.id for job in await desk.claim(holder, kinds=["resize"])] == [unknown]


async def test_only_the_asked_for_lane_is_claimed_from_and_no_more_than_asked_for(desk: Desk) -> None:
    for queue in ("mail", "bulk"):
        await desk.put_many(3, queue=queue)
    holder = await desk.worker()
    assert [job.queue for job in await desk.claim(holder, 2, lane="mail")] == ["mail"] * 2
    assert [job.queue for job in await desk.claim(holder, 9, lane="mail")] == ["mail"]
    assert len(await desk.claim(holder, 9, lane="bulk")) == 3


async def test_a_job_in_hand_is_not_claimed_again(desk: Desk) -> None:
    await desk.running()
    assert await desk.claim(await desk.worker()) == []


async def test_a_worker_without_a_lease_claims_nothing(desk: Desk, clock: ManualClock, store: Store) -> None:
    job_id = await desk.put()
    expired, rescued = await desk.worker(), await desk.worker()
    clock.advance(seconds=LEASE.total_seconds())
    assert await desk.claim(expired) == []
    await store.jobs.rescue()
    clock.advance(seconds=-1)
    assert await desk.claim(rescued) == [], "its lease had not passed by this clock, but it was rescued"
    assert await desk.claim(uuid4()) == [], "never registered"
    assert (await desk.row(job_id))["attempt"] == 0


PLANNERS = {
    "as it is": {},
    "no hash joins": {"enable_hashjoin": "off"},
    "no index scans": {"enable_indexscan": "off", "enable_bitmapscan": "off", "enable_indexonlyscan": "off"},
    "no nested loops": {"enable_nestloop": "off", "enable_mergejoin": "off"},
    "no sorts": {"enable_sort": "off", "enable_seqscan": "off"},
    "generic plans": {"plan_cache_mode": "force_generic_plan"},
}


@pytest_asyncio.fixture(params=PLANNERS)
async def biased(request: pytest.FixtureRequest, database_url: str, clock: ManualClock) -> AsyncIterator[Desk]:
    """A desk whose planner is led astray, with 10,000 jobs it has no statistics of."""
    options = " ".join(f"-c {name}={value}" for name, value in PLANNERS[request.param].items())
    url = connection_url({**conninfo_to_dict(database_url), "options": options or None})
    async with App(url, clock=clock) as app:
        desk = Desk(app.store)
        await desk.scalar("alter table trueup.jobs set (autovacuum_enabled = off)")
        await desk.put_many(10_000)
        yield desk


async def test_a_claim_keeps_its_limit_and_its_order_whatever_the_plan(biased: Desk) -> None:
    holder, ids = await biased.worker(), []
    for most in (1, 7, 100):
        claimed = await biased.claim(holder, most)
        assert len(claimed) == most
        ids += [job.id for job in claimed]
    assert ids == list(range(1, 109))
    assert await biased.scalar("select count(*) from trueup.jobs where state = 'running'") == 108
