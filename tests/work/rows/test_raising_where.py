"""A row whose evaluation raises (`where=`, a column that cannot be read) costs the others nothing, and is quarantined after its attempts.

An expression that raises for every row is broken itself: that is one error of the sweep, and no row is blamed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.work.rows.field import NAME, Field
from tests.work.rows.test_poison import ATTEMPTS, GOOD, MODES, POISON, Ward, trigger
from trueup import App, Retry, To
from trueup.events import RowQuarantined, RowRetried, SweepFailed
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

PLAIN = trigger("return new;")
RAISE = """
create function picky(n bigint) returns boolean language plpgsql as $$ begin
  if n = 13 then raise exception 'not this one' using errcode = '{state}', detail = 'secret'; end if; return true;
end $$;
"""
# What makes the row raise: statements before the rows are there, `where=`, and what PostgreSQL says.
RAISES: dict[str, tuple[str, str, str]] = {
    "division": (PLAIN, "10 / (id - 13) is not null", "division by zero (SQLSTATE 22012)"),
    "cast": (
        PLAIN,
        "coalesce((doc ->> 'n')::int, 0) >= 0",
        'invalid input syntax for type integer: "…" (SQLSTATE 22P02)',
    ),
    "cheap": (PLAIN, "1 / (id - 13) < 2", "division by zero (SQLSTATE 22012)"),
    **{
        state: (PLAIN + RAISE.replace("{state}", state), "picky(id)", f"not this one (SQLSTATE {state})")
        for state in ("P0001", "23514", "42P01", "0A000", "54000", "XX000", "40001", "57P01", "25006")
    },
}
REPEATED = ("40001", "57P01", "25006")  # believed a few times, in sweeps that they end


@pytest.fixture
def ward(field: Field, clock: ManualClock, mode: str) -> Ward:
    return Ward(field, mode, clock)


async def sweep(field: Field, name: str = NAME) -> Any:
    """As a worker does it, after errors that ask for a repetition."""
    for _ in range(4):
        try:
            return await field.sweep(name)
        except psycopg.Error as error:
            if error.sqlstate not in REPEATED:
                raise
    raise AssertionError("sweeps still fail")


@pytest.mark.matrix
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("poison", RAISES)
async def test_a_row_that_raises(ward: Ward, poison: str) -> None:
    ddl, where, said = RAISES[poison]
    await ward.prepare(ddl, 'update things set doc = \'{"n": "x"}\' where id = 13')
    ward.fix(where=where)
    async with asyncio.timeout(30):
        counts = await sweep(ward.field)
        assert counts.settled == counts.claimed == GOOD + 1
        assert (counts.changed, counts.retry) == (GOOD, 1), "the others wait for the row that raises"
        for _ in range(10):
            if ward.field.events.of(RowQuarantined):
                break
            ward.clock.advance(seconds=5)
            await sweep(ward.field)
        (event,) = ward.field.events.of(RowQuarantined)
        assert (event.key, event.attempt) == (str(POISON), ATTEMPTS)
        assert said in event.error
        assert "secret" not in event.error
        assert POISON not in ward.calls
        # It stays where it is, and later rows are done beside it.
        await ward.field.do("update things set state = 'new', n = 0, changed_at = '2020-01-01' where id = 7")
        assert (await sweep(ward.field)).changed == 1
        assert await ward.field.value("select count(*) from things where state = 'done'") == GOOD
        (listed,) = await ward.field.app.reconcilers.quarantined(NAME)
        assert listed["key"] == str(POISON)
        assert await ward.field.app.reconcilers.waiting(NAME) == 0
    assert ward.field.events.of(SweepFailed) == []


@pytest.mark.slow
async def test_a_purge_passes_over_a_row_that_takes_too_long(live: Field) -> None:
    await live.put(25)
    app = App(live.app.store.url, statement_timeout="1100ms")
    impatient = Field(app)
    try:
        await app.open()
        where = "case when id = 13 then pg_sleep(9) is null else true end"
        table = app.table("things", key="id", state="state", changed_at="changed_at", where=where)
        table.move("new", to="old", stale_for="10m", name="age", every="1h", retry=Retry(max_attempts=1))
        await impatient.manual.begin()
        async with asyncio.timeout(60):
            counts = await impatient.sweep("age")
        assert (counts.changed, counts.quarantined) == (GOOD, 1)
        assert "statement timeout" in impatient.events.of(RowQuarantined)[0].error
    finally:
        await impatient.close()
        await app.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["plain"])
async def test_a_row_that_takes_too_long(live: Field, mode: str) -> None:
    """It is found alone, as one that raises."""
    await live.do("drop table things, log")
    await live.do(PLAIN)
    await live.do(
        "insert into things (id, state, changed_at) select n, 'new', '2020-01-01' from generate_series(1, 25) as n"
    )
    app = App(live.app.store.url, statement_timeout="1100ms")
    impatient = Field(app)
    try:
        await app.open()
        table = app.table(
            "things",
            key="id",
            state="state",
            changed_at="changed_at",
            where="case when id = 13 then pg_sleep(9) is null else true end",
        )
        retry = Retry(max_attempts=ATTEMPTS, first="100ms", jitter=False)
        impatient.fix(lambda row: To("done"), table=table, retry=retry)
        await impatient.manual.begin()
        async with asyncio.timeout(60):
            counts = await impatient.sweep()
            assert (counts.changed, counts.retry) == (GOOD, 1)
            await asyncio.sleep(0.2)
            assert (await impatient.sweep()).quarantined == 1
            (event,) = impatient.events.of(RowQuarantined)
            assert (event.key, event.attempt) == (str(POISON), ATTEMPTS)
            assert "evaluate where=" in event.error
            assert "statement timeout" in event.error
            await live.do("insert into things (id, state, changed_at) values (30, 'new', '2020-01-01')")
            begun = time.monotonic()
            assert (await impatient.sweep()).changed == 1
            assert time.monotonic() - begun < 1.0, "it is evaluated again, although it is in quarantine"
    finally:
        await impatient.close()
        await app.close()


# -- who is to blame ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["plain", "both"])
@pytest.mark.parametrize("rows", [1, GOOD + 1, 2_500])
async def test_an_expression_that_raises_for_every_row_is_an_error_of_the_sweep(ward: Ward, rows: int) -> None:
    await ward.prepare(PLAIN)
    await ward.field.do("delete from things")
    await put(ward, 1, rows)
    ward.fix(where="1 / (n - n) is null")
    for _ in range(3):
        with pytest.raises(psycopg.errors.DivisionByZero):
            await ward.field.sweep()
        ward.clock.advance(seconds=60)
    assert await ward.field.value("select count(*) from trueup.rows") == 0
    assert ward.field.events.of(RowRetried) == []


async def put(ward: Ward, first: int, last: int, n: int = 0) -> None:
    await ward.field.do(
        "insert into things (id, state, changed_at, n) select i, 'new', %s::timestamptz - interval '1 h' + i * interval '1 ms', %s"
        " from generate_series(%s::int, %s::int) as i",
        (ward.clock.now(), n, first, last),
    )


@pytest.mark.parametrize("mode", ["plain"])
async def test_many_rows_that_raise_in_front_of_others(ward: Ward) -> None:
    await ward.prepare(PLAIN)
    await ward.field.do("delete from things")
    await put(ward, 1, 1_200, 1)
    await put(ward, 1_201, 1_210)
    ward.fix(where="1 / (1 - n) = 1")
    counts = await ward.field.sweep()
    assert (counts.changed, counts.retry) == (10, 1_200)
    assert ward.field.events.of(SweepFailed) == []


@pytest.mark.parametrize("mode", ["plain", "claimed_as"])
async def test_one_that_raises_far_behind_rows_that_are_not_chosen(ward: Ward) -> None:
    await ward.prepare(PLAIN)
    await ward.field.do("delete from things")
    await put(ward, 1, 2_100, 5)
    await put(ward, 2_101, 2_101, 1)
    await put(ward, 2_102, 2_110)
    ward.fix(where="1 / (1 - n) = 1")
    counts = await ward.field.sweep()
    assert (counts.changed, counts.retry) == (9, 1)
    ward.clock.advance(seconds=5)
    assert (await ward.field.sweep()).quarantined == 1
    await put(ward, 3_000, 3_001)
    assert (await ward.field.sweep()).changed == 2
    assert await ward.field.value("select count(*) from things where state = 'new'") == 2_101


@pytest.mark.parametrize("mode", ["plain", "both"])
async def test_a_row_that_is_mended_is_handled_and_statements_are_unguarded_again(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ward.prepare(PLAIN, "update things set n = 1 where id = 13")
    ward.fix(where="1 / (1 - n) = 1")
    await ward.field.sweep()
    rows = ward.field.sweeper().rows
    assert rows.guarded
    await ward.field.do("update things set n = 0 where id = 13")
    ward.clock.advance(seconds=5)
    assert (await ward.field.sweep()).changed == 1
    assert ward.calls.count(POISON) == 1
    monkeypatch.setattr(rows, "_guarded_until", 0.0)
    await put(ward, 100, 101)
    assert (await ward.field.sweep()).changed == 2
    assert not rows.guarded
    assert await ward.field.value("select count(*) from trueup.rows") == 0


@pytest.mark.parametrize("mode", ["plain", "both", "row_lock"])
async def test_a_row_that_raises_once_it_was_claimed(ward: Ward) -> None:
    """Its outcome is a conflict at most, and it raises when it is looked at again."""
    await ward.prepare(PLAIN)

    def spoilt(row: Any) -> Any:
        with psycopg.connect(ward.field.app.store.url, autocommit=True) as user:
            user.execute("set lock_timeout = '100ms'")
            with contextlib.suppress(psycopg.errors.LockNotAvailable):
                user.execute(
                    "update things set doc = '{\"n\": \"x\"}', version = version + 1, changed_at = changed_at + interval '1 s' where id = 13"
                )
        raise ValueError("boom")

    ward.fix(spoilt, where="coalesce((doc ->> 'n')::int, 0) >= 0")
    counts = await ward.field.sweep()
    assert counts.settled == counts.claimed == GOOD + 1
    assert counts.changed == GOOD
    for n in range(3):
        ward.clock.advance(seconds=5)
        await put(ward, 100 + n, 100 + n)  # which can be evaluated
        await ward.field.sweep()
    (event,) = ward.field.events.of(RowQuarantined)
    assert (event.key, event.attempt) == (str(POISON), ATTEMPTS)


@pytest.mark.parametrize("mode", MODES)
async def test_a_column_that_cannot_be_read(ward: Ward) -> None:
    ddl = "create type mood as enum ('fine', 'bad');" + PLAIN.replace(
        "doc jsonb", "doc jsonb, mood mood default 'fine'"
    )
    await ward.prepare(ddl, "update things set mood = 'bad' where id = 13")
    await ward.field.do(
        "set allow_system_table_mods = on; delete from pg_enum where enumlabel = 'bad'; reset allow_system_table_mods"
    )
    ward.fix()
    counts = await ward.field.sweep()
    assert (counts.changed, counts.retry) == (GOOD, 1)
    ward.clock.advance(seconds=5)
    await ward.field.sweep()
    (event,) = ward.field.events.of(RowQuarantined)
    assert "cannot read a column for this row: invalid internal value for enum" in event.error


@pytest.mark.parametrize("mode", ["plain", "claimed_as", "both"])
@pytest.mark.parametrize("started", [False, True])
async def test_rows_of_a_dead_process_of_which_one_raises_are_taken_over(ward: Ward, started: bool) -> None:
    """Rows that were held when their process died: the one that raises keeps none of the others."""
    await ward.prepare(PLAIN)
    ward.fix(where="1 / (1 - n) = 1", lease_for="30s", concurrency=GOOD + 1)
    sweeper = await ward.field.gather()
    batch = await sweeper.rows.claims.fresh(uuid4(), GOOD + 1, None)
    assert len(batch.rows) == GOOD + 1
    await ward.field.do("update trueup.rows set started = %s", (started,))
    await ward.field.do("update things set n = 1 where id = 13")
    ward.clock.advance(seconds=31)
    async with asyncio.timeout(30):
        counts = await ward.field.sweep()
    assert (counts.changed, counts.retry) == (GOOD, 1)
    known = await ward.field.known(POISON)
    assert known is not None
    assert (known["state"], known["attempt"], known["holder"]) == ("resting", 1, None)
    # Mended, it is handled like the others, and leaves the working state.
    await ward.field.do("update things set n = 0 where id = 13")
    ward.clock.advance(seconds=5)
    assert (await ward.field.sweep()).changed == 1
    assert await ward.field.value("select count(*) from things where state = 'done'") == GOOD + 1


@pytest.mark.parametrize("mode", ["plain"])
async def test_records_of_rows_that_left_are_forgotten_beside_one_that_raises(ward: Ward) -> None:
    await ward.prepare(PLAIN, "update things set n = 1 where id = 13")
    ward.fix(where="1 / (1 - n) = 1 and note is null")
    await ward.field.sweep()
    ward.clock.advance(seconds=5)
    assert (await ward.field.sweep()).quarantined == 1
    # A row that was quarantined for another reason, and one that rests: both leave by `where=`.
    await put(ward, 50, 51)
    await ward.field.do(
        "insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at) values"
        " ('fix', '50', 'quarantined', 'infinity', 1, 2, now(), now()), ('fix', '51', 'resting', %s, 2, 1, now(), now())",
        (ward.clock.now(),),
    )
    await ward.field.do("update things set note = 'x' where id in (50, 51)")
    ward.clock.advance(seconds=5)
    await ward.field.sweep()
    assert [row["key"] for row in await ward.field.ask("select key from trueup.rows")] == [str(POISON)]


# -- moves and deletions -----------------------------------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("verb", ["delete", "move"])
@pytest.mark.parametrize("fraction", [None, 0.99])
@pytest.mark.parametrize("states", [("new",), ("other", "new")])
@pytest.mark.parametrize("poison", RAISES)
async def test_a_purge_passes_over_a_row_that_raises(
    field: Field, clock: ManualClock, verb: str, poison: str, fraction: float | None, states: tuple[str, ...]
) -> None:
    ward = Ward(field, "plain", clock)
    ddl, where, said = RAISES[poison]
    await ward.prepare(ddl, 'update things set doc = \'{"n": "x"}\' where id = 13')
    await put(ward, 500, 600)
    await field.do("update things set state = 'kept' where id between 520 and 600")
    if len(states) > 1:  # alone in the state that is looked at first
        await field.do("update things set state = 'other' where id = 13")
    table = field.app.table("things", key="id", state="state", changed_at="changed_at", where=where)
    options: dict[str, Any] = {"stale_for": "10m", "name": "age", "every": "1h", "batch": 7, "max_fraction": fraction}
    options["retry"] = Retry(max_attempts=ATTEMPTS, first="1s", factor=1, jitter=False)
    if verb == "move":
        table.move(*states, to="old", **options)
    else:
        table.delete(*states, **options)
    for _ in range(4):
        await sweep(field, "age")
        assert await field.ask("select id from things where state in ('new', 'other')") == [{"id": POISON}]
        if field.events.of(RowQuarantined):
            break
        clock.advance(seconds=5)
    (event,) = field.events.of(RowQuarantined)
    assert (event.key, event.attempt) == (str(POISON), ATTEMPTS)
    assert said in event.error
    await put(ward, 700, 720)
    await sweep(field, "age")
    assert await field.ask("select id from things where state in ('new', 'other')") == [{"id": POISON}]
    assert await field.app.reconcilers.waiting("age") == 0


async def test_a_purge_whose_expression_raises_for_every_row_blames_none(field: Field, clock: ManualClock) -> None:
    ward = Ward(field, "plain", clock)
    await ward.prepare(PLAIN)
    table = field.app.table("things", key="id", state="state", changed_at="changed_at", where="1 / (n - n) is null")
    table.delete("new", stale_for="10m", name="age", every="1h", batch=7)
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero):
            await field.sweep("age")
    assert await field.value("select count(*) from things") == GOOD + 1
    assert await field.value("select count(*) from trueup.rows") == 0
