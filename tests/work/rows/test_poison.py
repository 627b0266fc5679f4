"""A row that cannot be fixed never blocks the others: every way to poison a row, at every stage, in every claim mode.

Each case has one poisoned row among good ones. All good ones are done within a few seconds of the first sweep; the poisoned one is
quarantined after its attempts with PostgreSQL's own words, and people can see it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest

from tests.work.rows.field import NAME, Field
from trueup import App, Context, LostClaim, Retry, Stay, To
from trueup.events import RowConflict, RowQuarantined, RowRetried, RowUndone
from trueup.reconcile.declare import Table
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

GOOD = 24
POISON = 13  # among the good ones, so that the batch is halved to both sides of it
ATTEMPTS = 2
WITHIN = 30.0  # seconds for a case with two sweeps of a few milliseconds each, on a busy machine

MODES = ("plain", "claimed_as", "lease_columns", "both", "row_lock", "ctx.transaction")

TABLE = """
create table things (
  id bigint primary key, state text not null, changed_at timestamptz not null, version int not null default 0,
  owner text, until timestamptz, n int not null default 0, note text, at timestamptz, ref int, doc jsonb
);
create table parents (id int primary key);
create function poison() returns trigger language plpgsql as $$ begin
  if coalesce(new.id, old.id) <> 13 then return coalesce(new, old); end if;
  {body}
