"""A lock on a table is nobody's failure: rows whose outcomes cannot be written meanwhile spend no attempt, and are not handled again."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from tests.work.rows.field import Field
from tests.work.rows.test_poison import MODES, mode_of
from trueup import App, Context, Retry, To
from trueup.clock import elapsed
from trueup.events import RowClaimLost, RowQuarantined, RowRetried

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

LOCKED_FOR = 6.0  # seconds: several times as long as a statement waits for a lock
WITHIN = 40.0
STARTS_WITHIN = 12.0  # what is checked about the table at the start may wait for the lock twice
COLUMNS = "alter table things add owner text, add until timestamptz, add version int not null default 0"


async def works_behind_a_lock(
    app: App, live: Field, mode: str, lock: str, rows: int, *, locked_for: float = LOCKED_FOR, timeout: str = "1m"
) -> list[int]:
    """Run a worker while a user's transaction holds a lock; the rows that were handled."""
    calls: list[int] = []

    async def returns(row: Any) -> To:
        calls.append(row.id)
        return To("done")

    async def in_transaction(row: Any, *, ctx: Context) -> None:
        async with ctx.transaction(await returns(row)):
            pass

    spec, options = mode_of(mode)
    table = app.table("things", key="id", state="state", changed_at="changed_at", **spec)
    await live.put(rows)
    handler = in_transaction if mode == "ctx.transaction" else returns
    retry = Retry(max_attempts=3, first="200ms", factor=1, jitter=False)
    live.fix(handler, table=table, every="200ms", run_at_start=True, retry=retry, batch=10, timeout=timeout, **options)
    user = await psycopg.AsyncConnection.connect(app.store.url)
    try:
        await user.execute(lock)
        starting = elapsed()
        async with app.worker():
            assert elapsed() - starting < STARTS_WITHIN
            await asyncio.sleep(locked_for)
            handled = len(calls)
            await user.rollback()
            async with asyncio.timeout(WITHIN):
                while await live.states() != {"done": rows}:
                    await asyncio.sleep(0.05)
    finally:
        await user.close()
    assert not live.events.of(RowRetried)
    assert not live.events.of(RowQuarantined)
    assert handled <= 50, "handlers ran on although nothing could be written"
    return calls


@pytest.mark.matrix
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("rows", [3, 60])
@pytest.mark.parametrize("mode", MODES)
async def test_an_index_is_built_meanwhile(app: App, live: Field, mode: str, rows: int, partitioned: bool) -> None:
    """`CREATE INDEX` lets rows be locked, and keeps them from being written."""
    await live.do(COLUMNS)
    locked = "things"
    if partitioned:
        await live.do(
            "create table split (like things including defaults, primary key (id)) partition by hash (id);"
            "create table every_one partition of split for values with (modulus 1, remainder 0);"
            "drop table things; alter table split rename to things"
        )
        locked = "every_one"
    calls = await works_behind_a_lock(app, live, mode, f"lock table {locked} in share mode", rows)
    assert sorted(calls) == list(range(1, rows + 1))


async def test_a_table_is_locked_for_longer_than_a_handler_may_run(app: App, live: Field) -> None:
    """A single row that another session has locked for as long gets a failed attempt. Here it is the whole table."""
    await live.do(COLUMNS)
    calls = await works_behind_a_lock(
        app, live, "plain", "lock table things in share mode", 1, locked_for=12, timeout="3s"
    )
    assert calls == [1]


async def test_a_trigger_waits_for_another_table(app: App, live: Field) -> None:
    """An audit table is rebuilt, say. The rows that do not need it are written meanwhile."""
    await live.do(COLUMNS)
    await live.do(
        "create table audit (id int); create function note() returns trigger language plpgsql as $$ begin"
        " if old.id <= 2 then insert into audit values (old.id); end if; return new; end $$;"
        " create trigger note before update on things for each row execute function note()"
    )
    calls = await works_behind_a_lock(app, live, "plain", "lock table audit in access exclusive mode", 20)
    assert sorted(calls) == list(range(1, 21))


async def test_leases_are_kept_while_the_users_own_cannot_be_renewed(app: App, live: Field) -> None:
    """Longer than a lease lasts. What the user's own columns say passes meanwhile, so the rows are handled once more."""
    await live.do(COLUMNS)
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def handler(row: Any) -> To:
        begun.release()
        await go_on.wait()
        return To("done")

    table = app.table("things", key="id", state="state", lease_columns=("owner", "until"))
    await live.put(20)
    live.fix(handler, table=table, stale_for=None, every="200ms", run_at_start=True, lease_for="3s", concurrency=20)
    async with await psycopg.AsyncConnection.connect(app.store.url) as user, app.worker():
        for _ in range(20):
            await begun.acquire()
        await user.execute("lock table things in share mode")
        await asyncio.sleep(LOCKED_FOR)
        await user.rollback()
        go_on.set()
        async with asyncio.timeout(WITHIN):
            while await live.states() != {"done": 20}:
                await asyncio.sleep(0.05)
    assert not live.events.of(RowClaimLost)
    assert not live.events.of(RowQuarantined)
