"""Tables as people have them: any key, any name, any type of state, partitions, triggers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.store.rows_desk import RowsDesk, again, claimed, desk_on, keys, one, settle_all, settled, sweep
from trueup.reconcile.decide import Change, Remove, Rest
from trueup.reconcile.outcome import Delete, Stay, To
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock

pytestmark = pytest.mark.asyncio

HOUR = timedelta(hours=1)
DONE = Change(To("done"), None)
REST = Rest(HOUR, succeeded=True)
ODD = 'it\'s 100%s %(x)s {y} \\ "q" \t ä \U0001f600'


@pytest_asyncio.fixture
async def desk(store: Store) -> AsyncIterator[RowsDesk]:
    async with desk_on(store) as desk:
        yield desk


async def round_trip(desk: RowsDesk, clock: ManualClock, count: int, **options: Any) -> None:
    """Each row is claimed once, one at a time so that every place is come back to; rests; is claimed again; is done."""
    rows = await desk.rows("open", **options)
    holder = uuid4()
    batches = await sweep(rows, 1, holder)
    taken = [row for batch in batches for row in batch.rows]
    assert len({row.key for row in taken}) == len(taken) == count
    assert set((await settle_all(rows, taken, REST)).values()) == {"changed"}
    assert keys(await sweep(rows, 10)) == []
    assert await rows.forget() == 0
    clock.advance(hours=1)
    assert await rows.waiting(1_000) == count
    assert {listed[0] for listed in await rows.listed(1_000)} == {row.key for row in taken}
    more = await again(rows, holder, most=count)
    assert {row.key for row in more} == {row.key for row in taken}
    done = await rows.settle(holder, more, [DONE] * (count - 1) + [Remove(Delete())])
    assert set(done.values()) == {"changed"}
    assert len(done) == count
    assert await desk.known() == {}
    assert await rows.waiting(1_000) == 0


KEYS: list[tuple[str, str]] = [
    ("bigint", "n * 1000000000000"),
    ("smallint", "n"),
    ("uuid", "gen_random_uuid()"),
    ("text", "case n when 1 then '' when 2 then ' ' when 3 then 'NULL' when 4 then '{}' else 'k' || n end"),
    ("varchar(20)", "'k' || n"),
    ("char(5)", "'k' || n"),
    ("timestamptz", "timestamptz '2026-06-01 02:30:00.000001 Europe/Berlin' + n * interval '1 us'"),
    ("timestamptz", "case n when 1 then '-infinity' when 2 then 'infinity' else now() - n * interval '500 years' end"),
    ("timestamp", "timestamp '2026-06-01 02:30' + n * interval '1 us'"),
    ("date", "date '0001-01-01' - n"),
    ("numeric", "n / 3.0"),
    ("float8", "n / 3.0"),
    ("bytea", "decode(lpad(to_hex(n), 4, '0'), 'hex')"),
    ("inet", "inet '10.0.0.0' + n"),
    ("regclass", "(1000000 + n)::oid"),  # of tables that are no longer there
    ("regrole", "(1000000 + n)::oid"),
    ("interval", "n * interval '1 month 1 us'"),
    ("boolean", "n = 1"),
    ("positive", "n"),
    ("colour", "case n when 1 then 'red' else 'green' end::colour"),
    ('"C"."Odd %s type"', """case n when 1 then 'red' else 'green' end::"C"."Odd %s type\""""),
    ("name", "'k' || n"),
    ('text collate "C"', "case n % 2 when 0 then 'a' else 'B' end || n"),
]


@pytest.mark.parametrize(("kind", "value"), KEYS, ids=[kind for kind, _ in KEYS])
async def test_a_key_may_be_of_any_type(desk: RowsDesk, clock: ManualClock, kind: str, value: str) -> None:
    await desk.run("create type colour as enum ('red', 'green')")
    await desk.run('create schema "C"')
    await desk.run("""create type "C"."Odd %s type" as enum ('red', 'green')""")
    await desk.run("create domain positive as int check (value > 0)")
    await desk.run(f"create table t (id {kind} primary key, state text not null)")
    count = 2 if kind in ("boolean", "colour", '"C"."Odd %s type"') else 9
    await desk.run(f"insert into t select {value}, 'open' from generate_series(1, {count}) as n")
    await round_trip(desk, clock, count)