end $$;
create trigger poison {when} on things for each row execute function poison();
"""
# What the trigger of a poisoned row does, at which write: of the claim, of the outcome, or of both.
CLAIM = "(old.state, old.owner) is distinct from (new.state, new.owner) and new.state <> 'done' and (new.owner is not null or new.state = 'busy')"
WRITE = "new.state = 'done'"
# One SQLSTATE of every class there is, and those that trueup takes for a database that is away.
STATES = (
    *(
        "01000",
        "02000",
        "03000",
        "08006",
        "0A000",
        "0B000",
        "0F001",
        "0L000",
        "0P000",
        "20000",
        "21000",
        "22012",
        "23514",
    ),
    *(
        "24000",
        "25006",
        "26000",
        "27000",
        "28000",
        "2B000",
        "2D000",
        "2F000",
        "34000",
        "38000",
        "39000",
        "3B000",
        "3D000",
    ),
    *(
        "3F000",
        "40001",
        "40P01",
        "42501",
        "44000",
        "53100",
        "53300",
        "54000",
        "55000",
        "55P03",
        "57014",
        "57P01",
        "58030",
    ),
    *("72000", "F0000", "HV000", "P0001", "P0002", "XX000", "XX001", "ZZ123"),
)


class Mode(NamedTuple):
    spec: dict[str, Any]
    options: dict[str, Any]


def mode_of(name: str) -> Mode:
    lease = {"lease_columns": ("owner", "until")}
    return {
        "plain": Mode({}, {}),
        "claimed_as": Mode({}, {"claimed_as": "busy"}),
        "lease_columns": Mode(lease, {}),
        "both": Mode({**lease, "version": "version"}, {"claimed_as": "busy"}),
        "row_lock": Mode({}, {"claim": "row_lock"}),
        "row_lock, tx": Mode({}, {"claim": "row_lock"}),
        "ctx.transaction": Mode({"version": "version"}, {}),
    }[name]


class Ward:
    """The table, the reconciler in one claim mode, and two attempts for the poisoned row."""

    def __init__(self, field: Field, mode: str, clock: ManualClock) -> None:
        self.field, self.mode, self.clock = field, mode, clock
        self.calls: list[int] = []

    async def prepare(self, ddl: str, rows: str = "") -> None:
        await self.field.do("drop table things, log")
        await self.field.do(ddl)
        await self.field.do(
            "insert into things (id, state, changed_at) select n, 'new', %s::timestamptz - interval '1 h' + n * interval '1 ms'"
            " from generate_series(1, %s) as n",
            (self.clock.now(), GOOD + 1),
        )
        if rows:
            await self.field.do(rows)

    def fix(self, outcome: Any = None, where: str | None = None, *, all_rows: bool = False, **options: Any) -> None:
        """`outcome`: of the poisoned row, or of all."""
        spec, more = mode_of(self.mode)
        outcome = outcome or (lambda row: To("done", n=row.n + 1))

        async def returns(row: Any) -> Any:
            self.calls.append(row.id)
            return outcome(row) if all_rows or row.id == POISON else To("done", n=row.n + 1)

        async def with_tx(row: Any, *, tx: Any) -> Any:
            return await returns(row)

        async def in_transaction(row: Any, *, ctx: Context) -> None:
            self.calls.append(row.id)
            made = outcome(row) if all_rows or row.id == POISON else To("done", n=row.n + 1)
            async with ctx.transaction(made):
                pass

        table: Table = self.field.app.table(
            "things", key="id", state="state", changed_at="changed_at", where=where, **spec
        )
        handlers = {"ctx.transaction": in_transaction, "row_lock, tx": with_tx}
        handler = handlers.get(self.mode, returns)
        retry = Retry(max_attempts=ATTEMPTS, first="1s", factor=1, jitter=False)
        given = {"concurrency": 8, **more, **options}
        self.field.fix(handler, table=table, retry=retry, stale_for="10m", **given)

    async def suffer(self) -> RowQuarantined:
        """Sweeps until the poisoned row is quarantined; how that was said."""
        async with asyncio.timeout(WITHIN):
            counts = await self.field.sweep()
            assert counts.settled == counts.claimed == GOOD + 1
            done = await self.field.value("select count(*) from things where state = 'done' and id <> 13")
            assert done == GOOD, "the others wait for the poisoned row"
            for _ in range(20):
                if self.field.events.of(RowQuarantined):
                    break
                self.clock.advance(seconds=5)
                await self.field.sweep()
        (event,) = self.field.events.of(RowQuarantined)
        assert (event.key, event.attempt) == (str(POISON), ATTEMPTS)
        assert await self.field.value("select max(n) from things where id <> 13") == 1, "a good row was handled twice"
        (listed,) = await self.field.app.reconcilers.quarantined(NAME)
        assert (listed["key"], listed["error"]["message"]) == (str(POISON), event.error)
        assert (await self.field.app.reconcilers.summary())["quarantined"] == 1
        (shown,) = [each for each in await self.field.app.reconcilers.list() if each["name"] == NAME]
        assert shown["quarantined"] == 1
        return event


@pytest.fixture
def ward(field: Field, clock: ManualClock, mode: str) -> Ward:
    return Ward(field, mode, clock)


def trigger(body: str, when: str = "before update") -> str:
    return TABLE.format(body=body, when=when)


# -- what PostgreSQL refuses -----------------------------------------------------------------------------------------------

REFUSALS: dict[str, tuple[str, str]] = {
    "trigger raises": (
        trigger(f"if {WRITE} then raise 'not this one'; end if; return new;"),
        "not this one (SQLSTATE P0001)",
    ),
    "trigger raises after": (
        trigger(f"if {WRITE} then raise 'not this one'; end if; return new;", "after update"),
        "not this one (SQLSTATE P0001)",
    ),
    "check, not valid": (
        trigger("return new;")
        + "alter table things add constraint small check (id <> 13 or state <> 'done') not valid",
        "violates check constraint",
    ),
    "unique": (
        trigger(f"if {WRITE} then new.ref := 1; end if; return new;")
        + "create unique index one_of_them on things (ref);"
        + "insert into things (id, state, changed_at, ref) values (99, 'other', now(), 1)",
        "duplicate key value violates unique constraint",
    ),
    "foreign key": (
        trigger(f"if {WRITE} then new.ref := 7; end if; return new;")
        + "alter table things add constraint has_parent foreign key (ref) references parents",
        "violates foreign key constraint",
    ),
    "deferred constraint": (
        trigger(f"if {WRITE} then new.ref := 7; end if; return new;")
        + "alter table things add constraint has_parent foreign key (ref) references parents deferrable initially deferred",
        "violates foreign key constraint",
    ),
}


@pytest.mark.matrix
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("poison", REFUSALS)
async def test_write(ward: Ward, poison: str) -> None:
    ddl, said = REFUSALS[poison]
    await ward.prepare(ddl)
    ward.fix()
    event = await ward.suffer()
    assert said in event.error
    assert "DETAIL" not in event.error
    assert ward.calls.count(POISON) == ATTEMPTS


@pytest.mark.parametrize("mode", MODES)
async def test_delete_of_a_row_that_others_refer_to(ward: Ward) -> None:
    from trueup import Delete

    await ward.prepare(
        trigger("return new;") + "create table refers (id bigint references things)", "insert into refers values (13)"
    )
    ward.fix(lambda row: Delete())
    assert "violates foreign key constraint" in (await ward.suffer()).error


@pytest.mark.matrix
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["claimed_as", "plain", "row_lock"])
@pytest.mark.parametrize("state", STATES)
async def test_write_refused_with_sqlstate(ward: Ward, state: str) -> None:
    body = f"if {WRITE} then raise exception 'because' using errcode = '{state}'; end if; return new;"
    await ward.prepare(trigger(body))
    ward.fix()
    assert (await ward.suffer()).error == f"because (SQLSTATE {state})"


# Errors that trueup's own statements make on purpose, or understand in a way of their own.
OUR_OWN = {
    "a trigger that divides by zero": (
        trigger(f"if {WRITE} then new.n := 1 / (new.id - 13); end if; return new;"),
        "division by zero (SQLSTATE 22012)",
    ),
    "a constraint that divides by zero": (
        trigger("return new;")
        + "alter table things add constraint whole check (state <> 'done' or 1 / (id - 13) < 2) not valid",
        "division by zero (SQLSTATE 22012)",
    ),
    "a text that is no number": (
        trigger(f"if {WRITE} then new.n := 'x'::int; end if; return new;"),
        'invalid input syntax for type integer: "…" (SQLSTATE 22P02)',
    ),
    "a statement that was never prepared": (
        trigger(f"if {WRITE} then execute 'execute nothing'; end if; return new;"),
        'prepared statement "nothing" does not exist (SQLSTATE 26000)',
    ),
}


@pytest.mark.matrix
@pytest.mark.parametrize("mode", ["plain", "row_lock", "row_lock, tx"])
@pytest.mark.parametrize("poison", OUR_OWN)
async def test_write_refused_with_an_error_that_trueup_knows(ward: Ward, poison: str) -> None:
    ddl, said = OUR_OWN[poison]
    await ward.prepare(ddl)
    ward.fix()
    assert (await ward.suffer()).error == said


def lost(row: Any) -> Any:
    raise LostClaim("of another thing")


@pytest.mark.parametrize("mode", MODES)
async def test_a_lost_claim_that_a_handler_raises_for_something_else(ward: Ward) -> None:
    await ward.prepare(trigger("return new;"))
    ward.fix(lost)
    assert (await ward.suffer()).error == "of another thing"
    assert ward.calls.count(POISON) == ATTEMPTS


# -- claims -----------------------------------------------------------------------------------------------------------------

AT_CLAIM = {
    "trigger raises": ("raise 'not this one';", "not this one (SQLSTATE P0001)"),
    "trigger keeps": ("return null;", "keeps the row unchanged"),
    "away, it says": ("raise exception 'because' using errcode = '57P01';", "because (SQLSTATE 57P01)"),
    "serialisation": ("raise exception 'because' using errcode = '40001';", "because (SQLSTATE 40001)"),
    "too complex": ("raise exception 'because' using errcode = '54000';", "because (SQLSTATE 54000)"),
    "lock": ("raise exception 'because' using errcode = '55P03';", "because (SQLSTATE 55P03)"),
}


@pytest.mark.matrix
@pytest.mark.parametrize("mode", ["claimed_as", "lease_columns", "both"])
@pytest.mark.parametrize("poison", AT_CLAIM)
async def test_claim(ward: Ward, poison: str) -> None:
    body, said = AT_CLAIM[poison]
    await ward.prepare(trigger(f"if {CLAIM} then {body} end if; return new;"))
    ward.fix()
    event = None
    async with asyncio.timeout(WITHIN):
        for _ in range(12):  # a claim that the server asks to repeat is believed at first
            try:
                await ward.field.sweep()
            except psycopg.Error:
                continue
            if events := ward.field.events.of(RowQuarantined):
                event = events[0]
                break
            ward.clock.advance(seconds=5)
    assert event is not None
    assert (event.key, event.attempt) == (str(POISON), ATTEMPTS)
    assert said in event.error
    assert await ward.field.value("select count(*) from things where state = 'done' and n = 1") == GOOD
    assert POISON not in ward.calls


SLOW_CLAIM = {
    "sleeps": ("perform pg_sleep(9);", "1100ms"),
    "waits for a lock": ("perform from parents where id = 1 for update;", "2500ms"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "poison"), [("claimed_as", "sleeps"), ("both", "waits for a lock")])
async def test_a_trigger_that_makes_a_claim_take_too_long(live: Field, mode: str, poison: str) -> None:
    """The others are claimed in the same sweep. A lock is nobody's fault: the row is released, and done when the lock is gone."""
    body, timeout = SLOW_CLAIM[poison]
    await live.do("drop table things, log")
    await live.do(trigger(f"if {CLAIM} then {body} end if; return new;"))
    await live.do("insert into parents values (1)")
    await live.do(
        "insert into things (id, state, changed_at) select n, 'new', '2020-01-01' from generate_series(1, 25) as n"
    )
    app = App(live.app.store.url, statement_timeout=timeout)
    impatient, user = Field(app), await psycopg.AsyncConnection.connect(live.app.store.url)
    try:
        await user.execute("select from parents for update")
        await app.open()
        spec, more = mode_of(mode)
        table = app.table("things", key="id", state="state", changed_at="changed_at", **spec)
        retry = Retry(max_attempts=ATTEMPTS, first="100ms", jitter=False)
        impatient.fix(lambda row: To("done"), table=table, retry=retry, **more)
        await impatient.manual.begin()
        async with asyncio.timeout(WITHIN):
            assert (await impatient.sweep()).changed == GOOD
            await asyncio.sleep(0.2)
            await user.rollback()
            assert (await impatient.sweep()).changed == (poison == "waits for a lock")
        quarantined = impatient.events.of(RowQuarantined)
        if poison == "sleeps":
            assert [(event.key, event.attempt) for event in quarantined] == [(str(POISON), ATTEMPTS)]
            assert "canceling statement due to statement timeout" in quarantined[0].error
        else:
            assert [*quarantined, *impatient.events.of(RowRetried)] == []
    finally:
        await user.close()
        await impatient.close()
        await app.close()


