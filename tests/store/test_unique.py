from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.store.desk import Desk, draft
from trueup.errors import DuplicateJob
from trueup.store.inserting import Stored
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock

pytestmark = pytest.mark.asyncio

HOUR = timedelta(hours=1)


async def put(desk: Desk, **fields: Any) -> Stored:
    return await desk.store.enqueue.one(draft(unique_key="u", **fields))


async def test_a_second_job_with_the_key_is_not_stored_and_the_first_is_returned(desk: Desk) -> None:
    first = await put(desk, args='{"n": 1}')
    assert first.created
    assert await put(desk, args='{"n": 2}') == Stored(first.job_id, created=False)
    assert (await desk.row(first.job_id))["args"] == {"n": 1}


async def test_the_key_belongs_to_its_kind(desk: Desk) -> None:
    assert (await put(desk, kind="send")).created
    assert (await put(desk, kind="fetch")).created


async def test_the_key_is_taken_while_the_job_runs_and_free_when_it_has_finished(desk: Desk, store: Store) -> None:
    job = await desk.running(unique_key="u")
    assert not (await put(desk)).created
    await store.jobs.complete(job.holder, [job], [None])
    assert (await put(desk)).created


async def test_a_hundred_enqueues_at_once_give_one_row(desk: Desk) -> None:
    stored = await asyncio.gather(*(put(desk) for _ in range(100)))
    assert sum(each.created for each in stored) == 1
    assert len({each.job_id for each in stored}) == 1
    assert await desk.scalar("select count(*) from trueup.jobs") == 1


@pytest.mark.parametrize("running", [False, True])
async def test_raise_names_the_job_that_is_there(desk: Desk, running: bool) -> None:
    there = (await desk.running(unique_key="u")).id if running else await desk.put(unique_key="u")
    with pytest.raises(DuplicateJob) as refused:
        await put(desk, on_conflict="raise")
    assert (refused.value.job_id, refused.value.kind, refused.value.unique_key) == (there, "send", "u")
    assert refused.value.state == ("running" if running else "queued")


