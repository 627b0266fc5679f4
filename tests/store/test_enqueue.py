from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection, Connection
from psycopg.rows import dict_row

from tests.store.desk import Desk, draft
from trueup import App
from trueup.errors import ConfigError
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock

pytestmark = pytest.mark.asyncio

HOUR = timedelta(hours=1)


@pytest_asyncio.fixture
async def tx(database_url: str) -> AsyncIterator[AsyncConnection[Any]]:
    """A caller's connection as psycopg gives it: not in autocommit mode, no transaction begun."""
    async with await AsyncConnection.connect(database_url) as connection:
        yield connection


@pytest.fixture
def tx_sync(database_url: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(database_url) as connection:
        yield connection


async def count(desk: Desk) -> int:
    return int(await desk.scalar("select count(*) from trueup.jobs"))


async def test_a_job_is_stored_with_all_that_was_asked_for(desk: Desk, store: Store) -> None:
    job_id = await desk.put("send", queue="mail", args='{"to": "a"}', key="k", priority=4, delay=HOUR, max_attempts=7)
    row = await desk.row(job_id)
    assert (row["kind"], row["queue"], row["lane"], row["key"]) == ("send", "mail", "mail", "k")
    assert (row["args"], row["priority"], row["max_attempts"]) == ({"to": "a"}, 4, 7)
    assert (row["state"], row["attempt"], row["term"], row["holder"]) == ("queued", 0, 0, None)
    assert (row["run_at"], row["enqueued_at"]) == (NOON + HOUR, NOON)
    assert await desk.scalar("select rank from trueup.jobs") == NOON + HOUR - 4 * store.statements.aging


async def test_the_databases_clock_decides_when_nobody_else_does(app: App, desk: Desk) -> None:
    @app.job
    async def send() -> None: ...

    before = await desk.scalar("select now()")
    job = await send.enqueue()
    row = await desk.row(job)
    assert before <= row["enqueued_at"] == row["run_at"] <= await desk.scalar("select now()")


async def test_a_job_is_there_if_and_only_if_the_callers_transaction_commits(
    desk: Desk, store: Store, tx: AsyncConnection[Any]
) -> None:
    await store.enqueue.one(draft(), tx)
    assert await count(desk) == 0, "not before the commit"
    await tx.rollback()
    assert await count(desk) == 0
    await store.enqueue.one(draft(), tx)
    await tx.commit()
    assert await count(desk) == 1


async def test_a_job_is_there_if_and_only_if_the_callers_sync_transaction_commits(
    desk: Desk, store: Store, tx_sync: Connection[Any]
) -> None:
    store.enqueue.one_sync(draft(), tx_sync)
    assert await count(desk) == 0
    tx_sync.rollback()
    assert await count(desk) == 0
    store.enqueue.one_sync(draft(), tx_sync)
    tx_sync.commit()
    assert await count(desk) == 1


@pytest.mark.parametrize("size", [2, 600])
async def test_a_batch_is_there_if_and_only_if_the_callers_transaction_commits(
    desk: Desk, store: Store, tx: AsyncConnection[Any], size: int
) -> None:
    for end, expected in ((tx.rollback, 0), (tx.commit, size)):
        await store.enqueue.many(draft(), iter([draft()] * size), tx)
        assert await count(desk) == 0, "not before the commit"
        await end()
        assert await count(desk) == expected


@pytest.mark.parametrize("size", [2, 600])
async def test_a_batch_is_there_if_and_only_if_the_callers_sync_transaction_commits(
    desk: Desk, store: Store, tx_sync: Connection[Any], size: int
) -> None:
    for end, expected in ((tx_sync.rollback, 0), (tx_sync.commit, size)):
        store.enqueue.many_sync(draft(), iter([draft()] * size), tx_sync)
        assert await count(desk) == 0, "not before the commit"
        end()
        assert await count(desk) == expected


async def test_a_job_with_a_window_is_there_if_and_only_if_the_callers_transaction_commits(
    desk: Desk, store: Store, tx: AsyncConnection[Any]
) -> None:
    wish = draft(unique_key="u", unique_for=HOUR)
    await store.enqueue.one(wish, tx)
    await tx.rollback()
    assert await count(desk) == 0
    assert await desk.scalar("select count(*) from trueup.unique_windows") == 0
    assert (await store.enqueue.one(wish)).created


async def test_a_transaction_block_of_an_autocommit_connection_is_a_transaction_too(
    desk: Desk, store: Store, tx: AsyncConnection[Any]
) -> None:
    await tx.set_autocommit(True)
    with pytest.raises(ZeroDivisionError):
        async with tx.transaction():
            await store.enqueue.one(draft(), tx)
            raise ZeroDivisionError
    assert await count(desk) == 0
    async with tx.transaction():
        await store.enqueue.one(draft(), tx)
    assert await count(desk) == 1


async def test_an_autocommit_connection_without_a_transaction_is_refused(
    desk: Desk, store: Store, tx: AsyncConnection[Any], tx_sync: Connection[Any]
) -> None:
    await tx.set_autocommit(True)
    tx_sync.autocommit = True
    with pytest.raises(ConfigError, match=r"in autocommit mode and no transaction is open; use it inside `with conn"):
        await store.enqueue.one(draft(), tx)
    with pytest.raises(ConfigError, match="in autocommit mode"):
        store.enqueue.one_sync(draft(), tx_sync)
    with pytest.raises(ConfigError, match="in autocommit mode"):
        await store.enqueue.many(draft(), iter([draft()]), tx)
    assert await count(desk) == 0


@pytest.mark.parametrize("size", [2, 600])
async def test_the_rows_that_a_callers_connection_makes_may_be_of_any_kind(
    desk: Desk, store: Store, tx: AsyncConnection[Any], tx_sync: Connection[Any], size: int
) -> None:
    tx.row_factory = tx_sync.row_factory = dict_row
    wish = draft(unique_key="u", unique_for=HOUR)
    first = await store.enqueue.one(wish, tx)
    assert (await store.enqueue.many(draft(), iter([draft()] * size), tx)).created == size
    await tx.commit()
    assert store.enqueue.one_sync(wish, tx_sync).job_id == first.job_id
    assert store.enqueue.many_sync(draft(), iter([draft()] * size), tx_sync).created == size
    tx_sync.commit()
    assert await count(desk) == 2 * size + 1


async def test_a_connection_of_the_wrong_kind_is_refused_with_a_hint(
    store: Store, tx: AsyncConnection[Any], tx_sync: Connection[Any]
) -> None:
    wrong: Any = tx_sync
    with pytest.raises(ConfigError, match="AsyncConnection here, not Connection; use enqueue_sync"):
        await store.enqueue.one(draft(), wrong)
    wrong = tx
    with pytest.raises(ConfigError, match="Connection here, not AsyncConnection; use `await …enqueue`"):
        store.enqueue.one_sync(draft(), wrong)
    wrong = "postgresql://x"
    with pytest.raises(ConfigError, match=r"not str$"):
        await store.enqueue.one(draft(), wrong)


async def test_the_users_way_through_using_reaches_the_transaction(
    still: App, desk: Desk, tx: AsyncConnection[Any]
) -> None:
    @still.job
    async def send(to: str) -> None: ...

    handle = await send.using(tx=tx, delay="5m").enqueue("a")
    await tx.rollback()
    assert await desk.store.views.job(handle) is None


async def test_a_job_enqueued_without_an_event_loop_is_stored_the_same(desk: Desk, store: Store) -> None:
    stored = store.enqueue.one_sync(draft(unique_key="u", unique_for=HOUR))
    assert stored.created
    assert not store.enqueue.one_sync(draft(unique_key="u", unique_for=HOUR)).created
    assert (await desk.row(stored.job_id))["run_at"] == NOON


async def test_listeners_are_told_the_lane_and_the_moment(desk: Desk, store: Store, database_url: str) -> None:
    async with await AsyncConnection.connect(database_url, autocommit=True) as notify_connection:
        await notify_connection.execute("listen trueup_trueup")
        await desk.put(queue="mail", delay=HOUR)
        await desk.put_many(700, queue="bulk")
        heard = [note.payload async for note in notify_connection.notifies(timeout=10, stop_after=2)]
    assert [payload.split()[0] for payload in heard] == ["mail", "bulk"]
    assert [float(payload.split()[1]) for payload in heard] == [3600, 0], "seconds from now"


async def test_time_stands_still_for_a_manual_clock(desk: Desk, clock: ManualClock) -> None:
    clock.advance(days=400)
    assert (await desk.row(await desk.put()))["run_at"] == clock.now()
