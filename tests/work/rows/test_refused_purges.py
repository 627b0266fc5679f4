"""Rows that PostgreSQL refuses to move or delete, or that a trigger keeps, cost the others nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.work.rows.field import Field
from trueup import Retry
from trueup.events import RowQuarantined, RowRetried, SweepFailed
from trueup.store.rows.quarantine import Quarantine
from trueup.testing.clock import ManualClock
from trueup.work.rows.purger import Purger

pytestmark = pytest.mark.asyncio

RETRY = Retry()

ROWS, BATCH = 60, 20
SECRET = "DE89370400440532013000"
FOREIGN_KEY = "create table parts (thing int references things on update restrict); insert into parts select unnest(array[{culprits}])"
RAISES = """
create function refuse() returns trigger language plpgsql as $$ begin
  if old.id in ({culprits}) then {body} end if; return coalesce(new, old);
end $$;
"""
ON_ROW = "create trigger refuse before update or delete on things for each row execute function refuse()"
AT_COMMIT = (
    "create constraint trigger refuse after update or delete on things deferrable initially deferred"
    " for each row execute function refuse()"
)
CHECK = "update things set note = 'bad' where id in ({culprits}); alter table things add check (note is null) not valid"


def raising(sqlstate: str, trigger: str = ON_ROW) -> str:
    body = f"raise exception 'not this one' using errcode = '{sqlstate}', detail = '{SECRET}';"
    return RAISES.replace("{body}", body) + trigger


REFUSALS: dict[str, tuple[str, str, str]] = {
    "a foreign key": ("delete", FOREIGN_KEY, "parts_thing_fkey"),
    "a check that is not valid": ("move", CHECK, "things_note_check"),
    "a trigger that puts the state back": (
        "move",
        RAISES.replace("{body}", "new.state := old.state; return new;") + ON_ROW,
        "a trigger of table things keeps the row in its state",
    ),
    "a deferred trigger": ("delete", raising("23514", AT_COMMIT), "not this one (SQLSTATE 23514)"),
    **{
        f"{verb}, a trigger with {state}": (verb, raising(state), f"not this one (SQLSTATE {state})")
        for verb, state in [
            *(("delete", state) for state in ("P0001", "23503", "54000", "42501", "22012", "08006")),
            *(("move", state) for state in ("P0001", "40001", "40P01", "57P01", "25006", "42P01", "XX000")),
        ]
    },
}
PASSING = {"delete": ("55P03", "57014"), "move": ("53100", "58030")}  # a lock, a timeout, a full disk, a broken one
# What says that the database may not want this statement at all is believed a few times, in sweeps that it ends.
REPEATED = ("08006", "40001", "40P01", "57P01", "25006")


def declare(field: Field, verb: str, **options: Any) -> None:
    given = {"stale_for": "10m", "name": "age", "every": "1h", "batch": BATCH, **options}
    if verb == "move":
        field.table.move("new", to="old", **given)
    else:
        field.table.delete("new", **given)


async def left(field: Field) -> list[int]:
    return [row["id"] for row in await field.ask("select id from things where state = 'new' order by id")]


async def rows(field: Field) -> list[dict[str, Any]]:
    return await field.ask(
        "select key, state, attempt, reason, errors from trueup.rows where reconciler = 'age' order by key::int"
    )


async def swept(field: Field, wanted: int, most: int = 4) -> None:
    """Sweep until only so many rows are left, as a worker does it after errors that ask for a repetition."""
    for _ in range(most):
        try:
            await field.sweep("age")
        except Exception as error:
            if getattr(error, "sqlstate", None) not in REPEATED:
                raise
        if len(await left(field)) <= wanted:
            return


class RaisesWhenItWaits(Retry):
    def delay(self, attempt: int) -> timedelta:
        raise RuntimeError("no delay")


async def test_a_retry_policy_of_the_users_own_that_raises_quarantines_the_refused_row(field: Field) -> None:
    await field.put(ROWS)
    await field.do(REFUSALS["a check that is not valid"][1].replace("{culprits}", "17"))
    declare(field, "move", retry=RaisesWhenItWaits(max_attempts=2))
    await swept(field, 1)
    assert await left(field) == [17]
    (known,) = await rows(field)
    assert (known["state"], known["reason"]) == ("quarantined", "its retry rule fails")


@pytest.mark.matrix
@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_refused_row_alone_is_quarantined_after_its_attempts(
    field: Field, clock: ManualClock, refusal: str, partitioned: bool
) -> None:
    verb, setup, said = REFUSALS[refusal]
    if partitioned:
        await field.do("alter table things rename to plain")
        await field.do(
            "create table things (like plain including defaults including generated, primary key (id)) partition by range (id);"
            "create table things1 partition of things for values from (0) to (20);"
            "create table things2 partition of things for values from (20) to (2000)"
        )
    await field.put(ROWS)
    culprits = [1, 17, 18, 60]
    listed = ", ".join(map(str, culprits))
    await field.do(setup.replace("{culprits}", listed))
    declare(field, verb)
    await swept(field, len(culprits))
    assert await left(field) == culprits
    known = await rows(field)
    assert [(row["key"], row["state"], row["attempt"]) for row in known] == [(str(n), "resting", 1) for n in culprits]
    for row in known:
        assert said in row["reason"]
        assert SECRET not in str(row)
    assert await field.value("select last_error from trueup.reconcilers") is None

    await field.put(5, first=100)  # they rest, so others go in the quick way
    counts = await field.sweep("age")
    assert (counts.changed, counts.retry) == (5, 0)
    for _ in range(2, RETRY.max_attempts + 1):
        clock.advance(minutes=1)
        await field.put(1, first=200)
        await swept(field, len(culprits))
        await field.do("delete from things where state = 'old'") if verb == "move" else None
    assert [row["attempt"] for row in await rows(field)] == [RETRY.max_attempts] * len(culprits)
    assert {row["state"] for row in await rows(field)} == {"quarantined"}
    clock.advance(hours=1)
    assert (await field.sweep("age")).claimed == 0
    store = field.app.store
    shown = await Quarantine(store.pool, store.statements).listed("age", 10)
    assert {row["key"] for row in shown} == {str(n) for n in culprits}
    assert said in shown[0]["error"]["message"]
    assert [event.key for event in field.events.of(RowQuarantined)] == [str(n) for n in culprits]
    assert SECRET not in str(field.events.of(RowRetried))


@pytest.mark.parametrize(("verb", "state"), [(verb, state) for verb, states in PASSING.items() for state in states])
async def test_a_refusal_that_may_pass_spends_no_attempt(
    field: Field, clock: ManualClock, verb: str, state: str
) -> None:
    await field.put(ROWS)
    await field.do(raising(state).replace("{culprits}", "17"))
    declare(field, verb)
    for _ in range(RETRY.max_attempts + 1):
        await swept(field, 1)
        (row,) = await rows(field)
        assert (row["key"], row["state"], row["attempt"]) == ("17", "resting", 0)
        assert f"SQLSTATE {state}" in row["reason"]
        clock.advance(hours=1)
    assert await left(field) == [17]
    assert not field.events.of(RowQuarantined)


@pytest.mark.parametrize("attempts", [1, 2])
async def test_retry_says_how_often_a_refused_row_is_tried(field: Field, clock: ManualClock, attempts: int) -> None:
    await field.put(3)
    await field.do(raising("P0001").replace("{culprits}", "2"))
    declare(field, "delete", retry=Retry(max_attempts=attempts, first="10s", jitter=False))
    for _ in range(attempts):
        await field.sweep("age")
        clock.advance(seconds=9)
        assert (await field.sweep("age")).claimed == 0
        clock.advance(seconds=2)
    (row,) = await rows(field)
    assert (row["state"], row["attempt"]) == ("quarantined", attempts)


async def test_a_row_that_goes_after_all_is_forgotten_and_a_released_one_is_tried_again(
    field: Field, clock: ManualClock
) -> None:
    await field.put(3)
    await field.do("create table parts (thing int references things); insert into parts values (1), (2)")
    declare(field, "delete")
    await field.sweep("age")
    await field.do("delete from parts where thing = 1")
    assert (await field.sweep("age")).changed == 0  # it rests
    clock.advance(minutes=1)
    assert (await field.sweep("age")).changed == 1
    assert [row["key"] for row in await rows(field)] == ["2"]
    await field.do("update trueup.rows set state = 'quarantined', due_at = 'infinity'")
    await field.do("delete from parts")
    assert (await field.sweep("age")).changed == 0
    store = field.app.store
    await Quarantine(store.pool, store.statements).release("age", ["2"])
    assert (await field.sweep("age")).changed == 1
    assert await rows(field) == []


async def test_a_statement_that_is_refused_whatever_its_rows_blames_none_of_them(field: Field) -> None:
    await field.put(30)
    await field.do("create function refuse() returns trigger language plpgsql as $$ begin raise 'closed'; end $$")
    await field.do("create trigger refuse before delete on things for each statement execute function refuse()")
    declare(field, "delete", run_at_start=True)
    row_services = field.manual.worker.row_services
    row_services.declare(field.app._reconcilers.all())
    await row_services.gather()
    member = row_services.members["age"]
    assert isinstance(member, Purger)
    assert await member.run_once() > 3000  # not every second
    (event,) = field.events.of(SweepFailed)
    assert event.error == "closed (SQLSTATE P0001)"
    assert "closed" in await field.value("select last_error from trueup.reconcilers where name = 'age'")
    assert await rows(field) == []


async def test_a_table_that_refuses_every_row_does_not_hold_a_sweep_for_ever(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trueup.work.rows.refused_purges.MAX_IN_A_ROW", 10)
    await field.put(35)
    await field.do((RAISES.replace("{body}", "raise 'no';")).replace("{culprits}", "select generate_series(1, 30)"))
    await field.do(ON_ROW)
    declare(field, "delete")
    for known in (10, 20, 30, 30):
        await field.sweep("age")
        assert len(await rows(field)) == known
    assert await left(field) == list(range(1, 31))


@pytest.mark.parametrize("verb", ["delete", "move"])
async def test_rows_that_a_trigger_keeps_neither_end_nor_starve_a_sweep(field: Field, verb: str) -> None:
    await field.put(ROWS)
    await field.do(RAISES.replace("{body}", "return null;").replace("{culprits}", "select generate_series(1, 45)"))
    await field.do(ON_ROW)
    declare(field, verb)
    counts = await field.sweep("age")
    assert (counts.changed, counts.undone, counts.claimed, counts.lateness.count) == (15, 45, 60, 15)
    assert await left(field) == list(range(1, 46))
    assert (await field.sweep("age")).undone == 45
    assert await rows(field) == []


async def test_rows_that_a_trigger_brings_back_do_not_hold_a_sweep_for_ever(field: Field) -> None:
    """An AFTER trigger undoes the move, which no statement can see that moves: the same rows would be the oldest again and again."""
    await field.put(ROWS)
    await field.do(
        "create function undo() returns trigger language plpgsql as $$ begin"
        " update things set state = 'new' where id = new.id; return null; end $$;"
        "create trigger undo after update on things for each row when (old.id <= 45 and old.state = 'new') execute function undo()"
    )
    declare(field, "move", stale_for=None, due_at="due_at")
    async with asyncio.timeout(20):
        await field.sweep("age")
    assert await field.value("select array_agg(id order by id) from things where state = 'new'") == list(range(1, 46))


async def test_a_rate_holds_for_rows_that_are_taken_by_their_keys(live: Field) -> None:
    await live.put(30)
    await live.do("create table parts (thing int references things); insert into parts values (3)")
    declare(live, "delete", rate="40/s")
    counts = await live.sweep("age")
    assert (counts.changed, counts.retry) == (29, 1)
    assert await left(live) == [3]


@pytest.mark.matrix
@pytest.mark.parametrize("verb", ["delete", "move"])
@pytest.mark.parametrize(("setting", "value"), [("role", "pg_monitor"), ("array_nulls", "off"), ("search_path", "x")])
async def test_a_trigger_that_changes_its_session(field: Field, verb: str, setting: str, value: str) -> None:
    """What comes after it on the same connection finds the session as it was."""
    await field.put(ROWS)
    await field.do(
        "create function here() returns boolean language sql as 'select true';"
        f"create function change() returns trigger language plpgsql as $$ begin perform set_config('{setting}', '{value}', false);"
        " return coalesce(new, old); end $$;"
        "create trigger change before update or delete on things for each row when (old.id = 17) execute function change()"
    )
    table = field.app.table("things", key="id", state="state", changed_at="changed_at", where="here()")
    given: dict[str, Any] = {"stale_for": "10m", "name": "age", "every": "1h", "batch": BATCH}
    if verb == "move":
        table.move("new", to="old", **given)
    else:
        table.delete("new", **given)
    await field.sweep("age")
    assert await left(field) == []
    assert await rows(field) == []