@pytest.mark.parametrize("mode", MODES)
async def test_a_key_too_long_for_an_index(ward: Ward) -> None:
    field = ward.field
    long = "x" * 100 + "".join(chr(0x4E00 + (n * 7919) % 20000) for n in range(850))  # 2,650 bytes that do not compress
    ddl = trigger("return new;").replace("id bigint primary key", "id text primary key").replace("<> 13", "<> '13'")
    await field.do("drop table things, log")
    await field.do(ddl)
    await field.do(
        "insert into things (id, state, changed_at) select n::text, 'new', %s::timestamptz - interval '1 h'"
        " from generate_series(1, %s) as n",
        (ward.clock.now(), GOOD),
    )
    await field.do(
        "insert into things (id, state, changed_at) values (%s, 'new', %s::timestamptz - interval '1 h')",
        (long, ward.clock.now()),
    )
    ward.fix(name="long" * 25)
    name = "long" * 25
    seen: list[str] = []

    def watch(event: Any) -> None:
        seen.append(event.key)

    field.app.events.subscribe(watch, RowRetried)
    counts = await field.sweep(name)
    assert (counts.changed, counts.settled) == (GOOD + 1, GOOD + 1)
    assert await field.value("select count(*) from trueup.rows") == 0


# -- rescue and forgetting ----------------------------------------------------------------------------------------------------


