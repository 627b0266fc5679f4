from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from tests.store.desk import Desk, draft
from tests.support.interleave import Side, interleave
from trueup.errors import DuplicateJob
from trueup.jobs.job import ClaimedJob, OnConflict
from trueup.store.inserting import Stored, StoredMany
from trueup.store.store import Store

pytestmark = pytest.mark.asyncio


def putting(
    args: str, on_conflict: OnConflict = "keep", window: timedelta | None = None
) -> Callable[[Side], Awaitable[Stored]]:
    async def put(side: Side) -> Stored:
        return await side.enqueue(draft(unique_key="u", args=args, on_conflict=on_conflict, unique_for=window))

    return put


@pytest.mark.parametrize("window", [None, timedelta(hours=1)])
async def test_an_enqueue_that_waited_for_the_same_keys_commit_returns_that_job(
    desk: Desk, store: Store, window: timedelta | None
) -> None:
    first, second = await interleave(store, hold=putting("1", window=window), then=putting("2", window=window))
    assert first.created
    assert second.value == Stored(first.job_id, created=False)
    assert (await desk.row(first.job_id))["args"] == 1


@pytest.mark.parametrize("window", [None, timedelta(hours=1)])
async def test_an_enqueue_that_waited_for_a_rollback_is_stored(
    desk: Desk, store: Store, window: timedelta | None
) -> None:
    first, second = await interleave(
        store, hold=putting("1", window=window), then=putting("2", window=window), commit=False
    )
    assert second.value.created
    assert second.value.job_id != first.job_id
    assert await desk.scalar("select count(*) from trueup.jobs") == 1


async def test_an_enqueue_that_raises_on_conflict_waits_until_it_knows(store: Store) -> None:
    first, second = await interleave(store, hold=putting("1"), then=putting("2", "raise"))
    assert isinstance(second.error, DuplicateJob)
    assert second.error.job_id == first.job_id


async def test_an_enqueue_that_replaces_waits_for_the_commit_and_replaces(desk: Desk, store: Store) -> None:
    first, second = await interleave(store, hold=putting("1"), then=putting("2", "replace"))
    assert second.value == Stored(first.job_id, created=False)
    assert (await desk.row(first.job_id))["args"] == 2


async def test_a_key_freed_by_a_finish_in_flight_is_taken_anew_once_it_has_committed(desk: Desk, store: Store) -> None:
    job = await desk.running(unique_key="u")

    async def complete(side: Side) -> set[int]:
        return await side.jobs.complete(job.holder, [job], [None])

    _, second = await interleave(store, hold=complete, then=putting("2"))
    assert second.value.created


@pytest.mark.parametrize("count", [2, 40, 1_200])
async def test_batches_with_the_same_keys_in_another_order_do_not_wait_for_each_other(
    store: Store, desk: Desk, count: int
) -> None:
    keys = [f"key {n:04}" for n in range(count)]

    async def put(order: list[str]) -> StoredMany:
        template = draft()
        drafts = (template._replace(args="{}", unique_key=key) for key in order)
        async with store.pool.transaction() as connection:
            return await store.enqueue.many(template, drafts, connection)

    stored = await asyncio.gather(*(put(keys if n % 2 else keys[::-1]) for n in range(6)))
    assert sorted(each.created for each in stored) == [0] * 5 + [count]
    assert await desk.scalar("select count(*) from trueup.jobs") == count


@pytest.mark.parametrize("window", [None, timedelta(hours=1)])
async def test_a_job_claimed_during_its_replacement_is_named_and_nothing_is_lost(
    desk: Desk, store: Store, window: timedelta | None
) -> None:
    """Whoever replaces either has replaced it, or is told that it runs."""
    await store.enqueue.one(draft(unique_key="u", args="1", unique_for=window))
    holder = await desk.worker()

    async def claim(side: Side) -> list[ClaimedJob]:
        return await side.jobs.claim(holder, "default", 1, ["send"])

    claimed, replaced = await interleave(store, hold=claim, then=putting("2", "replace", window))
    assert [job.args for job in claimed] == ["1"]
    assert isinstance(replaced.error, DuplicateJob)