async def test_replace_puts_the_new_wish_in_the_place_of_the_queued_job(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    first = await put(desk, args='{"n": 1}', priority=1)
    clock.advance(seconds=5)
    wish = {"args": '{"n": 2}', "priority": 3, "queue": "mail", "delay": HOUR, "max_attempts": 9}
    assert await put(desk, on_conflict="replace", **wish) == Stored(first.job_id, created=False)
    row = await desk.row(first.job_id)
    assert (row["args"], row["priority"], row["queue"], row["lane"]) == ({"n": 2}, 3, "mail", "mail")
    assert (row["max_attempts"], row["run_at"], row["enqueued_at"]) == (9, clock.now() + HOUR, clock.now())
    rank = await desk.scalar("select rank from trueup.jobs")
    assert rank == clock.now() + HOUR - 3 * store.statements.aging


async def test_replace_forgets_what_the_replaced_job_went_through(desk: Desk, store: Store) -> None:
    job = await desk.running(unique_key="u")
    await store.jobs.progress(job, 50, "half")
    await store.jobs.request_stop([job.id])
    await store.jobs.release(job.holder, [job], ["default"], [""])
    await put(desk, on_conflict="replace")
    row = await desk.row(job.id)
    assert (row["attempt"], row["errors"], row["progress"], row["cancel_requested_at"]) == (0, [], None, None)
    assert row["term"] == job.term


async def test_a_running_job_cannot_be_replaced(desk: Desk) -> None:
    job = await desk.running(unique_key="u", args='{"n": 1}')
    with pytest.raises(DuplicateJob, match="a running job with unique key 'u' exists"):
        await put(desk, on_conflict="replace", args='{"n": 2}')
    assert (await desk.row(job.id))["args"] == {"n": 1}


async def test_replace_stores_the_job_when_there_is_none(desk: Desk) -> None:
    assert (await put(desk, on_conflict="replace")).created


async def test_within_its_window_the_key_stays_taken_after_its_job_has_finished(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    first = await put(desk, unique_for=HOUR)
    (job,) = await desk.claim(await desk.worker())
    await store.jobs.complete(job.holder, [job], [None])
    clock.advance(minutes=59)
    assert await put(desk, unique_for=HOUR) == Stored(first.job_id, created=False)
    with pytest.raises(DuplicateJob, match="a done job"):
        await put(desk, unique_for=HOUR, on_conflict="raise")
    with pytest.raises(DuplicateJob, match="a done job"):
        await put(desk, unique_for=HOUR, on_conflict="replace")
    clock.advance(minutes=1)
    assert (await put(desk, unique_for=HOUR)).created


async def test_within_its_window_a_queued_job_can_be_replaced(desk: Desk) -> None:
    first = await put(desk, unique_for=HOUR)
    again = await put(desk, unique_for=HOUR, on_conflict="replace", args='{"n": 2}')
    assert again == Stored(first.job_id, created=False)
    assert (await desk.row(first.job_id))["args"] == {"n": 2}


async def test_after_its_window_a_live_job_still_holds_the_key(desk: Desk, clock: ManualClock) -> None:
    first = await put(desk, unique_for=HOUR)
    clock.advance(hours=2)
    assert await put(desk, unique_for=HOUR) == Stored(first.job_id, created=False)


async def test_a_job_that_is_kept_takes_no_window_for_the_one_that_was_not_stored(desk: Desk, store: Store) -> None:
    first = await desk.running(unique_key="u")
    for _ in range(2):
        assert await put(desk, unique_for=HOUR) == Stored(first.id, created=False)
    await store.jobs.complete(first.holder, [first], [None])
    assert (await put(desk, unique_for=HOUR)).created


async def test_a_duplicate_that_the_caller_catches_leaves_no_window_taken(desk: Desk, store: Store) -> None:
    there = await desk.running(unique_key="u")
    async with store.pool.transaction() as connection:
        wish = draft(unique_key="u", unique_for=HOUR, on_conflict="raise")
        with pytest.raises(DuplicateJob):
            await store.enqueue.one(wish, connection)
    assert await desk.scalar("select count(*) from trueup.unique_windows") == 0
    assert await put(desk, unique_for=HOUR) == Stored(there.id, created=False)


async def test_a_job_that_replaced_another_holds_the_key_for_its_own_window(
    desk: Desk, store: Store, clock: ManualClock
) -> None:
    first = await put(desk)
    assert not (await put(desk, unique_for=HOUR, on_conflict="replace")).created
    (job,) = await desk.claim(await desk.worker())
    await store.jobs.complete(job.holder, [job], [None])
    assert await put(desk, unique_for=HOUR) == Stored(first.job_id, created=False)


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
@pytest.mark.parametrize("on_conflict", ["keep", "replace"])
async def test_twenty_enqueues_with_a_window_at_once_give_one_row(
    desk: Desk, database_url: str, isolation: str, on_conflict: str
) -> None:
    isolate(database_url, isolation)
    fields = {"unique_for": HOUR, "on_conflict": on_conflict}
    stored = await asyncio.gather(*(put(desk, **fields) for _ in range(20)))
    one_sync = partial(desk.store.enqueue.one_sync, draft(unique_key="u", **fields))
    stored += await asyncio.gather(*(asyncio.to_thread(one_sync) for _ in range(10)))
    assert sum(each.created for each in stored) == 1
    assert len({each.job_id for each in stored}) == 1


def isolate(url: str, level: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        database = sql.Identifier(connection.info.dbname)
        connection.execute(
            sql.SQL("alter database {} set default_transaction_isolation = {}").format(database, sql.Literal(level))
        )


async def test_a_key_that_is_free_of_characters_postgresql_refuses_is_kept_as_it_is(desk: Desk) -> None:
    key = "Ünïcode 🐎 \\ ' \" \n\t {} %s"
    job_id = await desk.put(unique_key=key)
    assert (await desk.row(job_id))["unique_key"] == key
    assert (await desk.row(job_id))["run_at"] == NOON
