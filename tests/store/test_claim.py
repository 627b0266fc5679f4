from __future__ import annotations

import json
import string
from collections.abc import AsyncIterator
from datetime import timedelta
from random import Random
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
    clock.advance(seconds=5 * store.statements.aging.total_seconds() + 1)
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


async def put_at_random(desk: Desk, clock: ManualClock, seed: int, count: int) -> list[int]:
    """Jobs of several priorities, some of them delayed. Returns the ids of those that are due, best rank first."""
    chance, ranked = Random(seed), []
    for _ in range(count):
        priority, delay = chance.choice([-7, 0, 0, 0, 3, 20]), chance.choice([0, 0, 1, 90, 600, 5000])
        job_id = await desk.put(priority=priority, delay=timedelta(seconds=delay))
        rank = clock.now() + timedelta(seconds=delay) - priority * desk.store.statements.aging
        ranked.append((rank, job_id, clock.now() + timedelta(seconds=delay)))
        clock.advance(seconds=chance.choice([0, 5, 30]))
    clock.advance(seconds=60)
    return [job_id for _, job_id, run_at in sorted(ranked) if run_at <= clock.now()]


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("most", [1, 4, 100])
async def test_due_jobs_are_claimed_in_the_order_of_their_rank(
    desk: Desk, clock: ManualClock, seed: int, most: int
) -> None:
    expected = await put_at_random(desk, clock, seed, 40)
    holder, claimed = await desk.worker(timedelta(hours=3)), []
    while jobs := await desk.claim(holder, most):
        claimed += [job.id for job in jobs]
    assert claimed == expected


async def test_a_claim_says_whether_there_may_be_more(desk: Desk) -> None:
    await desk.put_many(3)
    await desk.put_many(3, priority=5)
    await desk.put_many(3, delay=timedelta(hours=1))
    holder = await desk.worker()
    assert [
        (len(jobs), jobs.more)
        for jobs in [await desk.store.jobs.claim(holder, "default", 4, ["send"]) for _ in range(3)]
    ] == [
        (4, True),
        (2, False),
        (0, False),
    ]


@pytest.mark.parametrize("others", [{}, {"priority": 5}, {"priority": -5}])
async def test_jobs_that_another_worker_is_claiming_are_made_up_for_by_the_next_ones(
    desk: Desk, store: Store, others: dict[str, int]
) -> None:
    """Whatever their priority: a worker that gets fewer than it asked for believes that there are no more."""
    await desk.put_many(5, priority=5)
    await desk.put_many(20, **others)
    holder = await desk.worker()
    async with store.pool.transaction() as connection:
        await connection.execute("select from trueup.jobs order by rank, id limit 5 for update")
        jobs = await store.jobs.claim(holder, "default", 8, ["send"])
        assert (len(jobs), jobs.more) == (8, True)
        assert [job.id for job in jobs] == sorted(job.id for job in jobs)
    assert len(await desk.claim(holder, 100)) == 17


LARGE = 1_000_000


@pytest.mark.parametrize("letters", ["x", string.printable[:94]], ids=["stored small", "stored large"])
async def test_a_claim_ends_when_its_arguments_are_large_and_says_that_there_is_more(desk: Desk, letters: str) -> None:
    """Whether or not they are stored small: what counts is what a worker has to keep in memory."""
    text = "".join(Random(1).choices(letters, k=LARGE))
    for _ in range(5):
        await desk.put(args=json.dumps({"text": text}))
    holder, sizes = await desk.worker(), []
    for _ in range(4):
        jobs = await desk.store.jobs.claim(holder, "default", 100, ["send"], max_bytes=2 * LARGE)
        sizes.append((len(jobs), jobs.more))
    assert sizes == [(2, True), (2, True), (1, False), (0, False)]
    await desk.put(args=json.dumps({"text": text}))
    assert len(await desk.store.jobs.claim(holder, "default", 100, ["send"], max_bytes=1)) == 1


async def test_a_job_whose_worker_died_keeps_its_place(desk: Desk, clock: ManualClock, store: Store) -> None:
    first, second = await desk.put(), await desk.put()
    clock.advance(seconds=1)
    (job,) = await desk.claim(await desk.worker(), 1)
    assert job.id == first
    clock.advance(seconds=LEASE.total_seconds())
    await store.jobs.rescue()
    assert [job.id for job in await desk.claim(await desk.worker())] == [first, second]