@pytest.mark.matrix(pairs=("mode", "started"))
@pytest.mark.parametrize("mode", ["plain", "claimed_as", "lease_columns", "both", "row_lock"])
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("poison", AT_CLAIM)
async def test_rescue(ward: Ward, poison: str, started: bool) -> None:
    """Rows of a process that died are taken over, and one of them refuses every write from then on."""
    await ward.prepare(trigger("return new;"))
    ward.fix(lease_for="30s", concurrency=GOOD + 1)
    sweeper = await ward.field.gather()
    assert len((await sweeper.rows.claims.fresh(uuid4(), GOOD + 1, None)).rows) == GOOD + 1
    body, said = AT_CLAIM[poison]
    refuse = f"create or replace function poison() returns trigger language plpgsql as $$ begin if new.id = 13 then {body} end if; return new; end $$"
    await ward.field.do(refuse)
    await ward.field.do("update trueup.rows set started = %s", (started,))
    ward.clock.advance(seconds=31)
    async with asyncio.timeout(WITHIN):
        for _ in range(15):
            with contextlib.suppress(psycopg.Error):  # a claim that the server asks to repeat is believed at first
                await ward.field.sweep()
            if ward.field.events.of(RowQuarantined):
                break
            ward.clock.advance(seconds=31)
    (event,) = ward.field.events.of(RowQuarantined)
    assert (event.key, event.attempt) == (str(POISON), ATTEMPTS)
    assert said in event.error or "trigger" in event.error
    assert await ward.field.value("select count(*) from things where state = 'done' and n = 1") == GOOD
    assert await ward.field.value("select count(*) from trueup.rows") == 1


