"""A table that changes under running workers is looked at anew within one sweep, in every claim mode, and no row is blamed for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from tests.work.rows.field import NAME, Field
from tests.work.rows.test_poison import GOOD, MODES, mode_of
from trueup import Context, GiveUp, Retry, To
from trueup.errors import ConfigError
from trueup.events import RowQuarantined, RowRetried, SweepFailed
from trueup.testing.clock import ManualClock
from trueup.work.rows.purger import Purger
from trueup.work.rows.sweeper import Sweeper

pytestmark = pytest.mark.asyncio

TABLE = """
create table things (
  id bigint primary key, unused int, state text not null, changed_at timestamptz not null, version int not null default 0,
  owner text, until timestamptz, n int not null default 0, note text
)
"""
# One after the other, to a table that has been through those before.
CHANGES = {
    "unused column dropped": "alter table things drop column unused",
    "column added": "alter table things add column extra text not null default 'x'",
    "column replaced": "alter table things drop column n; alter table things add column n bigint not null default 0",
    "column retyped": "alter table things alter column n drop default, alter column n type text using n::text,"
    " alter column n set default '0'",
    "key retyped": "alter table things alter column id type text using id::text",
    "state retyped": "create type mood as enum ('new', 'busy', 'done');"
    " alter table things alter column state type mood using state::mood",
    "type renamed": "alter type mood rename to feeling",
    "type moved": "create schema kinds; alter type feeling set schema kinds",
    "schema of the type renamed": "alter schema kinds rename to sorts",
    "time retyped": "alter table things alter column changed_at type timestamp using changed_at at time zone 'utc'",
    "version retyped": "alter table things alter column version type bigint",
    "table created again": "create table other (note varchar(50), n smallint not null default 0, until timestamptz, owner text,"
    " version bigint not null default 0, changed_at timestamptz not null, state varchar(10) not null, id int primary key);"
    " insert into other select note, n::int, until, owner, version, changed_at at time zone 'utc', state::text, id::int from things;"
    " drop table things; alter table other rename to things",
}
PUT = """insert into things (id, state, changed_at)
         select {key}, 'new', timestamptz '{now}' {zone} - interval '1 h' + n * interval '1 ms' from generate_series({first}, {last}) as n"""
COLUMNS = "select attname from pg_attribute where attrelid = 'things'::regclass and attnum > 0 and not attisdropped"
TYPES = "select attname, format_type(atttypid, -1) as type from pg_attribute where attrelid = 'things'::regclass and attnum > 0"


class Ground:
    def __init__(self, field: Field, clock: ManualClock, mode: str) -> None:
        self.field, self.clock, self.mode = field, clock, mode
        self.during: str | None = None  # what the first handler that runs does to the table
        self.altered = asyncio.Event()
        self.altered.set()
        self.seen: list[dict[str, Any]] = []
        self.rows = 0

    async def prepare(self) -> None:
        await self.field.do("drop table things, log")
        await self.field.do(TABLE)
        await self.put()

    async def put(self) -> None:
        """As many rows as there are good ones, whatever the table is like by now."""
        types = {row["attname"]: row["type"] for row in await self.field.ask(TYPES)}
        zone = "" if types["changed_at"] == "timestamp with time zone" else "at time zone 'utc'"
        first, self.rows = self.rows + 1, self.rows + GOOD
        key, now = f"n::{types['id']}", self.clock.now()
        await self.field.do(PUT.format(key=key, zone=zone, now=now, first=first, last=self.rows))

    def declare(self) -> None:
        if self.mode in ("delete", "move"):
            more = {"to": "done"} if self.mode == "move" else {}
            getattr(self.field.table, self.mode)("new", stale_for="10m", name=NAME, **more)
            return

        async def fix(row: Any) -> To:
            self.seen.append(dict(row))
            if self.during is not None:
                change, self.during = self.during, None
                self.altered.clear()
                await self.field.do(change)
                self.altered.set()
            await self.altered.wait()  # what was written to a column before it is replaced is gone
            return To("done", n=int(row.n) + 1)

        async def in_transaction(row: Any, *, ctx: Context) -> None:
            outcome = await fix(row)
            async with ctx.transaction(outcome):
                pass

        spec, options = mode_of(self.mode)
        table = self.field.app.table("things", key="id", state="state", changed_at="changed_at", **spec)
        handler = in_transaction if self.mode == "ctx.transaction" else fix
        self.field.fix(handler, table=table, retry=Retry(max_attempts=2, first="1s"), concurrency=4, **options)

    async def done(self) -> int:
        if self.mode == "delete":
            return self.rows - int(await self.field.value("select count(*) from things"))
        return int(await self.field.value("select count(*) from things where state = 'done'"))


@pytest.fixture
def ground(field: Field, clock: ManualClock, mode: str) -> Ground:
    return Ground(field, clock, mode)


def nobody_was_blamed(field: Field) -> None:
    assert [event for event in field.events.of(RowRetried) if event.attempt > 1] == []
    assert not field.events.of(RowQuarantined)
    assert not field.events.of(SweepFailed)


@pytest.mark.parametrize("mode", [*MODES, "delete", "move"])
async def test_the_sweep_after_a_change_takes_all_rows(ground: Ground) -> None:
    field = ground.field
    await ground.prepare()
    ground.declare()
    assert (await field.sweep()).changed == GOOD
    for name, change in CHANGES.items():
        ground.seen.clear()
        await field.do(change)
        await ground.put()
        counts = await field.sweep()
        assert (counts.claimed, counts.changed) == (GOOD, GOOD), name
        assert await ground.done() == ground.rows, name
        nobody_was_blamed(field)
        if ground.mode not in ("delete", "move"):
            assert {*ground.seen[0]} == {row["attname"] for row in await field.ask(COLUMNS)}, name
    assert await field.value("select count(*) from trueup.rows") == 0


@pytest.mark.parametrize(
    "mode", [mode for mode in MODES if mode != "row_lock"]
)  # its own lock keeps the table as it is
async def test_outcomes_of_rows_that_were_claimed_before_a_change(ground: Ground) -> None:
    field = ground.field
    await ground.prepare()
    ground.declare()
    for name, change in CHANGES.items():
        ground.during = change
        await field.sweep()
        for _ in range(2):  # a transaction of the handler's own is rolled back, and its row is tried again
            ground.clock.advance(seconds=30)
            await field.sweep()
        assert await ground.done() == ground.rows, name
        nobody_was_blamed(field)
        assert await field.value("select count(*) from things where n::int <> 1 and state = 'done'") == 0, name
        assert await field.value("select count(*) from trueup.rows") == 0, name
        await field.do("delete from things")
        ground.rows = 0
        await ground.put()


UNFIT = {
    "table gone": (
        "alter table things rename to elsewhere",
        "there is no such table",
        "alter table elsewhere rename to things",
    ),
    "state gone": (
        "alter table things rename state to other",
        "no such column",
        "alter table things rename other to state",
    ),
    "key not unique": (
        "alter table things drop constraint things_pkey",
        "is not unique",
        "alter table things add primary key (id)",
    ),
    "a rule": (
        "create rule r as on update to things do instead nothing",
        "has rules for UPDATE or DELETE",
        "drop rule r on things",
    ),
}


@pytest.mark.matrix
@pytest.mark.parametrize("mode", ["plain", "claimed_as", "row_lock", "delete"])
@pytest.mark.parametrize("change", UNFIT)
async def test_a_table_that_cannot_be_worked_on_is_named_until_it_can_be(ground: Ground, change: str) -> None:
    field, (spoil, said, mend) = ground.field, UNFIT[change]
    await ground.prepare()
    ground.declare()
    assert (await field.sweep()).changed == GOOD
    await ground.put()
    await field.do(spoil)
    member = field.manual.worker.row_services.members[NAME]
    assert isinstance(member, Sweeper | Purger)
    with pytest.raises(ConfigError, match=said):
        await member.sweep()
    if isinstance(member, Sweeper):
        ground.clock.advance(hours=2)
        await member.run_once()
        assert said in field.events.of(SweepFailed)[-1].error
        (listed,) = await field.app.reconcilers.list()
        assert said in listed["last_error"]
    await field.do(mend)
    assert (await field.sweep()).changed == GOOD


@pytest.mark.parametrize("mode", ["plain", "claimed_as", "lease_columns"])
async def test_rows_in_hand_of_a_table_that_is_gone_keep_their_attempts(ground: Ground) -> None:
    field = ground.field
    await ground.prepare()
    ground.declare()
    ground.during = "alter table things rename to elsewhere"
    with pytest.raises(ConfigError, match="there is no such table"):
        await field.sweep()
        ground.clock.advance(seconds=30)
        await field.sweep()
    await field.do("alter table elsewhere rename to things")
    ground.clock.advance(minutes=20)
    await field.sweep()
    assert await ground.done() == GOOD
    nobody_was_blamed(field)


@pytest.mark.parametrize("mode", [*MODES, "delete"])
async def test_rows_of_a_table_that_refuses_every_write_keep_their_attempts(ground: Ground) -> None:
    """A publication is added, and the table has no replica identity. The publication changes nothing of the table."""
    field = ground.field
    await ground.prepare()
    await field.do("alter table things replica identity nothing")
    ground.declare()
    assert (await field.sweep()).changed == GOOD
    await ground.put()
    await field.do("create publication everything for all tables")
    for _ in range(4):
        with suppress(ConfigError):
            await field.sweep()
        ground.clock.advance(minutes=20)
    assert await ground.done() == GOOD
    await field.do("drop publication everything")
    await field.sweep()
    assert await ground.done() == 2 * GOOD
    assert [event for event in field.events.of(RowRetried) if event.attempt > 1] == []
    assert not field.events.of(RowQuarantined)


async def test_statistics_and_rewrites_do_not_count_as_changes(field: Field) -> None:
    field.fix(lambda row: None)
    await field.put(3)
    sweeper = await field.gather()
    made = sweeper.rows.made
    for harmless in ("analyze things", "update things set n = n + 1", "create index on things (n)"):
        await field.do(harmless)
        assert not await sweeper.rows.changed_since(made), harmless


# The type of the key, two keys, and a change after which no row can have the first of them.
RETYPED = {
    "text to uuid": (
        "text",
        ["garbage", "f031cf58-e9b5-4f9a-8aa2-e32ed5bb42fb"],
        "delete from things where id = 'garbage'; alter table things alter id type uuid using id::uuid",
    ),
    "text to int": (
        "text",
        ["garbage", "7"],
        "delete from things where id = 'garbage'; alter table things alter id type int using id::int",
    ),
    "bigint to smallint": (
        "bigint",
        ["9000000000", "7"],
        "delete from things where id > 100; alter table things alter id type smallint",
    ),
    "label renamed": ("kind", ["old", "other"], "alter type kind rename value 'old' to 'new'"),
    "part of a key": (
        "text, part int not null default 1",
        ["garbage", "7"],
        "delete from things where id = 'garbage'; alter table things alter id type int using id::int",
    ),
    "key of more columns": (
        "text, part int not null default 1",
        ["garbage", "7"],
        "update trueup.rows set key = 'garbage', whole_key = null where key like '%garbage%'; delete from things where id = 'garbage'",
    ),
}


@pytest.mark.parametrize("others", [True, False], ids=["beside another row", "alone"])
@pytest.mark.parametrize("ending", ["resting", "quarantined", "left by a dead process"])
@pytest.mark.parametrize("change", RETYPED)
async def test_records_of_keys_that_no_row_can_have_any_more_are_forgotten(
    field: Field, clock: ManualClock, change: str, ending: str, others: bool
) -> None:
    kind, keys, ddl = RETYPED[change]
    await field.do("drop table things, log; create type kind as enum ('old', 'other')")
    parts = ("id", "part") if "," in kind else ("id",)
    columns = kind.replace("text,", "text not null,") if "," in kind else f"{kind} not null"
    await field.do(
        f"create table things (id {columns}, state text not null default 'new', primary key ({', '.join(parts)}))"
    )
    fails = True

    def fix(row: Any) -> To:
        if fails:
            raise GiveUp("no") if ending == "quarantined" else ValueError("no")
        return To("done")

    table = field.app.table("things", key=parts, state="state")
    field.fix(fix, table=table, stale_for=None, retry=Retry(max_attempts=4, first="1s"))
    for key in keys:
        await field.do("insert into things (id) values (%s)", (key,))
    await field.sweep()
    if ending == "left by a dead process":
        await field.do("update trueup.rows set state = 'held', holder = gen_random_uuid(), due_at = %s", (clock.now(),))
    if not others:
        await field.do("delete from things where id::text = %s", (keys[1],))
    await field.do(ddl)
    before, fails = len(field.events.of(RowRetried)), False
    for _ in range(3):
        clock.advance(minutes=20)
        await field.sweep()
    assert [row["key"] for row in await field.ask("select key from trueup.rows where key like '%garbage%'")] == []
    assert len(field.events.of(RowRetried)) == before
    left = {"quarantined": 1} if ending == "quarantined" and others else {}
    records = await field.ask("select state, count(*) as n from trueup.rows group by 1")
    assert {row["state"]: row["n"] for row in records} == left
    assert not field.events.of(SweepFailed)


async def test_a_purge_forgets_records_of_keys_that_no_row_can_have_any_more(field: Field, clock: ManualClock) -> None:
    _, keys, ddl = RETYPED["text to uuid"]
    await field.do("drop table things, log")
    await field.do(
        "create table things (id text primary key, state text not null, changed_at timestamptz default '2020-01-01')"
    )
    await field.do("create table parts (thing text references things)")
    field.table.delete("new", stale_for="10m", name=NAME, retry=Retry(max_attempts=1))
    for key in keys:
        await field.do("insert into things values (%s, 'new')", (key,))
    await field.do("insert into parts select id from things")
    await field.sweep()
    assert await field.value("select count(*) from trueup.rows where state = 'quarantined'") == 2
    await field.do("drop table parts")
    await field.do(ddl)
    for _ in range(2):
        clock.advance(hours=2)
        await field.sweep()
    assert [row["key"] for row in await field.ask("select key from trueup.rows")] == [keys[1]]
