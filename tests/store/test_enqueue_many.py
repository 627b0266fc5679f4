from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.store.desk import Desk, draft
from trueup import App
from trueup.errors import ConfigError, DatabaseUnavailable, DuplicateJob, InvalidArguments
from trueup.jobs.handle import Enqueued
from trueup.store import inserting
from trueup.store.inserting import ONE_STATEMENT, StoredMany
from trueup.store.store import Store
from trueup.testing.clock import NOON

pytestmark = pytest.mark.asyncio

SIZES = pytest.mark.parametrize("size", [1, ONE_STATEMENT, ONE_STATEMENT + 1, 3 * ONE_STATEMENT])

COUNTING = """
create table statements (n int not null);
create function count_statement() returns trigger language plpgsql as $$
begin insert into statements values (1); return null; end $$;
create trigger count_statements after insert on trueup.jobs for each statement execute function count_statement();
"""

# Peak memory of a process that enqueues so many jobs with a kilobyte of arguments each.
FEED = """
import asyncio, resource, sys
from trueup import App

app = App(sys.argv[1])

@app.job
async def send(text: str) -> None: ...

async def main():
    await send.enqueue_many((str(n).zfill(1000),) for n in range(int(sys.argv[2])))
    await app.close()

asyncio.run(main())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


async def count(desk: Desk) -> int:
    return int(await desk.scalar("select count(*) from trueup.jobs"))


@SIZES
async def test_every_job_of_a_batch_is_stored_as_a_single_one_would_be(desk: Desk, store: Store, size: int) -> None:
    wish = draft(queue="mail", priority=2, delay=timedelta(hours=1), max_attempts=7)
    drafts = [wish._replace(args=f'{{"n": {n}}}', key=f"key {n}") for n in range(size)]
    assert await store.enqueue.many(wish, iter(drafts)) == StoredMany(size, 0)
    single = await desk.put(
        queue="mail", priority=2, delay=timedelta(hours=1), max_attempts=7, args='{"n": 0}', key="key 0"
    )
    columns = "(to_jsonb(j) - '{id, args, key}'::text[])"
    assert await desk.scalar(f"select count(distinct {columns}) from trueup.jobs as j") == 1
    assert (
        await desk.scalar("select count(distinct args) from trueup.jobs where key = 'key ' || (args ->> 'n')") == size
    )
    assert await count(desk) == size + 1
    assert (await desk.row(single))["run_at"] == NOON + timedelta(hours=1)


@SIZES
async def test_a_batch_without_an_event_loop_is_the_same(desk: Desk, store: Store, size: int) -> None:
    assert store.enqueue.many_sync(draft(), iter([draft()] * size)) == StoredMany(size, 0)
    assert await count(desk) == size


@SIZES
async def test_a_batch_is_one_statement_whatever_its_size(desk: Desk, store: Store, size: int) -> None:
    async with store.pool.use() as connection:
        await connection.execute(COUNTING)
    await store.enqueue.many(draft(), iter([draft()] * size))
    assert await desk.scalar("select count(*) from statements") == 1


async def test_text_that_copy_would_misread_comes_back_as_it_was(still: App, desk: Desk) -> None:
    @still.job(fair_by="tenant")
    async def send(tenant: str, text: str) -> None: ...

    odd = ["\\N", "\\.", "a\tb\nc\rd", "\\t", '"', "'", "\\\\", "{}", "%s", "🐎", "\x7f", "\u2028", ""]
    calls = [(text, text) for text in odd]
    filler = [("x", "x")] * ONE_STATEMENT
    await send.enqueue_many([*calls, *filler])
    async with desk.store.pool.use() as connection:
        rows = await (await connection.execute("select key, args from trueup.jobs order by id limit 13")).fetchall()
    assert rows == [(text, {"tenant": text, "text": text}) for text in odd]


@pytest.mark.parametrize("bad", [3, ONE_STATEMENT + 100])
async def test_a_bad_item_anywhere_leaves_nothing_and_is_named(still: App, desk: Desk, bad: int) -> None:
    @still.job
    async def send(n: int) -> None: ...

    def calls() -> Iterator[tuple[Any, ...]]:
        for n in range(2 * ONE_STATEMENT):
            yield ("x",) if n == bad else (n,)

    with pytest.raises(InvalidArguments, match=f"item {bad}: send: n: "):
        await send.enqueue_many(calls())
    assert await count(desk) == 0
    with pytest.raises(InvalidArguments, match=f"item {bad}: "):
        send.enqueue_many_sync(calls())
    assert await count(desk) == 0


async def test_an_iterator_that_raises_halfway_leaves_nothing(still: App, desk: Desk) -> None:
    @still.job
    async def send(n: int) -> None: ...

    def calls() -> Iterator[tuple[int]]:
        for n in range(2 * ONE_STATEMENT):
            yield (n,)
        raise OSError("the file ended")

    with pytest.raises(OSError, match="the file ended"):
        await send.enqueue_many(calls())
    assert await count(desk) == 0


async def test_an_empty_batch_stores_nothing(still: App, desk: Desk) -> None:
    @still.job
    async def send(n: int) -> None: ...

    assert await send.enqueue_many([]) == send.enqueue_many_sync([]) == Enqueued(0)
    assert await count(desk) == 0


@pytest.mark.parametrize("size", [10, 2 * ONE_STATEMENT])
async def test_unique_jobs_of_a_batch_are_created_or_kept(still: App, desk: Desk, size: int) -> None:
    @still.job(unique=lambda n: f"n {n}")
    async def send(n: int) -> None: ...

    await send.enqueue(3)
    assert await send.enqueue_many((n % size,) for n in range(size + 5)) == Enqueued(created=size - 1, kept=6)
    assert await count(desk) == size


REFUSED_AT_FIRST = """
create sequence asked;
create function refuse() returns trigger language plpgsql as $$
begin
  if nextval('public.asked') <= 2 then raise 'once more' using errcode = '40001'; end if;
  return null;