MOMENT = "'2026-06-05 12:00:00.5+00'"
SAME = {
    **dict.fromkeys(("timestamptz", "timestamp", "date"), MOMENT),
    "bytea": "'\\x00ff41'",
    "float8": "1 / 3.0::float8",
    "real": "1 / 3.0::float4",
    "regclass": "'app.named'",
    "regtype": "'app.named'",
}
SESSIONS = (
    *("timezone='Asia/Kolkata'", "datestyle='ISO, DMY'", "bytea_output='escape'", "extra_float_digits=-3"),
    "search_path=public, app",
)


@pytest.mark.matrix
@pytest.mark.parametrize("setting", SESSIONS)
@pytest.mark.parametrize("kind", SAME)
async def test_a_row_is_the_same_row_in_sessions_with_other_settings(
    desk: RowsDesk, clock: ManualClock, kind: str, setting: str
) -> None:
    await desk.run("create schema app; create table app.named ()")
    await desk.run(f"create table t (id {kind} primary key, other int not null, state text)")
    await desk.run(f"insert into t values ({SAME[kind]}, 1, 'open')")
    for key in ("id", ("id", "other")):
        rows = await desk.rows("open", key=key, handler=only_state, name="by_both" if key != "id" else "by_id")
        await settled(rows, await one(rows), REST)
    await desk.run(f"alter database {desk.connection.info.dbname} set {setting}")
    clock.advance(hours=1)
    for key in ("id", ("id", "other")):
        rows = await desk.rows("open", key=key, handler=only_state, name="by_both" if key != "id" else "by_id")
        assert await claimed(rows) == []
        (row,) = await again(rows)
        assert await settled(rows, row, Change(Stay(), HOUR)) == "changed"


def only_state(row: dict[str, Any]) -> None:
    """Nobody calls it."""


COMPOSITE = [
    ("a text, b int", "'x', n", ("a", "b")),
    ("a text, b int", "case n % 2 when 0 then 'a\"b' else '[]' end, n", ("b", "a")),
    ("a uuid, b timestamptz", "gen_random_uuid(), now() - n * interval '1 s'", ("a", "b")),
    ("a int, b int, c text", "n % 2, n % 3, 'x' || n", ("a", "b", "c")),
]


@pytest.mark.parametrize(("columns", "values", "key"), COMPOSITE)
async def test_a_key_may_be_of_several_columns(
    desk: RowsDesk, clock: ManualClock, columns: str, values: str, key: tuple[str, ...]
) -> None:
    await desk.run(
        f"create table t ({columns}, state text not null, changed_at timestamptz, primary key ({', '.join(key)}))"
    )
    moment = "case when n > 2 then timestamptz '2026-06-01Z' - n % 3 * interval '1 s' end"
    await desk.run(f"insert into t select {values}, 'open', {moment} from generate_series(1, 20) as n")
    await round_trip(desk, clock, 20, key=key, order_by="changed_at")


async def test_values_of_keys_may_be_any_text(desk: RowsDesk, clock: ManualClock) -> None:
    await desk.run("create table t (id text primary key, state text not null)")
    for n in range(5):
        await desk.run("insert into t values (%s, 'open')", ODD + str(n))
    await round_trip(desk, clock, 5)


async def test_names_and_states_may_be_anything(desk: RowsDesk, clock: ManualClock) -> None:
    await desk.run("""create schema "My %s Schema" """)
    names = '"select" int, "State {x}" text, "changed %(at)s" timestamptz, "or""der" int, "then" text, "Vers""ion" int'
    await desk.run(f'create table "My %s Schema"."User\'s %% {{t}}" ({names}, primary key ("select"))')
    for n in range(5):
        await desk.run('insert into "My %%s Schema"."User\'s %%%% {t}" values (%s, %s, %s, %s)', n, ODD, NOON - HOUR, n)
    rows = await desk.rows(
        ODD,
        table=("My %s Schema", "User's %% {t}"),
        key="select",
        state="State {x}",
        spec={"changed_at": "changed %(at)s", "version": 'Vers"ion'},
        stale_for="10m",
        claimed_as=ODD + " too",
    )
    taken = await claimed(rows)
    assert [row.key for row in taken] == ["0", "1", "2", "3", "4"]
    assert taken[0].values["State {x}"] == ODD + " too"
    assert await settled(rows, taken[0], REST) == "changed"
    assert await settled(rows, taken[1], Change(To("done", {"then": "x"}), None)) == "changed"
    assert await settled(rows, taken[2], Remove(Delete())) == "changed"
    clock.advance(hours=1)
    assert [row.key for row in await again(rows)] == [
        "3",
        "4",
        "0",
    ]  # two whose lease has passed, and the one that rested
    assert await rows.forget() == 0


