from __future__ import annotations

from datetime import timedelta

import pytest

from tests.store.desk import LEASE, Desk, failure
from trueup.jobs.failure import MAX_ERRORS
from trueup.store.jobs import Rescued
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock

pytestmark = pytest.mark.asyncio

LEASE_S = LEASE.total_seconds()


async def test_nothing_is_rescued_while_the_lease_lasts(desk: Desk, clock: ManualClock, store: Store) -> None:
    job = await desk.running()
    clock.advance(seconds=LEASE_S - 1)
    assert await store.jobs.rescue() == []
    assert await desk.state(job.id) == "running"


async def test_a_job_whose_holders_lease_has_passed_goes_back_to_the_queue(
    desk: Desk, clock: ManualClock, store: Store
) -> None:
    job = await desk.running(await desk.worker(host="blade", pid=77))
    clock.advance(seconds=LEASE_S)
    assert await store.jobs.rescue() == [Rescued(job.id, "send", 1, job.holder, "blade", 77, "queued")]
    row = await desk.row(job.id)
    assert (row["state"], row["holder"], row["attempt"], row["crashes"], row["term"]) == (
        "queued",
        None,
        1,
        1,
        job.term,
    )
    assert row["errors"][-1]["type"] == "WorkerLost"
    assert row["errors"][-1]["message"] == "the lease of its worker expired (blade, pid 77)"
    made_by = {name: row["errors"][-1][name] for name in ("holder", "term", "host", "pid")}
    assert made_by == {"holder": str(job.holder), "term": job.term, "host": "blade", "pid": 77}
    (again,) = await desk.claim(await desk.worker())
    assert (again.attempt, again.term) == (2, job.term + 1)


async def test_only_the_jobs_of_the_lost_worker_are_taken(desk: Desk, clock: ManualClock, store: Store) -> None:
    lost = await desk.running()
    clock.advance(seconds=LEASE_S / 2)
    kept = await desk.running()
    clock.advance(seconds=LEASE_S / 2)
    assert [rescued.job_id for rescued in await store.jobs.rescue()] == [lost.id]
    assert await desk.state(kept.id) == "running"


async def test_a_job_that_loses_its_worker_at_the_last_attempt_is_buried(
    desk: Desk, clock: ManualClock, store: Store
) -> None:
    job = await desk.running(max_attempts=1, args='{"to": "a"}', unique_key="u")
    clock.advance(seconds=LEASE_S)
    assert [rescued.state for rescued in await store.jobs.rescue()] == ["dead"]
    row = await desk.row(job.id)
    assert (row["state"], row["reason"], row["args"]) == ("dead", "its worker died at the last attempt", {"to": "a"})
    assert [error["type"] for error in row["errors"]] == ["WorkerLost"]
    assert await desk.put(unique_key="u") != job.id


async def test_a_job_that_was_asked_to_stop_is_cancelled_instead_of_run_again(
    desk: Desk, clock: ManualClock, store: Store
) -> None:
    job = await desk.running(max_attempts=1)
    await store.jobs.request_stop([job.id])
    clock.advance(seconds=LEASE_S)
    assert [rescued.state for rescued in await store.jobs.rescue()] == ["cancelled"]
    assert (await desk.row(job.id))["reason"] == "stopped"


async def test_a_job_that_keeps_killing_its_workers_comes_back_ever_later(
    desk: Desk, clock: ManualClock, store: Store
) -> None:
    job_id = await desk.put(max_attempts=100)
    waits = []
    for _ in range(8):
        await desk.claim(await desk.worker())
        clock.advance(seconds=LEASE_S)
        await store.jobs.rescue()
        wait = (await desk.row(job_id))["run_at"] - clock.now()
        waits.append(max(wait.total_seconds(), 0))
        clock.advance(seconds=waits[-1])
    assert waits == [0, 1, 3, 7, 15, 31, 60, 60]


async def test_a_rescue_keeps_the_first_error_and_the_latest_ones(desk: Desk, clock: ManualClock, store: Store) -> None:
    holder = await desk.worker()
    job_id = await desk.put(max_attempts=1000)
    for attempt in range(1, MAX_ERRORS + 1):
        (job,) = await desk.claim(holder)
        await store.jobs.retry(holder, [job], [timedelta()], [failure(f"error {attempt}", attempt)])
    await desk.claim(holder)
    clock.advance(seconds=LEASE_S)
    await store.jobs.rescue()
    errors = (await desk.row(job_id))["errors"]
    assert len(errors) == MAX_ERRORS
    assert errors[0]["message"] == "error 1"
    assert errors[-1]["type"] == "WorkerLost"