end $$;
create trigger refuse after insert on trueup.jobs for each statement execute function refuse();
"""


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize("given", [list, iter], ids=["a list", "an iterator"])
@pytest.mark.parametrize("unique", [False, True], ids=["copied", "with unique keys"])
async def test_a_long_batch_is_repeated_if_it_can_be_read_again(
    still: App, desk: Desk, monkeypatch: pytest.MonkeyPatch, unique: bool, given: Any, sync: bool
) -> None:
    monkeypatch.setattr("trueup.store.enqueue.MAX_BYTES", 100_000)
    async with desk.store.pool.use() as connection:
        await connection.execute(REFUSED_AT_FIRST)

    @still.job(unique=(lambda n: f"n {n}") if unique else None)
    async def send(n: int) -> None: ...

    async def enqueue() -> None:
        calls = given([(n,) for n in range(3 * ONE_STATEMENT)])
        assert (send.enqueue_many_sync(calls) if sync else await send.enqueue_many(calls)).created == 3 * ONE_STATEMENT

    if given is list:
        await enqueue()
        assert await desk.scalar("select count(distinct args) from trueup.jobs") == 3 * ONE_STATEMENT
    else:
        with pytest.raises(DatabaseUnavailable, match="once more"):
            await enqueue()
        assert await count(desk) == 0


@pytest.mark.parametrize("position", [0, 7, ONE_STATEMENT + 7])
async def test_a_batch_that_raises_on_conflict_leaves_nothing(still: App, desk: Desk, position: int) -> None:
    @still.job(unique=lambda n: f"n {n}", on_conflict="raise")
    async def send(n: int) -> None: ...

    there = await send.enqueue(position)
    with pytest.raises(DuplicateJob) as refused:
        await send.enqueue_many((n,) for n in range(2 * ONE_STATEMENT))
    assert (refused.value.unique_key, refused.value.job_id) == (f"n {position}", there)
    assert await count(desk) == 1


async def test_one_key_twice_in_a_batch_that_raises_leaves_nothing(still: App, desk: Desk) -> None:
    @still.job(unique=lambda n: f"n {n}", on_conflict="raise")
    async def send(n: int) -> None: ...

    with pytest.raises(DuplicateJob, match="'n 1'"):
        await send.enqueue_many([(1,), (2,), (1,)])
    assert await count(desk) == 0


async def test_keys_for_some_items_of_a_long_batch_only_are_refused_or_hold(still: App, desk: Desk) -> None:
    @still.job(unique=lambda n: "the one" if n == 2 * ONE_STATEMENT else None)
    async def send(n: int) -> None: ...

    with pytest.raises(ConfigError, match="unique= must give a key for every item of a batch, or for none"):
        await send.enqueue_many((n,) for n in range(3 * ONE_STATEMENT))
    assert await count(desk) == 0


@pytest.mark.slow
async def test_a_hundred_thousand_jobs_take_no_more_memory_than_a_thousand(database_url: str, desk: Desk) -> None:
    def peak(jobs: int) -> int:
        command = [sys.executable, "-c", FEED, database_url, str(jobs)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=90).stdout)

    small, large = peak(1_000), peak(100_000)
    assert await count(desk) == 101_000
    # All of them together would be 100 MB.
    assert large < small + 40, f"{small} MB for 1,000, {large} MB for 100,000 of a kilobyte each"


@pytest.mark.parametrize("unique", [None, lambda n, text: f"n {n}"], ids=["plain", "unique"])
@pytest.mark.parametrize("door", ["async", "sync", "tx"])
@pytest.mark.parametrize("given", [list, iter])
@pytest.mark.parametrize("bytes_of_each", [10, 900, 20_000])
async def test_every_job_is_stored_once_whatever_its_size(
    still: App, desk: Desk, monkeypatch: pytest.MonkeyPatch, given: Any, door: str, unique: Any, bytes_of_each: int
) -> None:
    """Bounds are made small: the jobs below are more than is kept, more than a statement, and more than is ordered."""
    monkeypatch.setattr("trueup.store.enqueue.MAX_BYTES", 100_000)
    monkeypatch.setattr(inserting, "STATEMENT_BYTES", 50_000)
    monkeypatch.setattr(inserting, "IN_ORDER_BYTES", 200_000)

    @still.job(unique=unique)
    async def send(n: int, text: str) -> None: ...

    size = ONE_STATEMENT + 100 if bytes_of_each < 10_000 else 20
    calls = [(n, "x" * bytes_of_each) for n in range(size)]
    if door == "sync":
        stored = send.enqueue_many_sync(given(calls))
    elif door == "async":
        stored = await send.enqueue_many(given(calls))
    else:
        async with still.transaction() as tx:
            stored = await send.using(tx=tx).enqueue_many(given(calls))
    assert stored.created == size
    assert await desk.scalar("select count(distinct args ->> 'n') from trueup.jobs") == size


async def test_a_statement_is_bounded_in_bytes(still: App, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inserting, "STATEMENT_BYTES", 50_000)
    async with desk.store.pool.use() as connection:
        await connection.execute(COUNTING)

    @still.job(unique=lambda n, text: f"n {n}")
    async def send(n: int, text: str) -> None: ...

    await send.enqueue_many([(n, "x" * 20_000) for n in range(12)])
    assert await desk.scalar("select count(*) from statements") == 4
