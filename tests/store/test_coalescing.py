"""Calls that enqueue at the same time share statements; to each caller it looks as if it were alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from tests.store.desk import Desk, draft
from tests.support.proxy import Proxy
from tests.work.test_poison import refusing
from trueup import App
from trueup.errors import DatabaseUnavailable
from trueup.jobs.job import Draft
from trueup.store import coalescing
from trueup.store.coalescing import Coalescing
from trueup.store.db import pool
from trueup.store.store import Store

pytestmark = pytest.mark.asyncio

REFUSED = '{"text": "\\u0000"}'  # PostgreSQL has no jsonb for it


class Counted:
    """What stores drafts, with the number of them in each statement. The first statement waits until it is let go."""

    def __init__(self, store: Store) -> None:
        self._new = store.enqueue._new
        self.sizes: list[int] = []
        self.gate = asyncio.Event()
        self.at_gate = asyncio.Event()

    async def __call__(self, drafts: Sequence[Draft], connection: AsyncConnection[Any]) -> list[int]:
        self.sizes.append(len(drafts))
        if len(self.sizes) == coalescing.MAX_ALONE:
            self.at_gate.set()
        await self.gate.wait()
        return await self._new(drafts, connection)


@pytest.fixture
def counted(store: Store) -> Counted:
    return Counted(store)


@pytest.fixture
def shared(store: Store, counted: Counted) -> Coalescing:
    return Coalescing(store.pool, counted)


def numbered(number: int, args: str | None = None) -> Draft:
    return draft(args=args or f'{{"number": {number}}}', key=str(number))


async def gathered(shared: Coalescing, counted: Counted, drafts: Sequence[Draft]) -> list[asyncio.Task[int]]:
    """All of them called; the first ones are under way, the others wait."""
    calls = [asyncio.create_task(shared.one(each)) for each in drafts]
    await counted.at_gate.wait()
    return calls


async def test_concurrent_calls_share_a_statement_and_each_gets_the_id_of_its_own_job(
    shared: Coalescing, counted: Counted, desk: Desk
) -> None:
    calls = await gathered(shared, counted, [numbered(number) for number in range(100)])
    counted.gate.set()
    ids = await asyncio.gather(*calls)
    for number, job_id in enumerate(ids):
        assert (await desk.row(job_id))["args"] == {"number": number}
    assert counted.sizes == [1, 1, 98]


async def test_a_caller_alone_sends_its_own_statement(shared: Coalescing, counted: Counted) -> None:
    counted.gate.set()
    for number in range(5):
        await shared.one(numbered(number))
    assert counted.sizes == [1] * 5


@pytest.mark.parametrize("limit", [("MAX_JOBS", 7), ("MAX_BYTES", 70)])
async def test_a_statement_is_bounded(
    shared: Coalescing, counted: Counted, desk: Desk, monkeypatch: pytest.MonkeyPatch, limit: tuple[str, int]
) -> None:
    monkeypatch.setattr(coalescing, *limit)
    calls = await gathered(shared, counted, [numbered(number) for number in range(10, 32)])
    counted.gate.set()
    assert len(set(await asyncio.gather(*calls))) == 22
    assert 1 < max(counted.sizes) <= 7
    assert await desk.scalar("select count(*) from trueup.jobs") == 22


async def test_one_that_is_larger_than_a_statement_may_be_goes_alone(
    shared: Coalescing, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalescing, "MAX_BYTES", 50)
    large = f'{{"text": "{"x" * 100}"}}'
    calls = await gathered(shared, counted, [numbered(number, large if number == 4 else None) for number in range(8)])
    counted.gate.set()
    await asyncio.gather(*calls)
    assert counted.sizes == [1, 1, 2, 1, 3]


@pytest.mark.parametrize("refused", [{5}, {2}, {19}, {3, 4, 11}, set(range(2, 20))])
async def test_what_postgresql_refuses_fails_for_its_own_caller_only(
    shared: Coalescing, counted: Counted, desk: Desk, refused: set[int]
) -> None:
    drafts = [numbered(number, REFUSED if number in refused else None) for number in range(20)]
    calls = await gathered(shared, counted, drafts)
    counted.gate.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {number for number, answer in enumerate(answers) if isinstance(answer, psycopg.DataError)} == refused
    assert await desk.scalar("select count(*) from trueup.jobs") == 20 - len(refused)


@pytest.mark.parametrize("sqlstate", ["P0001", "23505", "40001", "40P01", "53100", "55P03", "57014", "XX000"])
async def test_whatever_one_job_is_refused_with_the_others_are_stored(
    app: App, desk: Desk, database_url: str, sqlstate: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(refusing(sqlstate, at="insert on trueup.jobs").encode())

    @app.job
    async def good(n: int) -> None: ...

    @app.job
    async def culprit() -> None: ...

    async with app:
        before, after = [good.enqueue(n) for n in range(30)], [good.enqueue(n) for n in range(30)]
        culprits = [culprit.enqueue() for _ in range(3)]
        answers = await asyncio.gather(*before, *culprits, *after, return_exceptions=True)
    assert [n for n, each in enumerate(answers) if isinstance(each, BaseException)] == [30, 31, 32]
    assert all(isinstance(each, psycopg.Error | DatabaseUnavailable) for each in answers[30:33])
    assert await desk.scalar("select count(*) from trueup.jobs") == 60


@pytest.mark.parametrize("cancelled", [0, 1, 2, 7])
async def test_a_cancelled_call_takes_no_other_with_it(
    shared: Coalescing, counted: Counted, desk: Desk, cancelled: int
) -> None:
    calls = await gathered(shared, counted, [numbered(number) for number in range(10)])
    calls[cancelled].cancel()
    await asyncio.sleep(0)
    counted.gate.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, BaseException) for answer in answers] == [number == cancelled for number in range(10)]
    assert isinstance(answers[cancelled], asyncio.CancelledError)
    assert await desk.scalar("select count(*) from trueup.jobs where key = %s", str(cancelled)) == 0
    assert await desk.scalar("select count(*) from trueup.jobs") == 9


async def test_a_lost_connection_is_told_to_all_that_were_on_it_and_the_next_call_works(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy.before(database_url) as proxy:
        async with App(proxy.url(database_url)) as app:
            store = await app.open()
            counted = Counted(store)
            shared = Coalescing(store.pool, counted)
            calls = await gathered(shared, counted, [numbered(number) for number in range(10)])
            monkeypatch.setattr(store.pool, "_wait", 0.0)  # nobody waits for the server to come back
            proxy.cut()
            counted.gate.set()
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(each, psycopg.OperationalError | DatabaseUnavailable) for each in answers), answers
            proxy.heal()
            monkeypatch.undo()
            assert await shared.one(numbered(1)) > 0


async def test_without_a_server_everybody_waits_as_long_as_a_caller_alone_would(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "SLICE", 0.3)
    with Proxy.before(database_url) as proxy:
        async with App(proxy.url(database_url), pool_timeout="1s") as app:
            store = await app.open()
            await store.enqueue.one(draft())
            proxy.cut()
            loop = asyncio.get_running_loop()

            async def call(delay: float) -> float:
                await asyncio.sleep(delay)
                begun = loop.time()
                with pytest.raises(DatabaseUnavailable):
                    await store.enqueue.one(draft())
                return loop.time() - begun

            waited = await asyncio.gather(*(call(number % 10 / 10) for number in range(40)))
            assert min(waited) > 0.5, "no caller fails for the sake of one that came earlier"
            assert max(waited) < 10, "and none waits for the turns of all the others"
            proxy.heal()
            monkeypatch.setattr(store.pool, "_wait", 15.0)  # psycopg's pool pauses for a second after a try that failed
            assert (await store.enqueue.one(draft())).job_id > 0


async def test_a_second_event_loop_begins_anew(database_url: str) -> None:
    await asyncio.to_thread(three_loops, database_url)


def three_loops(database_url: str) -> None:
    app = App(database_url)

    @app.job
    async def send(number: int) -> None: ...

    async def some() -> int:
        handles = await asyncio.gather(*(send.enqueue(number) for number in range(20)))
        await app.close()
        return len({handle.id for handle in handles})

    async def abandoned() -> None:
        calls = [asyncio.create_task(send.enqueue(number)) for number in range(20)]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await app.close()

    asyncio.run(abandoned())
    assert asyncio.run(some()) == asyncio.run(some()) == 20


async def test_jobs_with_a_unique_key_or_in_a_transaction_of_the_callers_are_stored_alone(app: App, desk: Desk) -> None:
    @app.job
    async def send(number: int) -> None: ...

    async def in_transaction(number: int) -> None:
        async with app.transaction() as tx:
            await send.using(tx=tx).enqueue(number)
            if number % 2:
                raise KeyError(number)

    plain = [send.enqueue(number) for number in range(10)]
    unique = [send.using(unique="one").enqueue(number) for number in range(10)]
    answers = await asyncio.gather(*plain, *unique, *(in_transaction(n) for n in range(4)), return_exceptions=True)
    assert len({each.id for each in answers[10:20]}) == 1  # type: ignore[union-attr]
    assert await desk.scalar("select count(*) from trueup.jobs") == 10 + 1 + 2