async def test_an_order_may_be_by_a_column_with_an_odd_name(desk: RowsDesk) -> None:
    await desk.run('create table t (id int primary key, state text, "or%der" int)')
    await desk.run("insert into t select n, 'open', -n from generate_series(1, 5) as n")
    rows = await desk.rows("open", order_by="or%der")
    assert keys(await sweep(rows, 2)) == ["5", "4", "3", "2", "1"]


@pytest.mark.parametrize(
    "where",
    [
        "name like 'a%'",
        "name like 'a%' -- only those",
        "name like 'a%' /* 100% */ or false",
        "name = any('{abc,abd}')",
        "name ~ '^a.{2}$'",
        "t.name in ('abc', 'abd')",
        "name in ('abc', E'ab\\x64')",
    ],
)
async def test_a_condition_goes_in_as_it_is(desk: RowsDesk, clock: ManualClock, where: str) -> None:
    await desk.run("create table t (id int primary key, state text not null, name text)")
    await desk.run("insert into t values (1, 'open', 'abc'), (2, 'open', 'x'), (3, 'open', 'abd'), (4, 'open', null)")
    await round_trip(desk, clock, 2, spec={"where": where})
    assert await desk.scalar("select count(*) from t where state = 'open'") == 2


STATES: list[tuple[str, Any, Any, Any]] = [
    ("text", "open", "done", "working"),
    ("varchar(10)", "open", "done", "working"),
    ("char(10)", "open", "done", "working"),
    ("int", 1, 2, -3),
    ("smallint", 1, 2, -3),
    ("bigint", 2**40, 2, -3),
    ("mood", "open", "done", "working"),
    ("short", "open", "done", "working"),
]


@pytest.mark.matrix
@pytest.mark.parametrize("claims", [True, False], ids=["claimed_as", "plain"])
@pytest.mark.parametrize(("kind", "state", "to", "working"), STATES, ids=[kind for kind, *_ in STATES])
async def test_a_state_may_be_text_a_number_or_an_enum(
    desk: RowsDesk, clock: ManualClock, kind: str, state: Any, to: Any, working: Any, claims: bool
) -> None:
    await desk.run("create type mood as enum ('open', 'done', 'working')")
    await desk.run("create domain short as varchar(10)")
    await desk.run(f"create table t (id int primary key, state {kind} not null)")
    await desk.run(f"insert into t select n, '{state}' from generate_series(1, 3) as n")
    rows = await desk.rows(state, claimed_as=working if claims else None)
    holder = uuid4()
    taken = await claimed(rows, holder)
    shown = await desk.scalar("select state::text from t limit 1")
    assert shown == str(working if claims else state)
    assert await rows.settle(holder, taken, [REST, Change(To(to), None), Change(Stay(), None)]) == dict.fromkeys(
        "123", "changed"
    )
    after = await desk.run("select state::text from t order by id")
    assert [row["state"] for row in after] == [str(state), str(to), str(state)]
    clock.advance(hours=1)
    assert [row.key for row in await again(rows)] == ["1"]


async def test_a_time_without_a_zone_is_taken_as_utc_whatever_the_session_says(
    desk: RowsDesk, clock: ManualClock
) -> None:
    await desk.run(f"alter database {desk.connection.info.dbname} set timezone = 'Asia/Kolkata'")
    await desk.run("create table t (id int primary key, state text, changed_at timestamp, due_at timestamp)")
    await desk.run("insert into t values (1, 'open', '2026-06-01 11:50', '2026-06-01 12:00')")
    await desk.run("insert into t values (2, 'open', '2026-06-01 11:49:59.999999', '2026-06-01 12:00:00.000001')")
    stale = await desk.rows("open", stale_for="10m", spec={"changed_at": "changed_at"}, name="stale")
    row = await one(stale)
    assert (row.key, row.due_at) == ("2", NOON - timedelta(microseconds=1))
    due = await desk.rows("open", due_at="due_at", name="due", spec={"changed_at": "changed_at"})
    assert [row.key for row in await claimed(due)] == ["1"]
    assert await settled(stale, row, DONE) == "changed"
    assert await desk.scalar("select changed_at::text from t where id = 2") == "2026-06-01 12:00:00"


