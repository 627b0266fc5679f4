"""What people do to jobs: cancel, ask to stop, hurry, revive, discard."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.store.desk import Desk, failure
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock

pytestmark = pytest.mark.asyncio

HOUR = timedelta(hours=1)


async def test_a_queued_job_is_cancelled_with_its_reason(desk: Desk, store: Store) -> None:
    job_id = await desk.put(args='{"to": "a"}', unique_key="u")
    assert await store.jobs.cancel([job_id, 999], "not needed") == {job_id}
    row = await desk.row(job_id)
    assert (row["state"], row["reason"], row["args"], row["finished_at"]) == (
        "cancelled",
        "not needed",
        {"to": "a"},
        NOON,
    )
    assert await desk.put(unique_key="u") != job_id, "its unique key is free"


async def test_a_running_job_is_not_cancelled_but_can_be_asked_to_stop(desk: Desk, store: Store) -> None:
    job = await desk.running()
    queued = await desk.put()
    assert await store.jobs.cancel([job.id], "no") == set()
    assert await store.jobs.request_stop([job.id, queued]) == {job.id}
    assert await desk.state(job.id) == "running"
    assert await store.jobs.stopping(job.holder) == {(job.id, job.term)}


async def test_asking_to_stop_twice_keeps_the_first_moment(desk: Desk, store: Store, clock: ManualClock) -> None:
    job = await desk.running()
    await store.jobs.request_stop([job.id])
    clock.advance(seconds=5)
    assert await store.jobs.request_stop([job.id]) == {job.id}
    assert (await desk.row(job.id))["cancel_requested_at"] == NOON


async def test_finished_jobs_can_neither_be_cancelled_nor_asked_to_stop(desk: Desk, store: Store) -> None:
    job = await desk.running()
    await store.jobs.complete(job.holder, [job], [None])
    assert await store.jobs.cancel([job.id], "no") == set()
    assert await store.jobs.request_stop([job.id]) == set()
    assert await desk.state(job.id) == "done"


async def test_a_requeued_job_with_a_pending_cancellation_is_stopped_at_its_next_run(desk: Desk, store: Store) -> None:
    job = await desk.running()
    await store.jobs.request_stop([job.id])
    await store.jobs.release(job.holder, [job], ["default"], [""])
    (again,) = await desk.claim(await desk.worker())
    assert again.id == job.id
    assert await store.jobs.stopping(again.holder) == {(again.id, again.term)}


async def test_hurrying_makes_a_waiting_job_due_now_in_its_place(desk: Desk, store: Store) -> None:
    waiting = await desk.put(delay=HOUR, priority=1)
    due = await desk.put()
    assert await store.jobs.hurry([waiting, due]) == {waiting}, "the other is due already"
    assert [job.id for job in await desk.claim(await desk.worker())] == [waiting, due]
    assert await store.jobs.hurry([waiting]) == set(), "running"


async def test_a_revived_job_keeps_id_payload_errors_and_term_and_has_all_attempts_anew(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    job_id = await desk.dead(args='{"to": "a"}', max_attempts=2, unique_key="u", priority=3, key="k")
    dead = await desk.row(job_id)
    clock.advance(hours=1)
    assert await store.jobs.revive([job_id]) == {job_id}
    row = await desk.row(job_id)
    assert (row["state"], row["attempt"], row["crashes"], row["run_at"]) == ("queued", 0, 0, clock.now())
    kept = ("id", "args", "errors", "term", "max_attempts", "unique_key", "priority", "key", "enqueued_at")
    assert {name: row[name] for name in kept} == {name: dead[name] for name in kept}
    assert await desk.scalar("select count(*) from trueup.history") == 0
    (job,) = await desk.claim(await desk.worker())
    assert job.term > dead["term"]


async def test_the_holder_of_a_dead_job_cannot_finish_it_after_its_revival(desk: Desk, store: Store) -> None:
    job = await desk.running()
    await store.jobs.bury(job.holder, [job], ["why"], [failure()])
    await store.jobs.revive([job.id])
    await desk.claim(job.holder)
    assert await store.jobs.complete(job.holder, [job], [None]) == set()


async def test_a_dead_job_whose_unique_key_is_taken_stays_dead_and_the_others_are_revived(
    desk: Desk, store: Store
) -> None:
    taken, free = await desk.dead(unique_key="u"), await desk.dead()
    live = await desk.put(unique_key="u")
    assert await store.jobs.revive([taken, free]) == {free}
    assert await desk.state(taken) == "dead"
    await store.jobs.cancel([live], "make room")
    assert await store.jobs.revive([taken]) == {taken}


async def test_of_two_dead_jobs_with_one_unique_key_one_is_revived(desk: Desk, store: Store) -> None:
    first, second = await desk.dead(unique_key="u"), await desk.dead(unique_key="u")
    revived = await store.jobs.revive([first, second])
    assert len(revived) == 1
    assert {await desk.state(first), await desk.state(second)} == {"queued", "dead"}


async def test_only_dead_jobs_are_revived_or_discarded(desk: Desk, store: Store) -> None:
    done = await desk.running()
    await store.jobs.complete(done.holder, [done], [None])
    cancelled = await desk.put()
    await store.jobs.cancel([cancelled], "no")
    running, queued = await desk.running(), await desk.put()
    ids = [done.id, cancelled, running.id, queued]
    before = [await desk.row(job_id) for job_id in ids]
    assert await store.jobs.revive(ids) == await store.jobs.discard(ids, "no") == set()
    assert [await desk.row(job_id) for job_id in ids] == before


async def test_a_discarded_job_is_cancelled_with_everything_else_as_it_was(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    job_id = await desk.dead(args='{"to": "a"}')
    dead = await desk.row(job_id)
    clock.advance(hours=1)
    assert await store.jobs.discard([job_id], "known, harmless") == {job_id}
    changed = {"state": "cancelled", "reason": "known, harmless", "finished_at": clock.now()}
    assert await desk.row(job_id) == {**dead, **changed}
    assert await store.jobs.revive([job_id]) == set()