@pytest.mark.parametrize("mode", ["plain", "both"])
@pytest.mark.parametrize("state", ["resting", "held", "quarantined"])
async def test_forget(ward: Ward, state: str) -> None:
    """Records of rows that are gone are dropped, beside rows that others have locked, and with triggers that refuse every write."""
    await ward.prepare(trigger("return new;"))
    ward.fix(lease_for="30s")
    sweeper = await ward.field.gather()
    rows = sweeper.rows
    assert len((await rows.claims.fresh(uuid4(), GOOD + 1, None)).rows) == GOOD + 1
    if state != "held":
        due = "'infinity'" if state == "quarantined" else "due_at"
        await ward.field.do(f"update trueup.rows set state = '{state}', holder = null, due_at = {due}")
    await ward.field.do("delete from things where id <= 5; update things set state = 'other' where id between 6 and 10")
    await ward.field.do(
        "create or replace function poison() returns trigger language plpgsql as $$ begin raise 'never'; end $$"
    )
    ward.clock.advance(seconds=31)
    async with await psycopg.AsyncConnection.connect(ward.field.app.store.url) as user:
        await user.execute("select from things where id = 13 for update")
        assert await rows.forget() == 10
    assert await ward.field.value("select count(*) from trueup.rows") == GOOD + 1 - 10


# -- renewals ---------------------------------------------------------------------------------------------------------------

RENEWAL = "(old.state, old.owner) is not distinct from (new.state, new.owner) and old.until is distinct from new.until"
AT_RENEWAL = {
    "trigger raises": "raise 'not this one';",
    "trigger keeps": "return null;",
    "away, it says": "raise exception 'because' using errcode = '57P01';",
    "serialisation": "raise exception 'because' using errcode = '40001';",
    "lock": "raise exception 'because' using errcode = '55P03';",
    "ends its connection": "perform pg_terminate_backend(pg_backend_pid());",
    "another role": "perform set_config('role', 'pg_monitor', false);",
    "another session": "perform set_config('session_authorization', 'pg_monitor', false);",
    "another DateStyle": "perform set_config('datestyle', 'SQL, DMY', false);",
}