@pytest.mark.matrix(pairs=("by", "spec", "claimed_as"))
@pytest.mark.parametrize("claimed_as", [None, "working"])
@pytest.mark.parametrize("spec", [{"changed_at": "changed_at"}, {}, {"lease_columns": ("owner", "until")}])
@pytest.mark.parametrize("by", ["hash (id)", "range (id)", "list (place)"])
async def test_a_table_may_be_partitioned(
    desk: RowsDesk, clock: ManualClock, by: str, spec: dict[str, Any], claimed_as: str | None
) -> None:
    columns = "id int, state text not null, changed_at timestamptz, place text not null, owner text, until timestamptz"
    key = ("id", "place") if "list" in by else ("id",)
    await desk.run(f"create table t ({columns}, primary key ({', '.join(key)})) partition by {by}")
    parts = {
        "hash (id)": ["with (modulus 2, remainder 0)", "with (modulus 2, remainder 1)"],
        "range (id)": ["from (1) to (5)", "from (5) to (99)"],
        "list (place)": ["in ('0', '1')", "in ('2')"],
    }[by]
    for n, part in enumerate(parts):
        await desk.run(f"create table t{n} partition of t for values {part}")
    await desk.run("insert into t select n, 'open', '2026-06-01Z', n % 3 from generate_series(1, 9) as n")
    await round_trip(desk, clock, 9, key=key, spec=spec, claimed_as=claimed_as)


async def test_a_trigger_that_touches_every_row_makes_no_conflict(desk: RowsDesk, clock: ManualClock) -> None:
    await desk.run(
        "create table t (id int primary key, state text, changed_at timestamptz, size int generated always as (id * 2) stored,"
        " serial bigint generated always as identity)"
    )
    await desk.run(
        "create function touch() returns trigger language plpgsql as"
        " $$ begin new.changed_at := clock_timestamp(); return new; end $$"
    )
    await desk.run("create trigger touch before update on t for each row execute function touch()")
    await desk.run("insert into t select n, 'open', '2026-06-01Z' from generate_series(1, 9) as n")
    await round_trip(desk, clock, 9, spec={"changed_at": "changed_at"}, claimed_as="working")


async def test_a_change_that_a_trigger_suppresses_is_undone(desk: RowsDesk) -> None:
    await desk.run("create table t (id int primary key, state text)")
    await desk.run("create function no() returns trigger language plpgsql as $$ begin return null; end $$")
    await desk.run("create trigger no before update on t for each row execute function no()")
    await desk.run("insert into t values (1, 'open')")
    rows = await desk.rows("open")
    assert await settled(rows, await one(rows), DONE) == "undone"


async def test_a_value_that_python_cannot_hold_does_not_stop_the_others(desk: RowsDesk) -> None:
    await desk.run("create table t (id int primary key, state text, at timestamptz, span interval, hour time)")
    await desk.run(
        "insert into t values (1, 'open', 'infinity', '1000000000 days', '24:00'), (2, 'open', now(), '1 s', '1:00')"
    )
    rows = await desk.rows("open", order_by="at")
    taken = await claimed(rows)
    assert [row.key for row in taken] == ["2", "1"]


async def test_an_infinitely_old_row_is_stale_and_one_from_the_end_of_time_is_not(desk: RowsDesk) -> None:
    await desk.run("create table t (id int primary key, state text, changed_at timestamptz)")
    await desk.run(
        "insert into t values (1, 'open', '-infinity'), (2, 'open', 'infinity'), (3, 'open', '0044-03-15 BC')"
    )
    rows = await desk.rows("open", stale_for="10m", spec={"changed_at": "changed_at"})
    taken = await claimed(rows)
    assert [row.key for row in taken] == ["1", "3"]
    assert taken[0].lateness > timedelta(days=365 * 2000)
    assert await settle_all(rows, taken, DONE) == {"1": "changed", "3": "changed"}
