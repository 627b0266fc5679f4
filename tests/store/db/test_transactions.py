"""Many transactions held open at once, whose holders enqueue, read and open further ones."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest

from tests.support.watching import Watched
from trueup import App, Context, injected
from trueup.events import JobsEnqueued

pytestmark = pytest.mark.asyncio

HOLDERS = 8
SIZE = 2
WITHIN = 15  # seconds; waiting for one another ends after 30


def app_with_few_connections(url: str) -> App:
    return App(url, pool_size=SIZE)


async def test_handlers_that_enqueue_inside_their_transaction_do_not_wait_for_each_other(database_url: str) -> None:
    app = app_with_few_connections(database_url)
    begun = asyncio.Event()

    @app.job
    async def child(n: int) -> None: ...

    @app.job
    async def parent(n: int, ctx: Context = injected) -> int:
        async with ctx.transaction(result=n):
            begun.set()
            await child.enqueue(n)
            await ctx.progress(50)
        return n

    async with app:
        handles = [await parent.enqueue(n) for n in range(HOLDERS)]
        async with app.worker(concurrency=HOLDERS), asyncio.timeout(WITHIN):
            assert [await handle.result() for handle in handles] == list(range(HOLDERS))


async def test_sync_handlers_that_enqueue_in_their_transaction_do_not_block_one_another(
    database_url: str,
) -> None:
    app = app_with_few_connections(database_url)

    @app.job
    async def child(n: int) -> None: ...

    @app.job
    def parent(n: int, ctx: Context = injected) -> int:
        with ctx.transaction(result=n):
            child.enqueue_sync(n)
        return n

    async with app:
        handles = [await parent.enqueue(n) for n in range(HOLDERS)]
        async with app.worker(concurrency=HOLDERS), asyncio.timeout(WITHIN):
            assert [await handle.result() for handle in handles] == list(range(HOLDERS))


async def test_callers_that_hold_every_connection_can_still_open_another_transaction(database_url: str) -> None:
    app = app_with_few_connections(database_url)
    barrier = asyncio.Barrier(SIZE)

    @app.job
    async def child(n: int) -> None: ...

    async def caller(n: int) -> int:
        async with app.transaction() as outer:
            await barrier.wait()  # all connections are held now
            await child.enqueue(n)
            async with app.transaction() as inner:
                row = await (await inner.execute("select %s::int", [n])).fetchone()
                assert inner is not outer
        return int((row or (0,))[0])

    async with app, asyncio.timeout(WITHIN):
        assert await asyncio.gather(*(caller(n) for n in range(SIZE))) == list(range(SIZE))


async def test_a_transaction_after_another_uses_the_pool_again(database_url: str) -> None:
    app = app_with_few_connections(database_url)
    async with app:
        async with app.transaction() as first:
            pid = first.info.backend_pid
        async with app.transaction() as second:
            assert second.info.backend_pid == pid


async def test_threads_that_hold_every_connection_can_still_open_another_transaction(database_url: str) -> None:
    app = app_with_few_connections(database_url)
    barrier = threading.Barrier(SIZE, timeout=WITHIN)

    async with app:
        transactions = app.store.transactions

        def caller(n: int) -> int:
            with transactions.begin_sync():
                barrier.wait()
                with transactions.begin_sync() as inner:
                    return int((inner.execute("select %s::int", [n]).fetchone() or (0,))[0])

        with ThreadPoolExecutor(SIZE) as threads:
            assert list(threads.map(caller, range(SIZE))) == list(range(SIZE))


# -- what is said about jobs that were enqueued in a transaction ----------------------------------------------------------------


@pytest.mark.parametrize("ends", ["committed", "raised", "rolled back", "in a failed commit"])
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_only_jobs_that_were_committed_are_reported(database_url: str, ends: str, sync: bool) -> None:
    app = App(database_url)
    watched = Watched(app)

    @app.job
    async def child(n: int) -> None: ...

    def end() -> None:
        assert watched.of(JobsEnqueued) == []
        if ends == "raised":
            raise LookupError
        if ends == "rolled back":
            raise psycopg.Rollback

    deferred = "create table one (n int unique deferrable initially deferred)"
    twice = "insert into one values (1), (1)"
    async with app:
        await app.store.pool.fetch(deferred.encode())
        with suppress(LookupError, psycopg.errors.UniqueViolation):
            if sync:
                with app.store.transactions.begin_sync() as plain:
                    child.using(tx=plain).enqueue_sync(1)
                    child.using(tx=plain).enqueue_many_sync([(2,), (3,)])
                    if ends == "in a failed commit":
                        plain.execute(twice)
                    end()
            else:
                async with app.transaction() as tx:
                    await child.using(tx=tx).enqueue(1)
                    await child.using(tx=tx).enqueue_many([(2,), (3,)])
                    if ends == "in a failed commit":
                        await tx.execute(twice)
                    end()
        assert sum(event.count for event in watched.of(JobsEnqueued)) == (3 if ends == "committed" else 0)
        assert await app.store.pool.fetch(b"select count(*) from trueup.jobs") == [(3 if ends == "committed" else 0,)]


SETTINGS = {
    "app.tenant": "acme",
    "client_encoding": "LATIN1",
    "datestyle": "SQL, DMY",
    "default_transaction_read_only": "on",
    "role": "pg_monitor",
    "search_path": "nowhere",
    "session_authorization": "pg_monitor",
    "statement_timeout": "1234",
    "timezone": "Pacific/Chatham",
}
SET = "select set_config(%s, %s, false)"
SHOWN = "select coalesce(current_setting(%s, true), '')"


@pytest.mark.parametrize("setting", SETTINGS)
async def test_what_a_transaction_sets_for_its_session_is_gone_in_the_next(database_url: str, setting: str) -> None:
    """A tenant above all: the policies of its rows must not see another's."""
    app = App(database_url, pool_size=1)
    async with app:
        async with app.transaction() as tx:
            before = await (await tx.execute(SHOWN, [setting])).fetchone()
            await tx.execute(SET, [setting, SETTINGS[setting]])
        async with app.transaction() as tx:
            after = await (await tx.execute(SHOWN, [setting])).fetchone()
    assert after == before


@pytest.mark.parametrize("setting", SETTINGS)
async def test_what_a_sync_transaction_sets_for_its_session_is_gone_in_the_next(
    database_url: str, setting: str
) -> None:
    def in_a_thread() -> tuple[object, object]:
        begin = app.store.transactions.begin_sync
        with begin() as tx:
            before = tx.execute(SHOWN, [setting]).fetchone()
            tx.execute(SET, [setting, SETTINGS[setting]])
        with begin() as tx:
            after = tx.execute(SHOWN, [setting]).fetchone()
        return before, after

    app = App(database_url, pool_size=1)
    async with app:
        before, after = await asyncio.to_thread(in_a_thread)
    assert after == before