@pytest.mark.matrix
@pytest.mark.parametrize("mode", ["lease_columns", "both"])
@pytest.mark.parametrize("poison", AT_RENEWAL)
async def test_renew(ward: Ward, poison: str) -> None:
    """A renewal writes to the user's lease columns. A row whose write is refused loses its own lease at most."""
    renewer = ward.field.manual.worker.row_services.renewer
    await ward.prepare(trigger(f"if {RENEWAL} then {AT_RENEWAL[poison]} end if; return new;"))
    begun, renewed = asyncio.Semaphore(0), asyncio.Event()
    left: list[float] = []

    async def handler(row: Any) -> Any:
        begun.release()
        if row.id == 1:
            for _ in range(GOOD + 1):
                await begun.acquire()
            for _ in range(4):  # a minute, with leases of 30 s
                ward.clock.advance(seconds=15)
                await asyncio.to_thread(renewer.renew_once)
            least = (
                "select extract(epoch from min(due_at) - %s::timestamptz)::float8 from trueup.rows where key <> '13'"
            )
            left.append(await ward.field.value(least, (ward.clock.now(),)))
            renewed.set()
        await renewed.wait()
        return To("done", n=1)

    spec, more = mode_of(ward.mode)
    table = ward.field.app.table("things", key="id", state="state", changed_at="changed_at", **spec)
    ward.field.fix(handler, table=table, concurrency=GOOD + 1, lease_for="30s", **more)
    async with asyncio.timeout(WITHIN):
        counts = await ward.field.sweep()
    renewer.connection.close()
    assert left == [30.0], "another row's lease was not renewed"
    assert counts.changed >= GOOD
    ward.clock.advance(seconds=31)
    await ward.field.sweep()  # takes the row again
    assert await ward.field.value("select count(*) from things where state = 'done'") == GOOD + 1


# -- values ------------------------------------------------------------------------------------------------------------------

VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "too large": ({"n": 2**40}, "out of range"),
    "lone surrogate": ({"note": "\ud800"}, "surrogates"),
    "NUL": ({"note": "a\0b"}, "NUL"),
    "NUL in JSON": ({"doc": {"a": "\0"}}, "unsupported Unicode escape sequence"),
    "NaN in JSON": ({"doc": {"a": float("nan")}}, ""),
    "infinite integer": ({"n": float("inf")}, ""),
    "no such column": ({"nothing": 1}, "has no column 'nothing'"),
    "generated state": ({"state": "x"}, "return To('x'"),
    "no text": ({"note": object()}, ""),
}


@pytest.mark.matrix
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("poison", VALUES)
async def test_value(ward: Ward, poison: str) -> None:
    columns, said = VALUES[poison]
    await ward.prepare(trigger("return new;"))
    ward.fix(lambda row: Stay(columns))
    assert said in (await ward.suffer()).error


@pytest.mark.parametrize("mode", ["claimed_as", "both"])
async def test_an_outcome_that_is_the_working_state(ward: Ward) -> None:
    """The row would be taken for one that was left behind, and come up again for ever."""
    await ward.prepare(trigger("return new;"))
    ward.fix(lambda row: To("busy"))
    assert "'busy' is claimed_as= of this reconciler" in (await ward.suffer()).error


@pytest.mark.parametrize("mode", MODES)
async def test_load_of_a_value_that_python_cannot_read(ward: Ward) -> None:
    await ward.prepare(
        trigger("return new;"), "update things set doc = ('{\"a\": ' || repeat('7', 5000) || '}')::jsonb where id = 13"
    )
    ward.fix()
    assert "column 'doc' cannot be read" in (await ward.suffer()).error
    assert POISON not in ward.calls


# -- handlers -----------------------------------------------------------------------------------------------------------------


class Odd(BaseException):
    pass


@pytest.mark.matrix
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(3), Odd("odd"), asyncio.CancelledError()], ids=repr)
async def test_call(ward: Ward, error: BaseException) -> None:
    def raises(row: Any) -> Any:
        raise error

    await ward.prepare(trigger("return new;"))
    ward.fix(raises)
    await ward.suffer()


# -- outcomes that do not stick --------------------------------------------------------------------------------------------


