"""What becomes of a row by what its handler returns, raises, or does in a transaction."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Literal

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.support.watching import until
from tests.work.rows.field import NAME, Field
from tests.work.rows.test_poison import mode_of
from trueup import Again, App, Context, Delete, GiveUp, LostClaim, Retry, Row, Stay, To, Unchanged
from trueup.events import RowChanged, RowConflict, RowProposed, RowQuarantined, RowRetried, ServiceFailed
from trueup.store.db.connect import went_away
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio


def returning(outcome: Any) -> Any:
    async def handler(row: Any) -> Any:
        return outcome

    return handler


def raising(error: BaseException) -> Any:
    async def handler(row: Any) -> None:
        raise error

    return handler


# -- outcomes -------------------------------------------------------------------------------------------------------------


async def test_to_moves_the_row_sets_its_columns_and_enqueues_in_the_same_transaction(field: Field) -> None:
    @field.app.job
    async def tell(thing: int) -> None: ...

    await field.put()
    field.fix(lambda row: To("done", n=row.n + 7, note="moved", then=[tell.call(row.id)]))
    counts = await field.sweep()
    assert counts.as_dict() == {**dict.fromkeys(counts.as_dict(), 0), "claimed": 1, "changed": 1}
    thing = await field.thing()
    assert (thing["state"], thing["n"], thing["note"], thing["twice"]) == ("done", 7, "moved", 14)
    assert thing["changed_at"] == field.app.store.clock.now()
    assert await field.value("select args from trueup.jobs where kind like '%%tell'") is not None
    assert await field.known() is None
    (event,) = field.events.of(RowChanged)
    assert (event.outcome, event.state_from, event.state_to, event.attempt) == ("To", "new", "done", 1)


async def test_stay_keeps_the_state_and_refreshes_the_time_of_change(field: Field, clock: ManualClock) -> None:
    await field.put()
    field.fix(lambda row: Stay(n=row.n + 1))
    assert (await field.sweep()).changed == 1
    assert (await field.sweep()).claimed == 0
    clock.advance(minutes=11)
    assert (await field.sweep()).changed == 1
    assert ((await field.thing())["state"], (await field.thing())["n"]) == ("new", 2)


async def test_delete_deletes(field: Field) -> None:
    await field.put(2)
    field.fix(lambda row: Delete() if row.id == 1 else To("done"))
    assert (await field.sweep()).changed == 2
    assert await field.states() == {"done": 1}


@pytest.mark.parametrize("outcome", [None, Unchanged(), Unchanged])
async def test_unchanged_writes_nothing_and_is_looked_at_again_after_revisit(
    field: Field, clock: ManualClock, outcome: Any
) -> None:
    await field.put()
    before = await field.checksum()
    field.fix(returning(outcome), revisit="5m")
    assert (await field.sweep()).unchanged == 1
    clock.advance(minutes=4)
    assert (await field.sweep()).claimed == 0
    clock.advance(minutes=1)
    assert (await field.sweep()).unchanged == 1
    assert await field.checksum() == before


async def test_again_spends_no_attempt(field: Field, clock: ManualClock) -> None:
    await field.put()
    attempts: list[int] = []

    async def handler(row: Any, *, ctx: Context) -> Any:
        attempts.append(ctx.attempt)
        return Again("30s")

    field.fix(handler, retry=Retry(max_attempts=2))
    for _ in range(5):
        assert (await field.sweep()).unchanged == 1
        assert (await field.sweep()).claimed == 0
        clock.advance(seconds=30)
    assert attempts == [1] * 5


async def test_give_up_quarantines_at_once_and_a_sweep_leaves_it_alone(field: Field, clock: ManualClock) -> None:
    await field.put()
    field.fix(raising(GiveUp("no such object")))
    assert (await field.sweep()).quarantined == 1
    known = await field.known()
    assert known is not None
    assert (known["state"], known["reason"], known["attempt"]) == ("quarantined", "no such object", 1)
    clock.advance(days=400)
    assert (await field.sweep()).claimed == 0


@pytest.mark.parametrize("reason", ["\ud800", "a\0b", "\udcff\0" * 5_000_000, "postgresql://u:geheim@db/x"])
async def test_any_reason_to_give_up_quarantines_at_once(field: Field, reason: str) -> None:
    await field.put()
    field.fix(raising(GiveUp(reason)))
    assert (await field.sweep()).quarantined == 1
    known = await field.known()
    assert known is not None
    assert (known["state"], known["attempt"]) == ("quarantined", 1)
    assert 0 < len(known["reason"]) < 3000
    assert "geheim" not in repr(known)


async def test_the_exception_of_a_row_is_its_own_failure(field: Field) -> None:
    class Odd(BaseException):
        pass

    async def handler(row: Any) -> Any:
        if row.id == 1:
            raise ValueError("boom \0 \ud800")
        if row.id == 2:
            sys.exit(3)
        if row.id == 3:
            raise asyncio.CancelledError("by itself")
        if row.id == 4:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        if row.id == 5:
            return "done"
        if row.id == 6:
            raise Odd("only a process may raise this")
        if row.id == 7:
            raise ExceptionGroup("several", [ValueError("a"), KeyError("b")])
        if row.id == 8:
            raise StopAsyncIteration
        return To("done")

    await field.put(9)
    field.fix(handler, concurrency=3)
    counts = await field.sweep()
    assert (counts.claimed, counts.retry, counts.changed, counts.lost) == (9, 8, 1, 0)
    types = {event.key: event.error_type for event in field.events.of(RowRetried)}
    assert types["1"] == "ValueError"
    assert types["2"] == "SystemExit"
    assert types["5"] == "TypeError"
    assert types["3"] == types["4"] == "asyncio.exceptions.CancelledError"
    known = await field.known(1)
    assert known is not None
    assert (known["state"], known["attempt"], known["errors"][0]["type"]) == ("resting", 1, "ValueError")
    assert "test_handling.py" in known["errors"][0]["traceback"]


async def test_sync_handlers_run_in_threads_and_fail_alone(field: Field) -> None:
    names: set[str] = set()

    def handler(row: Any) -> Any:
        names.add(threading.current_thread().name)
        if row.id == 1:
            raise SystemExit(1)
        if row.id == 2:
            raise KeyboardInterrupt
        if row.id == 3:
            raise StopIteration
        return To("done")

    await field.put(6)
    field.fix(handler)
    counts = await field.sweep()
    assert (counts.retry, counts.changed) == (3, 3)
    assert threading.main_thread().name not in names


@dataclass
class Thing:
    id: int
    n: int

    def __post_init__(self) -> None:
        if self.id == 2:
            raise ValueError("this one cannot be made")


async def test_a_row_that_cannot_be_made_into_what_the_handler_takes_fails_alone(field: Field) -> None:
    made: list[Thing] = []

    async def handler(thing: Thing) -> Any:
        made.append(thing)
        return To("done")

    await field.put(3)
    field.fix(handler)
    counts = await field.sweep()
    assert (counts.changed, counts.retry) == (2, 1)
    assert [thing.id for thing in made] == [1, 3]
    assert field.events.of(RowRetried)[0].error == "this one cannot be made"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (To("done", nosuch=1), "has no column 'nosuch'; it has id, state"),
        (Stay(id=7), "'id' is part of the key"),
        (Stay(twice=4), "column 'twice' of table things is generated"),
    ],
)
async def test_an_outcome_that_cannot_be_written_is_that_rows_failure(field: Field, outcome: Any, said: str) -> None:
    async def handler(row: Any) -> Any:
        return outcome if row.id == 2 else To("done")

    await field.put(3)
    field.fix(handler)
    counts = await field.sweep()
    assert (counts.changed, counts.retry) == (2, 1)
    (event,) = field.events.of(RowRetried)
    assert event.key == "2"
    assert event.error_type.endswith("ConfigError")
    assert said in event.error


COLUMNS = (
    "id int primary key",
    "state text not null",
    "owner text",
    "until timestamptz",
    "version int default 0",
    "n int",
)


@pytest.mark.parametrize("mode", ["plain", "claimed_as", "lease_columns", "both", "row_lock"])
@pytest.mark.parametrize("first", range(len(COLUMNS)), ids=[column.partition(" ")[0] for column in COLUMNS])
@pytest.mark.matrix(pairs=("mode", "first"))
async def test_the_columns_of_a_table_may_have_any_order(field: Field, mode: str, first: int) -> None:
    await field.do(f"drop table things; create table things ({', '.join([*COLUMNS[first:], *COLUMNS[:first]])})")
    await field.do("insert into things (id, state) select n, 'new' from generate_series(1, 3) as n")
    spec, options = mode_of(mode)
    table = field.app.table("things", key="id", state="state", **spec)
    field.fix(lambda row: To("done"), table=table, stale_for=None, **options)
    assert (await field.sweep()).changed == 3


@pytest.mark.parametrize("column", ["owner", "until"])
async def test_an_outcome_that_sets_a_lease_column_is_that_rows_failure(field: Field, column: str) -> None:
    await field.put(3)
    await field.do("alter table things add owner text, add until timestamptz")
    table = field.app.table("things", key="id", state="state", lease_columns=("owner", "until"))
    field.fix(lambda row: To("done", {column: None}) if row.id == 2 else To("done"), table=table, stale_for=None)
    counts = await field.sweep()
    assert (counts.changed, counts.retry) == (2, 1)
    (event,) = field.events.of(RowRetried)
    assert f"{column!r} is in lease_columns= of table things, which only trueup sets" in event.error


async def test_a_table_without_states_takes_no_to(field: Field) -> None:
    await field.put()
    table = field.app.table("things", key="id", changed_at="changed_at")
    table.reconcile(name=NAME, stale_for="10m", every="1h")(returning(To("done")))
    assert (await field.sweep()).retry == 1
    assert "was declared without state=; return Stay" in field.events.of(RowRetried)[0].error


async def test_one_row_that_the_database_refuses_does_not_hold_up_its_batch(field: Field) -> None:
    async def handler(row: Any) -> Any:
        if row.id == 3:
            return To("done", n=5000)
        if row.id == 4:
            return To("done", note="x" * 30)
        if row.id == 5:
            return To("done", n="not a number")
        if row.id == 6:
            return To("done", n=object())
        if row.id == 7:
            return To("done", note="nul \0")
        return To("done")

    await field.put(20)
    field.fix(handler)
    counts = await field.sweep()
    assert (counts.changed, counts.retry) == (15, 5)
    errors = {event.key: event.error for event in field.events.of(RowRetried)}
    assert errors.keys() == {"3", "4", "5", "6", "7"}
    assert 'violates check constraint "small"' in errors["3"]
    assert await field.states() == {"done": 15, "new": 5}


# -- retry, quarantine, exhausted -----------------------------------------------------------------------------------------


async def test_failures_are_retried_after_exact_delays_and_then_quarantined(field: Field, clock: ManualClock) -> None:
    await field.put()
    field.fix(raising(ValueError("boom")), retry=Retry(max_attempts=4, first="10s", factor=3, cap="1m"))
    for attempt, delay in ((1, 10), (2, 30), (3, 60)):
        assert (await field.sweep()).retry == 1
        known = await field.known()
        assert known is not None
        assert known["attempt"] == attempt
        assert (known["due_at"] - clock.now()).total_seconds() == delay
        clock.advance(seconds=delay - 0.001)
        assert (await field.sweep()).claimed == 0
        clock.advance(seconds=0.001)
    assert (await field.sweep()).quarantined == 1
    (event,) = field.events.of(RowQuarantined)
    assert (event.attempt, event.reason, event.error_type) == (4, "out of attempts", "ValueError")
    known = await field.known()
    assert known is not None
    assert len(known["errors"]) == 4


async def test_success_after_failures_forgets_them(field: Field, clock: ManualClock) -> None:
    await field.put()
    attempts: list[int] = []

    async def handler(row: Any, *, ctx: Context) -> Any:
        attempts.append(ctx.attempt)
        if len(attempts) < 3:
            raise ValueError
        return None if len(attempts) == 3 else To("done")

    field.fix(handler, retry=Retry(max_attempts=3, first="1s", factor=1), revisit="1m")
    for _ in range(3):
        await field.sweep()
        clock.advance(seconds=1)
    clock.advance(minutes=1)
    assert (await field.sweep()).changed == 1
    assert attempts == [1, 2, 3, 1]


async def test_exhausted_is_written_when_attempts_are_used_up(field: Field) -> None:
    await field.put()
    field.fix(raising(ValueError("boom")), retry=Retry(max_attempts=1), exhausted=To("dead", note="gave up"))
    assert (await field.sweep()).changed == 1
    thing = await field.thing()
    assert (thing["state"], thing["note"]) == ("dead", "gave up")
    assert await field.known() is None


async def test_exhausted_may_look_at_the_row_and_the_error(field: Field) -> None:
    seen: list[Any] = []

    def exhausted(row: Any, failed: Any) -> Any:
        seen.append((row.id, str(failed.error)))
        return [To("dead", note=str(failed.error)), None, Again("1h"), "junk", To("dead", nosuch=1)][row.id - 1]

    async def handler(row: Any) -> None:
        raise ValueError(f"boom {row.id}")

    await field.put(5)
    field.fix(handler, retry=Retry(max_attempts=1), exhausted=exhausted)
    counts = await field.sweep()
    assert (counts.changed, counts.unchanged, counts.quarantined) == (1, 1, 3)
    assert sorted(seen) == [(n, f"boom {n}") for n in range(1, 6)]
    assert (await field.thing())["note"] == "boom 1"
    reasons = {event.key: event.reason for event in field.events.of(RowQuarantined)}
    assert reasons["2"] == "out of attempts"
    assert "exhausted= failed: TypeError" in reasons["4"]
    assert "no column 'nosuch'" in reasons["5"]


class Panic(BaseException):
    """Of a foreign runtime."""


RAISED = [ValueError("broken"), SystemExit(1), Panic("broken"), asyncio.CancelledError(), GeneratorExit()]


@pytest.mark.parametrize("error", RAISED, ids=repr)
async def test_exhausted_that_raises_quarantines(field: Field, error: BaseException) -> None:
    def exhausted(row: Any, raised: BaseException) -> Any:
        raise error

    await field.put()
    field.fix(raising(KeyError("x")), retry=Retry(max_attempts=1), exhausted=exhausted)
    assert (await field.sweep()).quarantined == 1
    (event,) = field.events.of(RowQuarantined)
    assert "exhausted= failed: " in event.reason
    assert type(error).__name__ in event.reason
    assert event.error_type == "KeyError"


@pytest.mark.parametrize("error", RAISED, ids=repr)
async def test_a_retry_rule_that_raises_quarantines(field: Field, error: BaseException) -> None:
    class Raising(type):
        def __instancecheck__(cls, instance: object) -> bool:
            raise error

    class RaisesWhenCompared(Exception, metaclass=Raising): ...

    await field.put()
    field.fix(raising(KeyError("x")), retry=Retry(max_attempts=2, retry_on=(RaisesWhenCompared,)))
    assert (await field.sweep()).quarantined == 1
    (event,) = field.events.of(RowQuarantined)
    assert event.reason == "its retry rule fails"
    assert event.error_type.endswith(type(error).__name__)


@pytest.mark.parametrize("error", RAISED, ids=repr)
@pytest.mark.parametrize("refused", ["by its handler", "by PostgreSQL"])
async def test_a_retry_policy_of_the_users_own_that_raises_quarantines(
    field: Field, error: BaseException, refused: str
) -> None:
    class RaisesWhenItWaits(Retry):
        def wait(self, attempt: int, random: Random) -> timedelta:
            raise error

    async def handler(row: Row) -> To:
        if row.id == 1 and refused == "by its handler":
            raise KeyError("x")
        return To("done", n=5_000 if row.id == 1 else 0)

    await field.put(2)
    field.fix(handler, retry=RaisesWhenItWaits(max_attempts=2))
    counts = await field.sweep()
    assert (counts.quarantined, counts.changed) == (1, 1)
    (event,) = field.events.of(RowQuarantined)
    assert event.reason == "its retry rule fails"


@pytest.mark.parametrize("mode", ["plain", "claimed_as", "lease_columns", "both", "row_lock"])
@pytest.mark.parametrize("way", ["a function", "an outcome"])
@pytest.mark.parametrize("refusal", ["by a check", "by a trigger that keeps the row"])
async def test_exhausted_is_written_when_the_last_outcome_is_refused(
    field: Field, mode: str, way: str, refusal: str
) -> None:
    spec, options = mode_of(mode)
    await field.do("alter table things add owner text, add until timestamptz, add version int not null default 0")
    does = "raise 'not done'" if refusal == "by a check" else "return old"
    await field.do(
        "create function hinder() returns trigger language plpgsql as $$ begin"
        f" if new.state = 'done' or new.state = 'dead' and new.id = 2 then {does}; end if; return new; end $$;"
        "create trigger hinder before update on things for each row execute function hinder()"
    )
    await field.put(2)
    seen: list[Any] = []

    def exhausted(row: Row, failed: Any) -> To:
        seen.append((row.id, failed.attempt))
        return To("dead", note="gave up")

    given = exhausted if way == "a function" else To("dead", note="gave up")
    table = field.app.table("things", key="id", state="state", changed_at="changed_at", **spec)
    field.fix(returning(To("done")), table=table, retry=Retry(max_attempts=1), exhausted=given, **options)
    await field.sweep()
    assert (await field.thing())["note"] == "gave up"
    assert await field.known() is None
    second = await field.known(2)
    assert second is not None
    assert second["state"] == "quarantined"
    assert {(key, attempt) for key, attempt in seen} == ({(1, 1), (2, 1)} if way == "a function" else set())


async def test_exhausted_that_the_database_refuses_quarantines(field: Field) -> None:
    await field.put()
    field.fix(raising(ValueError("boom")), retry=Retry(max_attempts=1), exhausted=To("dead", n=5000))
    assert (await field.sweep()).quarantined == 1
    known = await field.known()
    assert known is not None
    assert "was refused" in known["reason"]


async def test_errors_that_are_not_worth_retrying_are_final_at_once(field: Field) -> None:
    async def handler(row: Any) -> None:
        raise (KeyError if row.id == 1 else ValueError)("x")

    await field.put(2)
    field.fix(handler, retry=Retry(give_up_on=(KeyError,)))
    counts = await field.sweep()
    assert (counts.quarantined, counts.retry) == (1, 1)
    assert field.events.of(RowQuarantined)[0].reason == "not an error worth retrying"


# -- time -----------------------------------------------------------------------------------------------------------------


async def test_a_handler_that_hangs_is_cancelled_at_its_timeout_and_that_is_a_failure(field: Field) -> None:
    async def hangs(row: Any) -> None:
        await asyncio.Event().wait()

    await field.put()
    field.fix(hangs, timeout="50ms")
    assert (await field.sweep()).retry == 1
    assert "ran longer than its timeout of 50ms" in field.events.of(RowRetried)[0].error


async def test_a_thread_that_hangs_is_left_behind_and_told(field: Field) -> None:
    ended = threading.Event()

    def hangs(row: Any, *, ctx: Context) -> Any:
        assert ctx.lost.wait_sync(10)
        ended.set()
        return To("done")

    await field.put()
    field.fix(hangs, timeout="50ms")
    assert (await field.sweep()).retry == 1
    await until(ended.is_set)
    assert await field.states() == {"new": 1}


async def test_a_timeout_error_of_the_handlers_own_is_no_timeout_of_ours(field: Field) -> None:
    await field.put()
    field.fix(raising(TimeoutError("the sink")))
    assert (await field.sweep()).retry == 1
    assert field.events.of(RowRetried)[0].error == "the sink"


# -- ctx.transaction ------------------------------------------------------------------------------------------------------


async def test_a_transaction_commits_the_handlers_writes_and_the_outcome_together(field: Field) -> None:
    @field.app.job
    async def tell(thing: int) -> None: ...

    async def handler(row: Any, *, ctx: Context) -> Any:
        async with ctx.transaction(To("done", n=3, then=[tell.call(row.id)])) as tx:
            await tx.execute("insert into log values (%s, 'sent')", (row.id,))
        assert await field.value("select count(*) from log") == 1
        return Stay(n=99)  # not looked at any more

    await field.put()
    field.fix(handler)
    assert (await field.sweep()).changed == 1
    assert ((await field.thing())["state"], (await field.thing())["n"]) == ("done", 3)
    assert await field.value("select count(*) from trueup.jobs") == 1
    assert len(field.events.of(RowChanged)) == 1


async def test_what_a_handler_raises_or_does_too_long_after_its_commit_changes_nothing(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    scopes: dict[object, asyncio.Timeout] = {}
    original = asyncio.timeout

    def timeout(seconds: float | None) -> asyncio.Timeout:
        scope = original(seconds)
        if seconds == 3_600:
            scopes[asyncio.current_task()] = scope
        return scope

    monkeypatch.setattr(asyncio, "timeout", timeout)

    async def handler(row: Any, *, ctx: Context) -> Any:
        async with ctx.transaction(To("done")) as tx:
            await tx.execute("insert into log values (%s, 'sent')", (row.id,))
        if row.id == 1:
            raise ValueError("too late")
        if row.id == 2:
            scopes[asyncio.current_task()].reschedule(0.0)  # its time is over now
            await asyncio.Event().wait()
        if row.id == 3:
            async with ctx.transaction(To("twice")):
                raise AssertionError("not reached")
        return "junk"

    await field.put(4)
    field.fix(handler, timeout="1h")
    counts = await field.sweep()
    assert (counts.claimed, counts.changed, counts.settled) == (4, 4, 4)
    assert await field.states() == {"done": 4}
    said = sorted(event.error_type for event in field.events.of(ServiceFailed))
    assert said == ["ValueError", "trueup.JobTimeout", "trueup.errors.ConfigError"]


async def test_a_transaction_inside_another_or_left_open_fails_the_attempt(field: Field) -> None:
    """Otherwise the outcome of the row would be written without the writes of one of the two."""
    running: list[asyncio.Task[None]] = []

    async def handler(row: Any, *, ctx: Context) -> Any:
        opened = asyncio.Event()

        async def write() -> None:
            async with ctx.transaction(To("done")) as tx:
                await tx.execute("insert into log values (%s, 'sent')", (row.id,))
                opened.set()
                await asyncio.sleep(10)

        if row.id == 1:
            async with ctx.transaction(To("done")) as tx:
                await tx.execute("insert into log values (%s, 'outer')", (row.id,))
                await write()
        running.append(asyncio.create_task(write()))
        await opened.wait()

    await field.put(2)
    field.fix(handler)
    counts = await field.sweep()
    for task in running:
        task.cancel()
    assert counts.retry == 2
    assert await field.states() == {"new": 2}
    assert await field.value("select count(*) from log") == 0
    said = sorted(event.error for event in field.events.of(RowRetried))
    assert "is open already" in said[0]
    assert "returned while" in said[1]


@pytest.mark.parametrize("ending", ["commit", "rollback", "commit and chain"])
async def test_a_handler_that_ends_its_transaction_itself_is_told_and_its_row_stays(field: Field, ending: str) -> None:
    async def handler(row: Any, *, ctx: Context) -> None:
        async with ctx.transaction(To("done")) as tx:
            await tx.execute(ending.encode())

    await field.put()
    field.fix(handler, retry=Retry(max_attempts=1))
    before = await field.states()
    await field.sweep()
    (event,) = field.events.of(RowQuarantined)
    assert "the handler has ended trueup's transaction" in event.error
    assert await field.states() == before


@pytest.mark.parametrize("setting", ["transaction_timeout", "idle_in_transaction_session_timeout"])
async def test_a_transaction_that_takes_too_long_costs_an_attempt(field: Field, setting: str) -> None:
    async def handler(row: Any, *, ctx: Context) -> None:
        async with ctx.transaction(To("done")) as tx:
            await tx.execute(f"set local {setting} to '20ms'".encode())
            await until(lambda: went_away(tx))

    await field.put()
    field.fix(handler, retry=Retry(max_attempts=1))
    await field.sweep()
    (event,) = field.events.of(RowQuarantined)
    assert event.error_type.endswith("Timeout")


async def test_an_error_inside_a_transaction_rolls_it_back_and_is_a_failure(field: Field) -> None:
    async def handler(row: Any, *, ctx: Context) -> Any:
        async with ctx.transaction(To("done", n=5000 if row.id == 2 else 1)) as tx:
            await tx.execute("insert into log values (%s, 'sent')", (row.id,))
            if row.id == 1:
                raise ValueError("boom")
            if row.id == 3:
                await tx.execute("select 1 / 0")

    await field.put(4)
    field.fix(handler)
    counts = await field.sweep()
    assert (counts.retry, counts.changed) == (3, 1)
    assert [row["id"] for row in await field.ask("select id from log")] == [4]


async def test_a_transaction_on_a_row_that_somebody_changed_is_rolled_back_as_a_conflict(
    field: Field, clock: ManualClock
) -> None:
    raised: list[type[BaseException]] = []

    async def handler(row: Any, *, ctx: Context) -> Any:
        await field.do("update things set changed_at = changed_at + interval '1 s' where id = %s", (row.id,))
        try:
            async with ctx.transaction(To("done")) as tx:
                await tx.execute("insert into log values (%s, 'sent')", (row.id,))
        except LostClaim as error:
            raised.append(type(error))
            if row.id == 1:
                raise
        return To("done")

    await field.put(2)
    field.fix(handler)
    counts = await field.sweep()
    assert (counts.conflict, counts.settled) == (2, 2)
    assert raised == [LostClaim, LostClaim]
    assert await field.value("select count(*) from log") == 0
    assert await field.states() == {"new": 2}
    for key in (1, 2):  # still one to be handled, so this was an attempt
        known = await field.known(key)
        assert known is not None
        assert (known["state"], known["attempt"]) == ("resting", 1)
    assert {event.outcome for event in field.events.of(RowConflict)} == {"To('done')"}
    clock.advance(seconds=5)
    assert (await field.sweep()).claimed == 2


async def test_a_transaction_whose_row_is_locked_for_long_is_a_failure(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trueup.work.rows.handling.BUSY_TRIES", 2)

    async def handler(row: Any, *, ctx: Context) -> Any:
        async with field.app.store.pool.transaction() as other:
            await other.execute("select from things for update")
            async with ctx.transaction(To("done")) as tx:
                await tx.execute("insert into log values (1, 'sent')")

    await field.put()
    field.fix(handler)
    assert (await field.sweep()).retry == 1
    assert field.events.of(RowRetried)[0].error_type.endswith("RowBusy")
    assert await field.value("select count(*) from log") == 0


async def test_a_transaction_of_a_claim_that_is_gone_is_refused(field: Field) -> None:
    async def handler(row: Any, *, ctx: Context) -> Any:
        await field.do("update trueup.rows set term = term + 1")
        async with ctx.transaction(To("done")) as tx:
            await tx.execute("insert into log values (1, 'sent')")

    await field.put()
    field.fix(handler)
    assert (await field.sweep()).lost == 1
    assert await field.states() == {"new": 1}
    assert await field.value("select count(*) from log") == 0


async def test_a_transaction_takes_an_outcome_that_changes_the_row(field: Field) -> None:
    async def handler(row: Any, *, ctx: Context) -> Any:
        async with ctx.transaction([Unchanged(), None, To("done", nosuch=1)][row.id - 1]):
            raise AssertionError("not reached")

    await field.put(3)
    field.fix(handler)
    assert (await field.sweep()).retry == 3
    errors = {event.key: event.error for event in field.events.of(RowRetried)}
    assert "takes To, Stay or Delete, not Unchanged()" in errors["1"]
    assert "no column 'nosuch'" in errors["3"]


async def test_sync_handlers_have_no_transaction(field: Field) -> None:
    def handler(row: Any, *, ctx: Context) -> Any:
        with ctx.transaction(To("done")):
            raise AssertionError("not reached")

    await field.put()
    field.fix(handler)
    assert (await field.sweep()).retry == 1
    assert "is for async handlers" in field.events.of(RowRetried)[0].error


# -- claim="row_lock" -----------------------------------------------------------------------------------------------------


async def test_the_row_and_the_handlers_writes_are_one_transaction(field: Field) -> None:
    async def handler(row: Any, *, tx: psycopg.AsyncConnection[Any]) -> Any:
        await tx.execute("insert into log values (%s, 'sent')", (row.id,))
        if row.id == 2:
            raise ValueError("boom")
        if row.id == 3:
            return To("done", n=5000)
        if row.id == 4:
            return "junk"
        if row.id == 5:
            return None
        return To("done")

    await field.put(6)
    field.fix(handler, claim="row_lock")
    counts = await field.sweep()
    assert (counts.changed, counts.retry, counts.unchanged) == (2, 3, 1)
    assert [row["id"] for row in await field.ask("select id from log order by 1")] == [1, 5, 6]
    assert await field.states() == {"done": 2, "new": 4}
    known = await field.known(2)
    assert known is not None
    assert (known["state"], known["attempt"]) == ("resting", 1)


@pytest.mark.parametrize("claim", ["row_lock", "lease"])
async def test_what_a_handler_sets_on_its_connection_the_next_one_does_not_find(
    field: Field, claim: Literal["row_lock", "lease"]
) -> None:
    found: list[Any] = []

    async def meddle(row: Any, tx: psycopg.AsyncConnection[Any]) -> None:
        found.append((tx.row_factory, tx.cursor_factory, tx.prepare_threshold))
        tx.row_factory, tx.cursor_factory, tx.prepare_threshold = dict_row, psycopg.AsyncRawCursor, 0
        await tx.execute("set local time zone 'Asia/Tokyo'")

    async def in_lock(row: Any, *, tx: psycopg.AsyncConnection[Any]) -> Any:
        await meddle(row, tx)
        return To("done")

    async def in_own(row: Any, *, ctx: Context) -> Any:
        async with ctx.transaction(To("done")) as tx:
            await meddle(row, tx)

    await field.put(5)
    field.fix(in_lock if claim == "row_lock" else in_own, claim=claim, concurrency=1)
    assert (await field.sweep()).changed == 5
    assert len(set(found)) == 1


async def test_a_constraint_that_is_checked_at_the_commit_is_a_failure_of_its_row(field: Field) -> None:
    await field.do("alter table log add constraint one unique (said) deferrable initially deferred")
    await field.do("insert into log values (0, 'said 1')")

    async def handler(row: Any, *, tx: psycopg.AsyncConnection[Any]) -> Any:
        await tx.execute("insert into log values (%s, %s)", (row.id, f"said {row.id}"))
        return To("done")

    await field.put(2)
    field.fix(handler, claim="row_lock")
    counts = await field.sweep()
    assert (counts.retry, counts.changed) == (1, 1)
    assert "duplicate key value" in field.events.of(RowRetried)[0].error
    assert ((await field.thing(1))["state"], (await field.thing(2))["state"]) == ("new", "done")


async def test_a_row_locked_by_its_handler_cannot_be_changed_while_the_app_works(field: Field) -> None:
    async def handler(row: Any, *, tx: psycopg.AsyncConnection[Any]) -> Any:
        got = await field.ask("select id from things where id = %s for no key update skip locked", (row.id,))
        await field.do("insert into log values (%s, %s)", (row.id, "free" if got else "locked"))
        cursor = await tx.execute("show idle_in_transaction_session_timeout")
        await field.do("insert into log values (%s, %s)", (row.id, (await cursor.fetchone() or "")[0]))
        return To("done")

    await field.put()
    field.fix(handler, claim="row_lock", lease_for="7s")
    assert (await field.sweep()).changed == 1
    assert {row["said"] for row in await field.ask("select said from log")} == {"locked", "7s"}


async def test_a_row_that_changed_between_claim_and_lock_is_left_alone(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[int] = []

    async def handler(row: Any) -> Any:
        called.append(row.id)
        return To("done", n=row.n)

    await field.put(5)
    field.fix(handler, claim="row_lock")
    await field.gather()
    locking = field.sweeper().hand._handling.locking
    assert locking is not None
    lock, once = locking._lock, asyncio.Lock()
    holder: list[Any] = []

    async def meddle() -> None:
        async with once:
            if not holder:
                await field.do("update things set state = 'else' where id = 1")
                await field.do("delete from things where id = 2")
                await field.do("update things set n = 40 where id = 3")
                holder.append(await psycopg.AsyncConnection.connect(field.app.store.url))
                await holder[0].execute("select from things where id = 4 for update")

    async def meddled(held: Any) -> Any:
        await meddle()
        return await lock(held)

    monkeypatch.setattr(locking, "_lock", meddled)
    counts = await field.sweep()
    await holder[0].close()
    assert (counts.claimed, counts.changed, counts.conflict, counts.unchanged) == (5, 2, 2, 1)
    assert sorted(called) == [3, 5]
    assert (await field.thing(3))["n"] == 40  # read anew under the lock
    assert await field.states() == {"done": 2, "else": 1, "new": 1}
    assert [await field.known(n) for n in range(1, 6)] == [None] * 5


async def test_a_handler_that_changes_its_own_row_through_tx_is_told_and_rolled_back(field: Field) -> None:
    async def handler(row: Any, *, tx: psycopg.AsyncConnection[Any]) -> Any:
        await tx.execute("update things set changed_at = now() where id = %s", (row.id,))
        return To("done")

    await field.put()
    before = await field.checksum()
    field.fix(handler, claim="row_lock")
    assert (await field.sweep()).retry == 1
    assert "has changed the row itself, through tx" in field.events.of(RowRetried)[0].error
    assert await field.checksum() == before


async def test_row_lock_has_no_second_transaction(field: Field) -> None:
    async def handler(row: Any, *, ctx: Context) -> Any:
        async with ctx.transaction(To("done")):
            raise AssertionError("not reached")

    await field.put()
    field.fix(handler, claim="row_lock")
    assert (await field.sweep()).retry == 1
    assert "has one transaction, the handler's tx" in field.events.of(RowRetried)[0].error


async def test_a_handler_idle_in_its_transaction_for_longer_than_the_lease_loses_it(live: Field) -> None:
    async def handler(row: Any, *, tx: psycopg.AsyncConnection[Any]) -> Any:
        await asyncio.to_thread(time.sleep, 1.2)
        return To("done")

    await live.put()
    live.fix(handler, claim="row_lock", lease_for="1s", run_at_start=True, retry=Retry(first="1h"))
    async with live.app.worker():
        (event,) = await live.events.seen(RowRetried)
    assert "idle-in-transaction" in event.error
    assert await live.states() == {"new": 1}


# -- mode="shadow" --------------------------------------------------------------------------------------------------------


async def test_shadow_changes_nothing_and_records_what_it_would_do(field: Field, clock: ManualClock) -> None:
    @field.app.job
    async def tell(thing: int) -> None: ...

    async def handler(row: Any, *, ctx: Context, tx: psycopg.AsyncConnection[Any]) -> Any:
        await tx.execute("insert into log values (%s, 'sent')", (row.id,))
        await tx.execute("update things set note = 'x' where id = %s", (row.id,))
        if row.id == 1:
            return To("done", n=7, then=[tell.call(1)])
        if row.id == 2:
            return Delete()
        if row.id == 3:
            raise ValueError("boom")
        return None

    await field.put(4)
    before = await field.checksum()
    field.fix(handler, mode="shadow", revisit="1h", retry=Retry(max_attempts=1), exhausted=To("dead"))
    counts = await field.sweep()
    assert (counts.claimed, counts.unchanged, counts.quarantined, counts.changed) == (4, 3, 1, 0)
    assert await field.checksum() == before
    assert await field.value("select count(*) from log") == 0
    assert await field.value("select count(*) from trueup.jobs") == 0
    proposed = {event.key: event.outcome for event in field.events.of(RowProposed)}
    assert proposed["1"].startswith("To('done', n=7")
    assert proposed["2"] == "Delete()"
    known = await field.known(1)
    assert known is not None
    assert known["proposed"].startswith("To('done', n=7")
    clock.advance(minutes=59)
    assert (await field.sweep()).claimed == 0


async def test_in_shadow_a_transaction_is_rolled_back_and_its_outcome_is_the_proposal(field: Field) -> None:
    async def handler(row: Any, *, ctx: Context) -> Any:
        async with ctx.transaction(To("done")) as tx:
            await tx.execute("insert into log values (1, 'sent')")

    await field.put()
    before = await field.checksum()
    field.fix(handler, mode="shadow")
    assert (await field.sweep()).unchanged == 1
    assert field.events.of(RowProposed)[0].outcome == "To('done')"
    assert await field.checksum() == before
    assert await field.value("select count(*) from log") == 0


@pytest.mark.parametrize("name", ["blue 3", None])
async def test_lease_columns_call_a_worker_by_its_name_and_its_term(database_url: str, name: str | None) -> None:
    called = name or f"{socket.gethostname()[:24]}:{os.getpid()}"
    field = Field(App(database_url, worker_name=name))
    await field.prepare()
    await field.do("alter table things add owner text, add until timestamptz")
    table = field.app.table("things", key="id", state="state", lease_columns=("owner", "until"))
    owners = []

    async def handler(row: Any, *, ctx: Context) -> Any:
        owners.append((await field.value("select owner from things"), f"{called}/{ctx.term}"))
        return To("done")

    await field.put(1)
    field.fix(handler, table=table, due_at="due_at")
    assert (await field.sweep()).changed == 1
    assert [owner for owner, _ in owners] == [expected for _, expected in owners] != []
    await field.close()
    await field.app.close()


async def test_in_shadow_claimed_as_and_lease_columns_are_not_written(field: Field) -> None:
    await field.do("alter table things add owner text, add until timestamptz")
    table = field.app.table(
        "things", key="id", state="state", changed_at="changed_at", lease_columns=("owner", "until")
    )
    await field.put(2)
    before = await field.checksum()
    field.fix(returning(To("done")), table=table, claimed_as="working", mode="shadow")
    assert (await field.sweep()).unchanged == 2
    assert await field.checksum() == before


async def test_a_proposal_that_cannot_be_shown_is_recorded_all_the_same(field: Field) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError("not to be shown")

    async def handler(row: Any) -> Any:
        return To("done", note=[Odd(), "\ud800 \0", "x" * 1_000_000][row.id - 1])

    await field.put(3)
    field.fix(handler, mode="shadow")
    assert (await field.sweep()).unchanged == 3
    proposed = {event.key: event.outcome for event in field.events.of(RowProposed)}
    assert proposed["1"] == "To(… ValueError …)"
    assert len(proposed["3"]) < 3_000


@pytest.mark.parametrize("claim", ["row_lock", "lease"])
async def test_an_outcome_is_stored_as_it_is_whatever_encoding_its_handler_has_set(field: Field, claim: Any) -> None:
    async def locked(row: Any, *, tx: Any) -> Any:
        await tx.execute("set client_encoding to latin1")
        return To("done", note="süß")

    async def in_transaction(row: Any, *, ctx: Context) -> None:
        async with ctx.transaction(To("done", note="süß")) as tx:
            await tx.execute("set client_encoding to latin1")

    await field.put(6)
    field.fix(locked if claim == "row_lock" else in_transaction, claim=claim, concurrency=2)
    assert (await field.sweep()).changed == 6
    assert await field.ask("select distinct note from things") == [{"note": "süß"}]
