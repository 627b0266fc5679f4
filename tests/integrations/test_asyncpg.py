"""A caller's asyncpg connection for `tx=`: the job is there if and only if the caller's row is."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from tests.store.desk import Desk
from trueup import App, Enqueued
from trueup.errors import ConfigError, DuplicateJob, InvalidArguments, SchemaMismatch
from trueup.store.inserting import ONE_STATEMENT
from trueup.store.store import Store
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio


@pytest.fixture
def desk(store: Store) -> Desk:
    return Desk(store)


@pytest_asyncio.fixture
async def conn(database_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database_url)
    await connection.execute("create table orders (id bigint primary key)")
    yield connection
    await connection.close(timeout=10)


async def both(desk: Desk) -> tuple[int, int]:
    """How many orders there are for everybody, and how many jobs."""
    orders = await desk.scalar("select count(*) from orders")
    return int(orders), int(await desk.scalar("select count(*) from trueup.jobs"))


@pytest.mark.parametrize("size", [None, 3, 2 * ONE_STATEMENT + 1])
async def test_jobs_are_there_if_and_only_if_the_row_is(still: App, desk: Desk, conn: Any, size: int | None) -> None:
    @still.job
    async def send(n: int) -> None: ...

    async def order() -> None:
        await conn.execute("insert into orders values (1)")
        if size is None:
            await send.using(tx=conn).enqueue(1)
        else:
            assert await send.using(tx=conn).enqueue_many((n,) for n in range(size)) == Enqueued(size, 0)
        assert await both(desk) == (0, 0), "not before the commit"

    with pytest.raises(ZeroDivisionError):
        async with conn.transaction():
            await order()
            raise ZeroDivisionError
    assert await both(desk) == (0, 0)
    async with conn.transaction():
        await order()
    assert await both(desk) == (1, size or 1)


async def test_a_job_is_stored_as_with_the_drivers_own_connection(still: App, desk: Desk, conn: Any) -> None:
    @still.job(queue="mail", fair_by="to")
    async def send(to: str, text: str = "") -> None: ...

    wish = {"delay": "5m", "priority": 3, "max_attempts": 7}
    odd = "%s %% $1 {} \\ ' \" \n ä 🐎"
    ids = [await send.using(**wish).enqueue(odd, odd)]  # type: ignore[arg-type]
    async with conn.transaction():
        ids.append(await send.using(tx=conn, **wish).enqueue(odd, odd))  # type: ignore[arg-type]
    ours, theirs = [await desk.row(job_id) for job_id in ids]
    assert {**theirs, "id": ours["id"]} == ours
    assert theirs["args"] == {"to": odd, "text": odd}
    at = datetime(2031, 1, 1, tzinfo=UTC)
    async with conn.transaction():
        there = await send.using(tx=conn, run_at=at).enqueue("a")
        await send.using(tx=conn, run_at=at).enqueue_many([("b",)])
    assert (await desk.row(there))["run_at"] == at
    assert await desk.scalar("select count(*) from trueup.jobs where run_at = %s", at) == 2


@pytest.mark.parametrize("size", [1, 2 * ONE_STATEMENT])
async def test_arguments_stay_as_they_are_where_the_caller_encodes_json_in_another_way(
    still: App, desk: Desk, conn: Any, size: int
) -> None:
    @still.job(unique=lambda n, text: f"n {n}", on_conflict="replace")
    async def send(n: int, text: str = "") -> None: ...

    @still.job
    async def bulk(n: int) -> None: ...

    for kind in ("json", "jsonb"):
        await conn.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    async with conn.transaction():
        first = await send.using(tx=conn).enqueue(1)
        there = await send.using(tx=conn).enqueue(3)
        assert await send.using(tx=conn).enqueue(3, "again") == there
        await bulk.using(tx=conn).enqueue_many([(2,)] * size)
    assert (await desk.row(first))["args"] == {"n": 1}
    assert (await desk.row(there))["args"] == {"n": 3, "text": "again"}
    assert await desk.scalar("select count(*) from trueup.jobs where args = '{\"n\": 2}'") == size


async def test_a_block_inside_a_block_takes_its_jobs_along_when_it_is_rolled_back(
    still: App, desk: Desk, conn: Any
) -> None:
    @still.job
    async def send(n: int) -> None: ...

    async with conn.transaction():
        await conn.execute("insert into orders values (1)")
        await send.using(tx=conn).enqueue(1)
        with pytest.raises(ZeroDivisionError):
            async with conn.transaction():
                await conn.execute("insert into orders values (2)")
                await send.using(tx=conn).enqueue(2)
                await send.using(tx=conn).enqueue_many([(2,), (2,)])
                raise ZeroDivisionError
        async with conn.transaction():
            await conn.execute("insert into orders values (3)")
            await send.using(tx=conn).enqueue(3)
    assert await both(desk) == (2, 2)
    assert await desk.scalar("select array_agg((args ->> 'n')::int order by id) from trueup.jobs") == [1, 3]


async def test_a_transaction_that_has_failed_is_refused_with_what_to_do(still: App, desk: Desk, conn: Any) -> None:
    @still.job
    async def send(n: int) -> None: ...

    with pytest.raises(asyncpg.UndefinedTableError):
        async with still.lease("ledger") as lease, conn.transaction():
            with pytest.raises(asyncpg.UndefinedTableError):
                await conn.execute("select * from nothing")
            for call in (
                lambda: send.using(tx=conn).enqueue(1),
                lambda: send.using(tx=conn).enqueue_many([(1,)]),
                lambda: send.using(tx=conn).enqueue_many((n,) for n in range(ONE_STATEMENT + 1)),
                lambda: still.now(tx=conn),
                lambda: lease.fence(conn),
            ):
                with pytest.raises(ConfigError, match="has already failed; roll it back first") as refused:
                    await call()
                assert isinstance(refused.value.__cause__, asyncpg.InFailedSQLTransactionError)
            raise asyncpg.UndefinedTableError
    assert await both(desk) == (0, 0)


async def test_a_connection_without_a_transaction_is_refused(still: App, desk: Desk, conn: Any) -> None:
    @still.job
    async def send(n: int) -> None: ...

    with pytest.raises(ConfigError, match=r"no transaction is open on this asyncpg connection; use it inside `async"):
        await send.using(tx=conn).enqueue(1)
    with pytest.raises(ConfigError, match="no transaction is open"):
        await send.using(tx=conn).enqueue_many([(1,)])
    with pytest.raises(ConfigError, match="not asyncpg's Connection; use `await …enqueue` with an async connection"):
        send.using(tx=conn).enqueue_sync(1)
    with pytest.raises(ConfigError, match="not asyncpg's Transaction; of asyncpg's it takes the connection"):
        await send.using(tx=conn.transaction()).enqueue(1)
    assert await both(desk) == (0, 0)


async def test_connections_of_a_pool_and_transactions_begun_by_hand_will_do(
    still: App, desk: Desk, conn: Any, database_url: str
) -> None:
    @still.job
    async def send(n: int) -> None: ...

    class Own(asyncpg.Connection):  # type: ignore[misc]
        pass

    async with asyncpg.create_pool(database_url, min_size=1, max_size=1, connection_class=Own) as pool:
        async with pool.acquire() as pooled, pooled.transaction():
            await send.using(tx=pooled).enqueue_many([(1,), (2,)])
        own = await asyncpg.connect(database_url, connection_class=Own)
        await own.execute("begin")
        await send.using(tx=own).enqueue(3)
        await send.using(tx=own).enqueue_many([(4,)])
        await own.execute("commit")
        await own.close(timeout=10)
    assert await both(desk) == (0, 4)


async def test_one_unique_key_has_one_job_whoever_stores_it(still: App, desk: Desk, conn: Any) -> None:
    @still.job(unique=lambda n, text: f"n {n}")
    async def send(n: int, text: str = "") -> None: ...

    first = await send.enqueue(1)
    async with conn.transaction():
        kept = await send.using(tx=conn).enqueue(1)
        assert (kept, kept.created) == (first, False)
        assert await send.using(tx=conn).enqueue_many([(1,), (2,), (2,)]) == Enqueued(created=1, kept=2)
        replaced = await send.using(tx=conn, on_conflict="replace").enqueue(1, "new")
        assert (replaced, replaced.created) == (first, False)
        with pytest.raises(DuplicateJob) as refused:
            await send.using(tx=conn, on_conflict="raise").enqueue(1)
        assert refused.value.job_id == first
        with pytest.raises(DuplicateJob):
            await send.using(tx=conn, on_conflict="raise").enqueue_many([(7,), (1,)])
        await conn.execute("insert into orders values (1)")
    assert await both(desk) == (1, 2), "nothing of the batch that was refused, and the transaction went on"
    assert (await desk.row(first))["args"] == {"n": 1, "text": "new"}


async def test_a_window_that_was_refused_or_rolled_back_is_not_taken(still: App, desk: Desk, conn: Any) -> None:
    @still.job(unique=lambda n: f"n {n}")
    async def send(n: int) -> None: ...

    hourly = timedelta(hours=1)
    await send.enqueue(1)
    async with conn.transaction():
        with pytest.raises(DuplicateJob):
            await send.using(tx=conn, unique_for=hourly, on_conflict="raise").enqueue(1)
    assert await desk.scalar("select count(*) from trueup.unique_windows") == 0
    tx = conn.transaction()
    await tx.start()
    assert (await send.using(tx=conn, unique_for=hourly).enqueue(2)).created
    assert not (await send.using(tx=conn, unique_for=hourly).enqueue(2)).created
    await tx.rollback()
    assert await desk.scalar("select count(*) from trueup.unique_windows") == 0
    assert (await send.using(unique_for=hourly).enqueue(2)).created


async def test_arguments_that_do_not_fit_leave_the_transaction_usable(still: App, desk: Desk, conn: Any) -> None:
    @still.job
    async def send(n: int) -> None: ...

    wrong: Any = "x"
    async with conn.transaction():
        with pytest.raises(InvalidArguments):
            await send.using(tx=conn).enqueue(wrong)
        with pytest.raises(InvalidArguments, match=f"item {ONE_STATEMENT + 9}: "):
            calls = [(n,) if n != ONE_STATEMENT + 9 else ("x",) for n in range(2 * ONE_STATEMENT)]
            await send.using(tx=conn).enqueue_many(calls)
        await conn.execute("insert into orders values (1)")
    assert await both(desk) == (1, 0)


async def test_many_batches_in_one_transaction_leave_no_savepoint_behind(still: App, desk: Desk, conn: Any) -> None:
    @still.job
    async def send(n: int) -> None: ...

    async with conn.transaction():
        for n in range(3):
            await send.using(tx=conn).enqueue_many([(n,)])
            with pytest.raises(InvalidArguments):
                await send.using(tx=conn).enqueue_many([("x",)])
        with pytest.raises(asyncpg.InvalidSavepointSpecificationError):
            async with conn.transaction():
                await conn.execute("release savepoint trueup")
    assert await both(desk) == (0, 3)


async def test_a_caller_who_gives_up_waiting_for_a_key_goes_on_with_the_transaction(
    still: App, desk: Desk, conn: Any, database_url: str
) -> None:
    @still.job(unique=lambda n: f"n {n}")
    async def send(n: int) -> None: ...

    waits = (
        "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')"
    )
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction(), conn.transaction():
            await send.using(tx=other).enqueue(1)
            waiting = asyncio.create_task(send.using(tx=conn).enqueue_many([(7,), (1,)]))
            async with asyncio.timeout(10):
                while not await desk.scalar(waits):
                    await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await conn.execute("insert into orders values (1)")
    finally:
        await other.close(timeout=10)
    assert await both(desk) == (1, 1), "the order, and the other's job; nothing of the batch"


async def test_listeners_hear_of_a_job_at_the_commit_and_not_before(still: App, conn: Any, database_url: str) -> None:
    @still.job(queue="mail")
    async def send(n: int) -> None: ...

    heard: list[str] = []
    both_heard = asyncio.Event()

    def hear(*note: Any) -> None:
        heard.append(note[3])
        if len(heard) == 2:
            both_heard.set()

    notify_connection = await asyncpg.connect(database_url)
    await notify_connection.add_listener("trueup_trueup", hear)
    tx = conn.transaction()
    await tx.start()
    await send.using(tx=conn, delay="1h").enqueue(1)
    await send.using(tx=conn).enqueue_many([(1,), (2,)])
    await notify_connection.fetchval("select 1")
    assert heard == []
    await tx.rollback()
    async with conn.transaction():
        await send.using(tx=conn, delay="1h").enqueue(1)
        await send.using(tx=conn).enqueue_many([(1,), (2,)])
    await asyncio.wait_for(both_heard.wait(), 10)
    assert [(lane, float(seconds)) for lane, seconds in (note.split() for note in heard)] == [
        ("mail", 3600),
        ("mail", 0),
    ]
    await notify_connection.close(timeout=10)


async def test_a_worker_does_what_was_enqueued_so(still: App, worker: ManualWorker, conn: Any) -> None:
    done: list[int] = []

    @still.job
    async def send(n: int) -> None:
        done.append(n)

    async with conn.transaction():
        await send.using(tx=conn).enqueue(42)
    await worker.run_pending()
    assert done == [42]


async def test_a_database_without_the_schema_is_explained(conn: Any, database_url: str) -> None:
    app = App(database_url, schema="elsewhere")

    @app.job
    async def send(n: int) -> None: ...

    try:
        async with conn.transaction():
            with pytest.raises(
                SchemaMismatch, match=r"no trueup schema 'elsewhere' yet \(relation .* run `trueup migr"
            ):
                await send.using(tx=conn).enqueue(1)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    finally:
        await app.close()


async def test_nobody_who_brings_no_such_connection_imports_a_driver_or_an_orm() -> None:
    seen = "import sys, trueup, trueup.app, trueup.store.store; print({'asyncpg', 'sqlalchemy'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "set()"