KEEPS = {
    "writes nothing": "return null;",
    "writes the old row": "return old;",
    "puts the old state back": "new.state := old.state;",
}


@pytest.mark.matrix
@pytest.mark.parametrize("mode", [*MODES, "row_lock, tx"])
@pytest.mark.parametrize("keeps", KEEPS)
async def test_a_trigger_that_keeps_the_row(ward: Ward, keeps: str) -> None:
    if (ward.mode, keeps) == ("row_lock, tx", "writes nothing"):
        pytest.skip("the same as a handler that changes the row through tx")
    await ward.prepare(trigger(f"if {WRITE} then {KEEPS[keeps]} end if; return new;"))
    ward.fix()
    event = await ward.suffer()
    assert "trigger" in event.error
    if ward.mode not in ("ctx.transaction",):
        assert ward.field.events.of(RowUndone)
    assert ward.calls.count(POISON) == ATTEMPTS
    assert (await ward.field.thing(POISON))["n"] == 0, "half of the outcome was written"


@pytest.mark.parametrize("mode", ["claimed_as", "both"])
@pytest.mark.parametrize("state", ["new", "paused", "done"])
async def test_a_trigger_that_puts_another_state_than_that_of_a_claim(ward: Ward, state: str) -> None:
    """The handler is not called: its outcome could not be written."""
    await ward.prepare(trigger(f"if new.state = 'busy' then new.state := '{state}'; end if; return new;"))
    ward.fix()
    assert "could not be claimed" in (await ward.suffer()).error
    assert POISON not in ward.calls
    assert (await ward.field.thing(POISON))["state"] == "new"


@pytest.mark.parametrize("mode", ["claimed_as", "both"])
async def test_a_trigger_that_touches_the_row_after_every_claim(ward: Ward) -> None:
    touch = (
        "if pg_trigger_depth() = 1 and new.state = 'busy' then"
        " update things set changed_at = changed_at + interval '1 s', version = version + 1 where id = 13; end if; return null;"
    )
    await ward.prepare(trigger(touch, "after update"))
    ward.fix()
    event = await ward.suffer()
    assert "AFTER trigger" in event.error
    assert {each.key for each in ward.field.events.of(RowConflict)} == {str(POISON)}


SETTINGS = {
    "array_nulls": "off",
    "backslash_quote": "off",
    "bytea_output": "escape",
    "client_encoding": "LATIN1",
    "datestyle": "SQL, DMY",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "escape_string_warning": "off",
    "extra_float_digits": "-15",
    "idle_in_transaction_session_timeout": "1",
    "intervalstyle": "iso_8601",
    "jit": "on",
    "lock_timeout": "1",
    "plan_cache_mode": "force_custom_plan",
    "quote_all_identifiers": "on",
    "role": "pg_monitor",
    "row_security": "off",
    "search_path": "nowhere",
    "session_authorization": "pg_monitor",
    "session_replication_role": "replica",
    "standard_conforming_strings": "off",
    "statement_timeout": "1",
    "synchronous_commit": "off",
    "timezone": "Pacific/Chatham",
    "transform_null_equals": "on",
    "xmloption": "document",
}


