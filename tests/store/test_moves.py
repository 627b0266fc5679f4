"""The moves a holder makes, and their fence: an old claim is worthless, even to the same worker."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.store.desk import Desk, failure
from trueup.jobs.exhausted import Exhausting
from trueup.jobs.failure import MAX_ERRORS
from trueup.jobs.job import ClaimedJob
from trueup.jobs.records import JobError
from trueup.jobs.states import MOVES
from trueup.store.jobs import Jobs
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock

pytestmark = pytest.mark.asyncio

MINUTE = timedelta(minutes=1)
Finish = Callable[[Jobs, UUID, list[ClaimedJob]], Awaitable[set[int]]]

FINISHES: dict[str, Finish] = {
    "complete": lambda jobs, holder, mine: jobs.complete(holder, mine, ["42"] * len(mine)),
    "retry": lambda jobs, holder, mine: jobs.retry(holder, mine, [MINUTE] * len(mine), [failure()] * len(mine)),
    "snooze": lambda jobs, holder, mine: jobs.snooze(holder, mine, [MINUTE] * len(mine)),
    "release": lambda jobs, holder, mine: jobs.release(holder, mine, ["default"] * len(mine), [""] * len(mine)),
    "defer": lambda jobs, holder, mine: jobs.defer(
        holder,
        mine,
        [MINUTE] * len(mine),
        [Exhausting("why", "ValueError", "boom")] * len(mine),
        [[failure()]] * len(mine),
    ),
    "bury": lambda jobs, holder, mine: jobs.bury(holder, mine, ["why"] * len(mine), [failure()] * len(mine)),
    "drop": lambda jobs, holder, mine: jobs.drop(holder, mine, ["why"] * len(mine)),
}
by_holder = [move for move, (before, _) in MOVES.items() if before == "running" and move != "rescue"]
every_finish = pytest.mark.parametrize("move", by_holder)


async def finish(desk: Desk, move: str, job: ClaimedJob, holder: UUID | None = None) -> set[int]:
    return await FINISHES[move](desk.store.jobs, holder or job.holder, [job])


@every_finish
async def test_a_finish_by_the_holder_makes_the_move(desk: Desk, move: str) -> None:
    job = await desk.running()
    assert await desk.state(job.id) == MOVES[move][0]
    assert await finish(desk, move, job) == {job.id}
    assert await desk.state(job.id) == MOVES[move][1]


@every_finish
async def test_a_finish_with_an_old_term_changes_nothing_even_by_the_same_worker(desk: Desk, move: str) -> None:
    old = await desk.running()
    await finish(desk, "release", old)
    (new,) = await desk.claim(old.holder)
    before = await desk.row(old.id)
    assert new.term > old.term
    assert await finish(desk, move, old) == set()
    assert await desk.row(old.id) == before


@every_finish
async def test_a_finish_by_another_holder_changes_nothing(desk: Desk, move: str) -> None:
    job = await desk.running()
    before = await desk.row(job.id)
    assert await finish(desk, move, job, await desk.worker()) == set()
    assert await finish(desk, move, job, uuid4()) == set()
    assert await desk.row(job.id) == before


@every_finish
@pytest.mark.parametrize("earlier", by_holder)
async def test_a_second_finish_of_the_same_claim_changes_nothing(desk: Desk, earlier: str, move: str) -> None:
    job = await desk.running()
    await finish(desk, earlier, job)
    before = await desk.row(job.id)
    assert await finish(desk, move, job) == set()
    assert await desk.row(job.id) == before


@every_finish
async def test_a_finish_of_a_job_that_never_was_changes_nothing(desk: Desk, move: str) -> None:
    job = await desk.running()
    assert await finish(desk, move, replace(job, id=job.id + 1000)) == set()


@every_finish
async def test_each_job_of_a_batch_is_judged_alone(desk: Desk, move: str) -> None:
    await desk.put_many(3)
    first, lost, last = await desk.claim(await desk.worker())
    before = await desk.row(lost.id)
    mine = [first, replace(lost, term=lost.term - 1), last]
    assert await FINISHES[move](desk.store.jobs, first.holder, mine) == {first.id, last.id}
    assert await desk.row(lost.id) == before
    assert await desk.state(first.id) == await desk.state(last.id) == MOVES[move][1]


async def test_an_attempt_is_counted_when_the_job_is_claimed(desk: Desk) -> None:
    job_id = await desk.put()
    assert (await desk.row(job_id))["attempt"] == 0
    (job,) = await desk.claim(await desk.worker())
    assert job.attempt == (await desk.row(job_id))["attempt"] == 1


@pytest.mark.parametrize(("move", "attempt"), [("retry", 1), ("snooze", 0), ("release", 0), ("defer", 0)])
async def test_only_a_failure_costs_an_attempt(desk: Desk, move: str, attempt: int) -> None:
    job = await desk.running()
    await finish(desk, move, job)
    assert (await desk.row(job.id))["attempt"] == attempt


async def test_the_term_grows_at_every_claim_and_is_never_given_back(desk: Desk, clock: ManualClock) -> None:
    job = await desk.running(max_attempts=100)
    terms = [job.term]
    for move in ("release", "snooze", "retry") * 2:
        await finish(desk, move, job)
        clock.advance(minutes=1)
        (job,) = await desk.claim(await desk.worker())
        terms.append(job.term)
    assert terms == sorted(set(terms))


@pytest.mark.parametrize(("move", "run_at"), [("retry", NOON + MINUTE), ("snooze", NOON + MINUTE), ("release", NOON)])
async def test_a_job_comes_back_when_its_move_says(desk: Desk, clock: ManualClock, move: str, run_at: Any) -> None:
    job = await desk.running()
    await finish(desk, move, job)
    assert (await desk.row(job.id))["run_at"] == run_at
    due = run_at <= clock.now()
    assert bool(await desk.claim(await desk.worker())) == due


async def test_a_retried_job_takes_its_place_by_its_new_time_and_its_priority(desk: Desk, store: Store) -> None:
    job = await desk.running(priority=2)
    await finish(desk, "retry", job)
    rank = await desk.scalar("select rank from trueup.jobs where id = %s", job.id)
    assert rank == NOON + MINUTE - 2 * store.statements.aging


async def test_a_released_job_can_be_put_into_another_lane(desk: Desk, store: Store) -> None:
    job = await desk.running()
    await store.jobs.release(job.holder, [job], ["@send"], ["acme"])
    row = await desk.row(job.id)
    assert (row["lane"], row["key"]) == ("@send", "acme")


async def test_a_completed_job_moves_to_the_history_with_everything_it_had(desk: Desk, clock: ManualClock) -> None:
    job = await desk.running(args='{"to": "a"}', unique_key="u", priority=3, key="k")
    before = await desk.row(job.id)
    clock.advance(seconds=5)
    await finish(desk, "complete", job)
    changed = {"state": "done", "finished_at": clock.now(), "result": 42}
    assert await desk.row(job.id) == {**before, **changed}
    assert await desk.scalar("select count(*) from trueup.jobs") == 0
    assert await desk.scalar("select count(*) from trueup.history") == 1


@pytest.mark.parametrize(("move", "state"), [("bury", "dead"), ("drop", "cancelled")])
async def test_a_buried_or_dropped_job_keeps_payload_and_reason(desk: Desk, move: str, state: str) -> None:
    job = await desk.running(args='{"to": "a"}')
    await finish(desk, move, job)
    row = await desk.row(job.id)
    assert (row["state"], row["args"], row["reason"], row["finished_at"]) == (state, {"to": "a"}, "why", NOON)


async def test_a_finished_job_frees_its_unique_key(desk: Desk) -> None:
    for move in ("complete", "bury", "drop"):
        job = await desk.running(unique_key="u")
        await finish(desk, move, job)
    assert await desk.put(unique_key="u") > job.id


@pytest.mark.parametrize("last", ["retry", "bury"])
async def test_the_first_error_and_the_latest_ones_are_kept(desk: Desk, clock: ManualClock, last: str) -> None:
    holder = await desk.worker(lease_for=timedelta(days=1))
    job_id = await desk.put(max_attempts=1000)
    for attempt in range(1, MAX_ERRORS + 5):
        (job,) = await desk.claim(holder)
        await desk.store.jobs.retry(holder, [job], [timedelta()], [failure(f"error {attempt}", attempt)])
    (job,) = await desk.claim(holder)
    await finish(desk, last, job)
    messages = [error["message"] for error in (await desk.row(job_id))["errors"]]
    assert len(messages) == MAX_ERRORS
    assert messages[0] == "error 1"
    assert messages[-2:] == [f"error {MAX_ERRORS + 4}", "boom"]


@pytest.mark.parametrize("last", ["retry", "bury", "defer"])
async def test_each_failed_attempt_is_kept_with_its_claim_and_process(
    desk: Desk, clock: ManualClock, last: str
) -> None:
    for _ in range(2):
        await desk.put()
    claims: dict[int, list[tuple[UUID, int]]] = {}
    for move in ("retry", last):
        holder = await desk.worker()
        jobs = await desk.claim(holder)
        assert await FINISHES[move](desk.store.jobs, holder, jobs) == {job.id for job in jobs}
        for job in jobs:
            claims.setdefault(job.id, []).append((holder, job.term))
        clock.advance(minutes=1)
    assert len({term for made in claims.values() for _, term in made}) > 1
    for job_id, made in claims.items():
        errors = [JobError.of(error) for error in (await desk.row(job_id))["errors"]]
        assert [(error.holder, error.term) for error in errors] == made
        assert {(error.host, error.pid) for error in errors} == {(socket.gethostname(), os.getpid())}


async def test_progress_is_noted_by_the_holder_and_refused_to_others(desk: Desk, store: Store) -> None:
    job = await desk.running()
    assert await store.jobs.progress(job, 40, "page 4")
    noted = (await desk.row(job.id))["progress"]
    assert (noted["percent"], noted["note"]) == (40, "page 4")
    for other in (replace(job, term=job.term - 1), replace(job, holder=uuid4())):
        assert not await store.jobs.progress(other, 99, None)
    await finish(desk, "release", job)
    assert not await store.jobs.progress(job, 99, None)
    assert (await desk.row(job.id))["progress"] == noted


@every_finish
async def test_after_a_lost_reply_a_holder_finds_its_own_finish(desk: Desk, move: str) -> None:
    done, open_, gone = [await desk.running(holder) for holder in [await desk.worker()] * 3]
    await finish(desk, move, done)
    ended = await desk.store.jobs.ended_as_mine(done.holder, [done, open_, replace(gone, term=gone.term - 1)])
    assert ended == {done.id: MOVES[move][1]}


async def test_after_a_lost_reply_a_rescue_is_not_taken_for_ones_own_finish(desk: Desk, clock: ManualClock) -> None:
    holder = await desk.worker()
    requeued, spent, stopped = [await desk.running(holder, max_attempts=most) for most in (2, 1, 2)]
    await desk.store.jobs.request_stop([stopped.id])
    clock.advance(minutes=5)
    assert len(await desk.store.jobs.rescue()) == 3
    assert await desk.store.jobs.ended_as_mine(holder, [requeued, spent, stopped]) == {}


async def test_after_a_lost_reply_an_earlier_attempts_crash_does_not_hide_the_finish(
    desk: Desk, clock: ManualClock
) -> None:
    crashed = await desk.running()
    clock.advance(minutes=5)
    await desk.store.jobs.rescue()
    (job,) = await desk.claim(await desk.worker())
    assert job.id == crashed.id
    await finish(desk, "complete", job)
    assert await desk.store.jobs.ended_as_mine(job.holder, [job]) == {job.id: "done"}