async def test_a_rescued_worker_is_marked_so_that_it_can_never_renew(
    desk: Desk, clock: ManualClock, store: Store
) -> None:
    holder = await desk.worker()
    clock.advance(seconds=LEASE_S)
    await store.jobs.rescue()
    clock.advance(seconds=-LEASE_S)
    assert not await store.workers.renew(holder, LEASE), "not even with a clock by which the lease still lasts"


async def test_a_second_rescue_finds_nothing(desk: Desk, clock: ManualClock, store: Store) -> None:
    await desk.running()
    clock.advance(seconds=LEASE_S)
    assert len(await store.jobs.rescue()) == 1
    assert await store.jobs.rescue() == []


async def test_a_job_with_a_finish_in_flight_and_its_worker_wait_for_the_next_pass(
    desk: Desk, clock: ManualClock, store: Store
) -> None:
    holder = await desk.worker()
    finishing, stuck = await desk.running(holder), await desk.running(holder)
    clock.advance(seconds=LEASE_S)
    async with store.pool.transaction() as connection:
        await connection.execute("select from trueup.jobs where id = %s for update", [finishing.id])
        assert [rescued.job_id for rescued in await store.jobs.rescue()] == [stuck.id]
        assert list(await store.workers.forget()) == []
        assert holder in await desk.holders()
    assert [rescued.job_id for rescued in await store.jobs.rescue()] == [finishing.id]
    assert [row[0] for row in await store.workers.forget()] == [holder]


async def test_the_jobs_of_many_lost_workers_are_all_rescued(desk: Desk, clock: ManualClock, store: Store) -> None:
    for _ in range(130):
        await desk.running()
    clock.advance(seconds=LEASE_S)
    rescued = await store.jobs.rescue()
    await store.workers.forget()
    rescued += await store.jobs.rescue()
    assert len({each.job_id for each in rescued}) == len(rescued) == 130


async def test_the_time_of_the_crash_is_kept_with_the_job(desk: Desk, clock: ManualClock, store: Store) -> None:
    job = await desk.running(max_attempts=1)
    clock.advance(seconds=LEASE_S)
    await store.jobs.rescue()
    assert (await desk.row(job.id))["finished_at"] == NOON + LEASE


@pytest.mark.parametrize("max_attempts", [1, 3])
async def test_a_running_job_whose_holder_has_no_row_goes_back_with_its_attempt(
    desk: Desk, store: Store, max_attempts: int
) -> None:
    job = await desk.running(max_attempts=max_attempts)
    kept = await desk.running()
    await desk.scalar("delete from trueup.workers where holder = %s", job.holder)
    assert await store.jobs.rescue() == [Rescued(job.id, "send", 0, job.holder, "", 0, "queued")]
    row = await desk.row(job.id)
    assert (row["state"], row["holder"], row["attempt"], row["crashes"], row["errors"]) == ("queued", None, 0, 0, [])
    assert await desk.state(kept.id) == "running"
    (again,) = await desk.claim(await desk.worker())
    assert (again.attempt, again.term > job.term) == (1, True), "the fencing token is never given back"


async def test_jobs_of_many_vanished_holders_are_found_among_those_of_living_ones(desk: Desk, store: Store) -> None:
    jobs = [await desk.running() for _ in range(12)]
    vanished = [job for number, job in enumerate(jobs) if number % 3 == 0]
    for job in vanished:
        await desk.scalar("delete from trueup.workers where holder = %s", job.holder)
    assert {rescued.job_id for rescued in await store.jobs.rescue()} == {job.id for job in vanished}
    assert await store.jobs.rescue() == []


async def test_a_vanished_holders_finish_is_refused_after_the_rescue(desk: Desk, store: Store) -> None:
    job = await desk.running()
    await desk.scalar("delete from trueup.workers where holder = %s", job.holder)
    await store.jobs.rescue()
    assert await store.jobs.complete(job.holder, [job], [None]) == set()


async def test_a_job_that_was_asked_to_stop_is_dropped_when_its_holder_has_no_row(desk: Desk, store: Store) -> None:
    job = await desk.running()
    await store.jobs.request_stop([job.id])
    await desk.scalar("delete from trueup.workers where holder = %s", job.holder)
    assert [rescued.state for rescued in await store.jobs.rescue()] == ["cancelled"]