@pytest.mark.matrix
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("setting", SETTINGS)
async def test_a_trigger_that_changes_its_session(ward: Ward, setting: str) -> None:
    """What comes on the same connection, or in the same statement, neither fails because of it nor means anything else."""
    if (setting, ward.mode) == ("idle_in_transaction_session_timeout", "ctx.transaction"):
        pytest.skip("the server ends the transaction that the trigger is part of before its handler can commit")
    body = f"perform set_config('{setting}', '{SETTINGS[setting]}', false); return new;"
    await ward.prepare(
        "create function place() returns text language plpgsql as $$ begin return 'here'; end $$;"
        + trigger(body)
        + "alter table things add span interval, add share float8, add written timestamptz;",
        "alter table things disable trigger poison;"
        "update things set note = 'é', at = changed_at - interval '40 days', span = id * interval '1 hour', share = id / 3.0;"
        "alter table things enable trigger poison",
    )
    at = ward.clock.now()
    seen: dict[int, Any] = {}

    def outcome(row: Any) -> Any:
        seen[row.id] = row.at, row.span, row.share
        more = {"ref": row.id} if row.id % 2 else {}  # so that a batch is written with two statements
        return To("done", note=f"{row.note} ü", written=at, **more)

    ward.fix(outcome, where="place() = 'here'", all_rows=True, batch=5)
    async with asyncio.timeout(WITHIN):
        for _ in range(10):
            await ward.field.sweep()
            if await ward.field.states() == {"done": GOOD + 1}:
                break
            ward.clock.advance(seconds=5)
    assert await ward.field.states() == {"done": GOOD + 1}
    assert not ward.field.events.of(RowQuarantined)
    rows = await ward.field.ask("select id, note, written, at, span, share from things")
    assert {(row["note"], row["written"]) for row in rows} == {("é ü", at)}
    assert seen == {row["id"]: (row["at"], row["span"], row["share"]) for row in rows}
    assert len(ward.calls) == GOOD + 1


# -- one that holds up a worker ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("claim", ["lease", "row_lock"])
async def test_a_handler_that_hangs_does_not_keep_new_rows_waiting(live: Field, claim: str) -> None:
    go_on = asyncio.Event()

    async def handler(row: Any) -> Any:
        if row.id == 1:
            await go_on.wait()
        return To("done")

    await live.put(3)
    live.fix(handler, due_at="due_at", every="200ms", run_at_start=True, claim=claim, concurrency=3)
    async with live.app.worker():
        for round_ in range(1, 6):
            await live.put(20, first=100 * round_)
            begun = asyncio.get_running_loop().time()
            async with asyncio.timeout(15):
                while (await live.states()).get("done", 0) < 2 + 20 * round_:
                    await asyncio.sleep(0.05)
            assert asyncio.get_running_loop().time() - begun < 8
        go_on.set()
    assert await live.states() == {"done": 103}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["plain", "claimed_as", "lease_columns"])
async def test_a_users_lock_delays_only_that_rows_outcome(app: App, live: Field, mode: str) -> None:
    await live.do("alter table things add owner text, add until timestamptz")
    spec, options = mode_of(mode)
    table = app.table("things", key="id", state="state", changed_at="changed_at", **spec)
    user = await psycopg.AsyncConnection.connect(app.store.url)

    async def handler(row: Any) -> Any:
        if row.id == 1:
            await user.execute("select from things where id = 1 for update")
        return To("done")

    await live.put(3)
    live.fix(handler, table=table, due_at="due_at", every="200ms", run_at_start=True, lease_for="1s", **options)
    async with app.worker():
        for round_ in range(1, 4):  # longer than the lease
            await live.put(5, first=100 * round_)
            async with asyncio.timeout(15):
                while (await live.states()).get("done", 0) < 2 + 5 * round_:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.6)
        await user.close()  # inside, or the worker waits for it as long as it may drain
        if mode != "lease_columns":  # there the user's own lease has passed meanwhile
            async with asyncio.timeout(15):
                while (await live.states()).get("done", 0) < 18:
                    await asyncio.sleep(0.05)
    assert live.events.of(RowQuarantined) == []


@pytest.mark.parametrize("mode", ["plain", "claimed_as", "lease_columns", "row_lock", "ctx.transaction"])
async def test_a_trigger_that_makes_a_temporary_table_of_the_same_name(ward: Ward) -> None:
    """In its session an unqualified name then means the temporary table."""
    await ward.prepare(trigger("execute 'create temporary table if not exists things (id int)'; return new;"))
    ward.fix()
    for n in range(3):
        await ward.field.do(f"alter table public.things add more{n} int")  # so it is looked at anew
        await ward.field.do("update public.things set state = 'new' where id <= 2")
        ward.clock.advance(hours=1)
        await ward.field.sweep()
        assert await ward.field.value("select count(*) from public.things where state = 'done'") == GOOD + 1
