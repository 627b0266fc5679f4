"""Statements in one message with others: prepared only where that is allowed, and usable after whatever went wrong."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection, errors
from psycopg.pq import TransactionStatus

from tests.support.watching import until
from trueup import App, Retry, Row, To
from trueup.store.db import message
from trueup.store.db.own_connection import fetch_steered
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

STEER = b"select set_config('statement_timeout', '5s', true)"
ADD = b"-- adds 100%%\nselect %(one)s::int + %(other)s::int, %(one)s::int %% 2, '%%'::text;"


@pytest_asyncio.fixture(params=[False, True], ids=["unprepared", "prepared"])
async def connection(empty_database_url: str, request: pytest.FixtureRequest) -> AsyncIterator[AsyncConnection[Any]]:
    async with await AsyncConnection.connect(empty_database_url, autocommit=True, prepare_threshold=None) as connection:
        if request.param:
            message.keep(connection)
        yield connection


def keeps(connection: AsyncConnection[Any]) -> bool:
    return message._peer_of(connection).kept is not None


async def kept(connection: AsyncConnection[Any]) -> int:
    row = await (await connection.execute("select count(*) from pg_prepared_statements where from_sql")).fetchone()
    assert row is not None
    return int(row[0])


async def test_values_arrive_and_a_statement_is_prepared_once(connection: AsyncConnection[Any]) -> None:
    for n in range(10):
        rows = await fetch_steered(connection, STEER, ADD, {"one": n, "other": 2, "unused": "x"})
        assert rows == [(n + 2, n % 2, "%")]
    assert await kept(connection) == int(keeps(connection))
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


ODD = ["", "NULL", "a,b", '"', "\\", "\\\\", "{}", "'", " x ", "a\nb", "ä€", "%%", "%(one)s", "\\'"]


@pytest.mark.parametrize("texts", [ODD, [*ODD, None], *([each] for each in ODD), [None], []], ids=repr)
async def test_texts_of_an_array_arrive_as_they_are(connection: AsyncConnection[Any], texts: list[str | None]) -> None:
    query = b"select %(texts)s::text[], %(other)s::text[]"
    assert await fetch_steered(connection, STEER, query, {"texts": texts, "other": ["b"]}) == [(texts, ["b"])]


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
    divide = message.Query(b"select 1 / %(by)s::int", {"by": 0})
    answers = await message.send(connection, b"BEGIN", b"insert into t values (1)", divide, b"COMMIT")
    assert (len(answers), type(answers.error)) == (2, errors.DivisionByZero)
    assert connection.info.transaction_status == TransactionStatus.INERROR
    await message.roll_back(connection)
    count = await (await connection.execute("select count(*) from t")).fetchone()
    assert count == (0,)


async def test_what_was_committed_before_a_failure_is_known_and_stays(connection: AsyncConnection[Any]) -> None:
    await connection.execute("create table t (n int)")
    add = message.Query(b"insert into t select generate_series(1, %(n)s::int) returning n", {"n": 3})
    answers = await message.send(connection, b"BEGIN", add, b"COMMIT", b"BEGIN", add, b"select 1 / 0", b"COMMIT")
    assert (len(answers), answers.count(1), answers.rows(1)) == (5, 3, [(1,), (2,), (3,)])
    with pytest.raises(errors.DivisionByZero):
        answers.check()
    await message.roll_back(connection)
    count = await (await connection.execute("select count(*) from t")).fetchone()
    assert count == (3,)


async def test_values_that_the_server_cannot_have_are_refused_as_psycopg_does(connection: AsyncConnection[Any]) -> None:
    for text, error in (("a\0b", psycopg.DataError), ("\ud800", UnicodeEncodeError)):
        with pytest.raises(error):
            await message.send(connection, message.Query(b"select %(text)s::text", {"text": text}))
        with pytest.raises(error) as refused:
            await message.send(connection, message.Query(b"select %(texts)s::text[]", {"texts": ["b", text]}))
        assert getattr(refused.value, "object", text) == text  # not the whole array
    assert connection.info.transaction_status == TransactionStatus.IDLE


@pytest.mark.parametrize("number", [0, -1, 2**62, -(2**62)])
async def test_a_negative_number_does_not_begin_a_comment(connection: AsyncConnection[Any], number: int) -> None:
    answers = await message.send(connection, message.Query(b"select 1 -%(n)s::bigint", {"n": number}))
    assert answers.check().rows(0) == [(1 - number,)]


async def test_a_connection_that_ends_in_between_is_an_error_to_try_again_after(
    connection: AsyncConnection[Any],
) -> None:
    await connection.execute("create table t (n int)")
    with pytest.raises(psycopg.OperationalError):
        answers = await message.send(
            connection, b"insert into t values (1)", b"select pg_terminate_backend(pg_backend_pid())", b"select 1"
        )
        answers.check()


async def test_a_column_of_another_type_is_an_error_once_at_most(connection: AsyncConnection[Any]) -> None:
    await connection.execute("create table t (n int)")
    await connection.execute("insert into t values (7)")
    query = b"select n from t where n > %(least)s::int"
    assert await fetch_steered(connection, STEER, query, {"least": 1}) == [(7,)]
    await connection.execute("alter table t alter n type text")
    await connection.execute("alter table t alter n type bigint using n::bigint * 1000000000000")
    if keeps(connection):
        with pytest.raises(message.StalePlan, match="prepared again"):
            await fetch_steered(connection, STEER, query, {"least": 1})
        assert connection.info.transaction_status == TransactionStatus.IDLE
    assert await fetch_steered(connection, STEER, query, {"least": 1}) == [(7_000_000_000_000,)]


async def test_statements_that_the_server_was_made_to_forget_are_prepared_anew(
    connection: AsyncConnection[Any],
) -> None:
    assert await fetch_steered(connection, STEER, ADD, {"one": 1, "other": 2}) == [(3, 1, "%")]
    await connection.execute("deallocate all")
    if keeps(connection):
        with pytest.raises(message.StalePlan, match="prepared again"):
            await fetch_steered(connection, STEER, ADD, {"one": 1, "other": 2})
    assert await fetch_steered(connection, STEER, ADD, {"one": 1, "other": 2}) == [(3, 1, "%")]


@pytest.mark.parametrize("claim", ["lease", "row_lock"])
async def test_prepared_statements_survive_a_column_of_another_type(database_url: str, claim: Any) -> None:
    app, read = App(database_url, prepare=True), set[int]()

    @app.table("things", key="id", state="state").reconcile(
        "open", every="50ms", run_at_start=True, claim=claim, retry=Retry(first="1ms"), revisit="10ms", lease_for="1s"
    )
    async def look(thing: Row) -> None:
        read.add(thing.n)

    with psycopg.connect(database_url, autocommit=True) as user:
        user.execute("create table things (id int primary key, state text not null, n int)")
        user.execute("insert into things select n, 'open', 1 from generate_series(1, 20) as n")
        async with app, app.worker():
            await until(lambda: read == {1})
            user.execute("alter table things alter n type bigint")
            user.execute("update things set n = 3000000000")
            await until(lambda: read == {1, 3_000_000_000})


async def test_statements_are_repeated_with_their_values_and_nothing_is_left_behind(
    connection: AsyncConnection[Any],
) -> None:
    await connection.execute("create table t (n int)")
    add = message.Query(b"insert into t select count(*) + %(more)s::int from t", {"more": 10})
    look = message.Query(b"select count(*), '100%%' from t", {})
    answers = await message.repeat(connection, 3, b"BEGIN", add, look, b"COMMIT")
    assert [answers.check().rows(4 * n + 2) for n in range(3)] == [[(n, "100%")] for n in (1, 2, 3)]
    assert [answers.count(4 * n + 1) for n in range(3)] == [1, 1, 1]
    assert await (await connection.execute("select n from t order by n")).fetchall() == [(10,), (11,), (12,)]
    assert await kept(connection) == 0


async def test_what_is_repeated_until_it_fails_is_known_and_nothing_is_left_behind(
    connection: AsyncConnection[Any],
) -> None:
    await connection.execute("create table t (n int)")
    add = message.Query(b"insert into t select 1 / (2 - count(*)) from t", {})
    answers = await message.repeat(connection, 5, b"BEGIN", add, b"COMMIT")
    assert (len(answers), type(answers.error)) == (7, errors.DivisionByZero)
    assert await (await connection.execute("select count(*) from t")).fetchone() == (2,)
    assert await kept(connection) == 0
    assert connection.info.transaction_status == TransactionStatus.IDLE
    answers = await message.repeat(connection, 2, message.Query(b"select from missing", {}))
    assert (len(answers), type(answers.error)) == (0, errors.UndefinedTable)


async def test_nothing_keeps_a_connection_that_is_not_used_any_more(empty_database_url: str) -> None:
    connection = await AsyncConnection.connect(empty_database_url, autocommit=True)
    await message.send(connection, b"select 1")
    gone = weakref.ref(connection)
    await connection.close()
    del connection
    gc.collect()
    assert gone() is None


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
