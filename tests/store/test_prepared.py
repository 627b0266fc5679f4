"""Statements in one message with others: prepared only where that is allowed, and usable after whatever went wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection, errors
from psycopg.pq import TransactionStatus

from trueup import App, Row, To
from trueup.store import prepared
from trueup.store.line import fetch_steered
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

STEER = b"select set_config('statement_timeout', '5s', true)"
ADD = b"-- adds 100%%\nselect %(one)s::int + %(other)s::int, %(one)s::int %% 2, '%%'::text;"


@pytest_asyncio.fixture(params=[None, 5], ids=["unprepared", "prepared"])
async def connection(empty_database_url: str, request: pytest.FixtureRequest) -> AsyncIterator[AsyncConnection[Any]]:
    async with await AsyncConnection.connect(
        empty_database_url, autocommit=True, prepare_threshold=request.param
    ) as connection:
        yield connection


async def kept(connection: AsyncConnection[Any]) -> int:
    row = await (await connection.execute("select count(*) from pg_prepared_statements where from_sql")).fetchone()
    assert row is not None
    return int(row[0])


async def test_values_arrive_and_a_statement_is_prepared_once(connection: AsyncConnection[Any]) -> None:
    for n in range(10):
        rows = await fetch_steered(connection, STEER, ADD, {"one": n, "other": 2, "unused": "x"})
        assert rows == [(n + 2, n % 2, "%")]
    assert await kept(connection) == (0 if connection.prepare_threshold is None else 1)
    assert connection.info.transaction_status == TransactionStatus.IDLE


async def test_values_of_every_kind_that_statements_take(connection: AsyncConnection[Any]) -> None:
    query = (
        b"select %(id)s::uuid, %(at)s::timestamptz, %(texts)s::text[], %(numbers)s::float8[], %(none)s::timestamptz, "
        b"%(yes)s::bool, %(text)s::text, %(raw)s::bytea"
    )
    params = {
        "id": UUID(int=7),
        "at": datetime(2026, 1, 2, 3, tzinfo=UTC),
        "texts": ["it's", 'a "b"', "c,d", "%s", "\\", None],
        "numbers": [1.5, -2.0],
        "none": None,
        "yes": True,
        "text": "'; drop table x; --",
        "raw": b"\x00\xff",
    }
    for _ in range(2):
        assert await fetch_steered(connection, STEER, query, params) == [tuple(params.values())]


async def test_an_error_ends_its_transaction_and_the_next_call_works(connection: AsyncConnection[Any]) -> None:
    divide = b"select 1 / %(by)s::int"
    for by in (0, 1, 0, 1):
        if by:
            assert await fetch_steered(connection, STEER, divide, {"by": by}) == [(1,)]
        else:
            with pytest.raises(errors.DivisionByZero):
                await fetch_steered(connection, STEER, divide, {"by": by})
        assert connection.info.transaction_status == TransactionStatus.IDLE


async def test_a_statement_that_cannot_be_prepared_is_told_each_time(connection: AsyncConnection[Any]) -> None:
    for _ in range(2):
        with pytest.raises(errors.UndefinedTable):
            await fetch_steered(connection, STEER, b"select %(n)s::int from missing", {"n": 1})
    assert await fetch_steered(connection, STEER, ADD, {"one": 1, "other": 2}) == [(3, 1, "%")]


async def test_what_follows_a_failed_statement_in_its_message_does_not_happen(connection: AsyncConnection[Any]) -> None:
    await connection.execute("create table t (n int)")
    with pytest.raises(errors.DivisionByZero):
        await prepared.send(
            connection, b"BEGIN; insert into t values (1);", b"select 1 / %(by)s::int", b"COMMIT", {"by": 0}
        )
    assert connection.info.transaction_status == TransactionStatus.INERROR
    await prepared.roll_back(connection)
    count = await (await connection.execute("select count(*) from t")).fetchone()
    assert count == (0,)


@pytest.mark.parametrize("claim", ["lease", "row_lock"])
async def test_reconcilers_and_jobs_work_with_prepared_statements(database_url: str, claim: Any) -> None:
    with psycopg.connect(database_url, autocommit=True) as user:
        user.execute("create table things (id int primary key, state text not null, note text)")
        user.execute("insert into things select n, 'open', 'it''s 100%' from generate_series(1, 40) as n")
    app = App(database_url, prepare=True)
    done: list[int] = []

    @app.job
    async def after(thing_id: int) -> None:
        done.append(thing_id)

    @app.table("things", key="id", state="state").reconcile("open", every="1h", batch=7, claim=claim, name="fix")
    async def fix(thing: Row) -> To:
        then = [after.call(thing.id)] if thing.id % 2 else []
        return To("done", then=then, note=f"{thing.note} of {thing.id}")

    worker = ManualWorker(app)
    await worker.begin()
    assert (await worker.sweep("fix")).changed == 40
    await worker.run_pending()
    await worker.end()
    await app.close()
    assert sorted(done) == list(range(1, 41, 2))
    with psycopg.connect(database_url) as user:
        rows = user.execute("select id, state, note from things order by id").fetchall()
    assert rows == [(n, "done", f"it's 100% of {n}") for n in range(1, 41)]
