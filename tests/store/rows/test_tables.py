"""What is refused when a worker looks at a user's table, in which words, and what is let through."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection, sql
from psycopg.conninfo import make_conninfo

from trueup.errors import ConfigError
from trueup.events import Events
from trueup.reconcile.table import TableSpec
from trueup.store.db.load import Statements
from trueup.store.db.own_connection import OwnConnection
from trueup.store.rows.checks import check
from trueup.store.rows.tables import Found, find, named

pytestmark = pytest.mark.asyncio

WHO = "reconciler 'sweep'"
STATEMENTS = Statements("trueup")
SECONDS = timedelta(seconds=10)
WALLPAPERS = """
create type mood as enum ('uploading', 'stored', 'It''s "odd"');
create table wallpapers (
  id bigint generated always as identity primary key, upload_state mood not null, state_changed_at timestamptz not null,
  version int not null default 0, owner text, until timestamptz, title varchar(8), level smallint, done boolean,
  born date, seen timestamp, note text, twice int generated always as (level * 2) stored
);
"""


class Shop:
    """Somebody's database, and a connection of ours to it."""

    def __init__(self, url: str, connection: AsyncConnection[Any]) -> None:
        self.url = url
        self.connection = connection

    async def make(self, ddl: str) -> None:
        await self.connection.execute(ddl.encode())

    async def look(self, name: str | tuple[str, str] = "wallpapers", key: Any = "id", **declared: Any) -> Found:
        return await self.look_as(None, name, key, **declared)

    async def look_as(self, role: str | None, name: Any = "wallpapers", key: Any = "id", **declared: Any) -> Found:
        url = self.url if role is None else make_conninfo(self.url, options=f"-c role={role}")
        line = OwnConnection(url, "test", Events(), SECONDS, SECONDS)
        try:
            return await find(line, STATEMENTS, TableSpec.of(name, key, **declared), WHO)
        finally:
            await line.close()


@pytest_asyncio.fixture
async def shop(empty_database_url: str) -> AsyncIterator[Shop]:
    async with await AsyncConnection.connect(empty_database_url, autocommit=True) as connection:
        yield Shop(empty_database_url, connection)


@pytest_asyncio.fixture
async def role(shop: Shop) -> AsyncIterator[str]:
    """Somebody who may do nothing. Roles belong to the server, not to the database."""
    await shop.make("create role clerk")
    yield "clerk"
    await shop.make("drop owned by clerk; drop role clerk")


def refused(*said: str) -> Any:
    """ConfigError that says all of this, in this order, and names the reconciler."""
    return pytest.raises(ConfigError, match=r"(?s)reconciler 'sweep'.*" + ".*".join(re.escape(part) for part in said))


async def test_a_table_is_described_column_by_column_in_its_own_order(shop: Shop) -> None:
    await shop.make(WALLPAPERS)
    found = await shop.look(state="upload_state")
    assert (found.schema, found.name, found.quoted) == ("public", "wallpapers", "public.wallpapers")
    assert named(found.schema, found.name) == sql.Identifier("public", "wallpapers")
    assert list(found.columns)[:3] == ["id", "upload_state", "state_changed_at"]
    state = found.columns["upload_state"]
    assert (state.type, state.category, state.not_null) == ("mood", "enum", True)
    assert state.labels == ("uploading", "stored", 'It\'s "odd"')
    assert not found.partitioned
    assert found.type("state_changed_at") == "timestamp with time zone"
    assert {name for name, column in found.columns.items() if column.generated} == {"id", "twice"}
    check(found, WHO, states=["uploading", 'It\'s "odd"'])


@pytest.mark.parametrize(
    ("declared", "type_", "category"),
    [
        ("text", "text", "text"),
        ("varchar(3)", "character varying", "text"),
        ("char(3)", "bpchar", "text"),
        ("name", "name", "text"),
        ('"char"', '"char"', "other"),
        ("smallint", "smallint", "int"),
        ("int", "integer", "int"),
        ("bigint", "bigint", "int"),
        ("numeric(5, 2)", "numeric", "other"),
        ("timestamptz(0)", "timestamp with time zone", "timestamptz"),
        ("timestamp(3)", "timestamp without time zone", "timestamp"),
        ("date", "date", "other"),
        ("uuid", "uuid", "uuid"),
        ("json", "json", "json"),
        ("jsonb", "jsonb", "json"),
        ("boolean", "boolean", "other"),
        ("text[]", "text[]", "other"),
        ("bit(3)", '"bit"', "other"),
        ('app."Mood"', 'app."Mood"', "enum"),
        ("app.short", "character varying", "text"),
        ("app.shorter", "character varying", "text"),
        ("app.moods", 'app."Mood"', "enum"),
    ],
)
async def test_a_type_is_printed_so_that_a_cast_to_it_cuts_nothing(
    shop: Shop, declared: str, type_: str, category: str
) -> None:
    await shop.make(
        "create schema app; create type app.\"Mood\" as enum ('a', 'b'); create domain app.moods as app.\"Mood\";"
        "create domain app.short as varchar(3); create domain app.shorter as app.short not null check (value <> '');"
        f"create table t (id int primary key, c {declared})"
    )
    column = (await shop.look("t")).columns["c"]
    assert (column.type, column.category) == (type_, category)
    if category == "text" and declared != "name":
        cursor = await shop.connection.execute(f"select 'abcdefgh'::{column.type}".encode())
        assert await cursor.fetchone() == ("abcdefgh",)
        assert column.length == (None if declared == "text" else 3)
    assert column.not_null == (declared == "app.shorter")
    assert column.labels == (("a", "b") if category == "enum" else ())


ODD = "weird \"na%%me {x} %s 'é"


async def test_names_of_any_kind_are_taken_as_they_are(shop: Shop) -> None:
    columns = ("Id", "select", ODD)
    await shop.connection.execute(
        sql.SQL("create schema {s}; create table {s}.{t} ({a} int primary key, {b} text, {c} timestamptz)").format(
            s=sql.Identifier(ODD), t=sql.Identifier(ODD), **dict(zip("abc", map(sql.Identifier, columns), strict=True))
        )
    )
    found = await shop.look((ODD, ODD), "Id", state="select", changed_at=ODD)
    assert (found.schema, found.name, tuple(found.columns)) == (ODD, ODD, columns)
    check(found, WHO, states=["x"], stale_for=True)
    query = sql.SQL("select {} from {} where {} = %(state)s").format(
        named(ODD), named(found.schema, found.name), named("select")
    )
    assert await (await shop.connection.execute(query, {"state": "x"})).fetchall() == []


async def test_a_name_without_a_schema_is_found_along_the_search_path(shop: Shop) -> None:
    await shop.make("create schema app; create table app.t (id int primary key); create table public.t (id int)")
    assert (await shop.look("t")).schema == "public"
    found = await find_with(shop, "app,public", "t")
    assert found.schema == "app"
    assert (await shop.look("app.t")).schema == "app"


async def find_with(shop: Shop, search_path: str, name: str) -> Found:
    other = Shop(make_conninfo(shop.url, options=f"-c search_path={search_path}"), shop.connection)
    return await other.look(name)


async def test_a_missing_table_is_named_with_those_that_may_be_meant(shop: Shop) -> None:
    await shop.make(
        WALLPAPERS + "create schema app; create schema old; create table app.orders (); create table old.orders ()"
    )
    with refused("'WALLPAPER'", "no such table", 'search_path is "$user", public', "did you mean 'wallpapers'?"):
        await shop.look("WALLPAPER")
    with refused("'orders'", "no such table", "did you mean 'app.orders' or 'old.orders'?"):
        await shop.look("orders")
    with refused("in schema 'app'", "did you mean 'orders'?"):
        await shop.look("app.order")
    with refused("'app.wallpapers'", "did you mean 'public.wallpapers'?"):
        await shop.look("app.wallpapers")
    with refused("there is no schema 'ap'", "did you mean 'app'?"):
        await shop.look("ap.orders")


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("create view v as select * from wallpapers", "is a view: its rows cannot be claimed; name the table under it"),
        ("create materialized view v as select * from wallpapers", "is a materialized view"),
        ("create index v on wallpapers (note)", "is an index"),
        ("create sequence v", "is a sequence"),
        ("create type v as (a int)", "is a composite type"),
        (
            "create foreign data wrapper w; create server s foreign data wrapper w; create foreign table v (id int) server s",
            "is a foreign table",
        ),
    ],
)
async def test_what_is_no_table_is_refused(shop: Shop, ddl: str, said: str) -> None:
    await shop.make(WALLPAPERS + ddl)
    with refused("table 'v'", said):
        await shop.look("v")


@pytest.mark.parametrize("does", ["instead nothing", "also insert into log values (old.id)"])
@pytest.mark.parametrize("event", ["update", "delete"])
async def test_a_table_with_rules_that_rewrite_our_statements_is_refused_by_their_names(
    shop: Shop, event: str, does: str
) -> None:
    await shop.make("create table t (id int primary key); create table log (id int)")
    await shop.make(f'create rule "Keep it" as on {event} to t do {does}')
    with refused('has rules for UPDATE or DELETE ("Keep it")', "replace them by triggers, and DROP RULE"):
        await shop.look("t")
    await shop.make('alter table t disable rule "Keep it"')
    check(await shop.look("t"), WHO)


async def test_a_rule_for_inserts_is_none_of_our_business(shop: Shop) -> None:
    await shop.make("create table t (id int primary key); create table log (id int)")
    await shop.make("create rule noted as on insert to t do also insert into log values (new.id)")
    check(await shop.look("t"), WHO)


async def test_a_table_that_others_inherit_from_is_refused(shop: Shop) -> None:
    await shop.make("create table t (id int primary key); create table more () inherits (t)")
    with refused("has tables that inherit from it", "name one of them"):
        await shop.look("t")
    await shop.make("drop table more")
    assert (await shop.look("t")).name == "t"


async def test_a_promise_of_values_that_was_not_checked_is_none(shop: Shop) -> None:
    if shop.connection.info.server_version < 180000:
        pytest.skip("NOT NULL is always checked before PostgreSQL 18")
    await shop.make("create table t (id int unique, a int not null); insert into t values (null, 1)")
    await shop.make("alter table t add constraint checked_later not null id not valid")
    found = await shop.look("t")
    assert (found.columns["id"].not_null, found.columns["a"].not_null) == (False, True)
    with refused("'id' may be NULL"):
        check(found, WHO)


async def test_a_temporary_table_of_another_session_is_refused_as_such(shop: Shop) -> None:
    await shop.make("create temp table t (id int primary key)")
    for name in ("t", "pg_temp.t"):
        with refused("is a temporary table"):
            await shop.look(name)
    cursor = await shop.connection.execute("select pg_my_temp_schema()::regnamespace::text")
    with refused("is a temporary table"):
        await shop.look(((await cursor.fetchone()) or "")[0] + ".t")


@pytest.mark.parametrize("part", ["state", "changed_at", "version"])
async def test_a_missing_column_is_named_with_those_that_are_there(shop: Shop, part: str) -> None:
    await shop.make(WALLPAPERS)
    found = await shop.look(**{part: "Stat_Changed_At"})
    said = (
        f"{part}='Stat_Changed_At'",
        "no such column",
        "did you mean 'state_changed_at'",
        "it has id, upload_state,",
    )
    with refused("'public.wallpapers'", *said):
        check(found, WHO)


async def test_columns_that_only_a_reconciler_names_are_looked_for_too(shop: Shop) -> None:
    await shop.make(WALLPAPERS)
    found = await shop.look()
    for given in ({"due_at": "dew"}, {"order_by": "dew"}, {"also": ["dew"]}, {"reads": ["dew"]}):
        with refused("'dew'", "no such column"):
            check(found, WHO, **given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no such column"):
        found.type("dew")
    for declared in ({"key": "dew"}, {"lease_columns": ("owner", "dew")}):
        with refused("'dew'", "no such column"):
            check(await shop.look(**declared), WHO)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"state": "done"}, ("state='done' is of type boolean", "text, a whole number or an enum")),
        ({"state": "born"}, ("state='born' is of type date",)),
        ({"changed_at": "born"}, ("changed_at='born' is of type date", "timestamp with time zone")),
        ({"changed_at": "note"}, ("changed_at='note' is of type text",)),
        ({"version": "note"}, ("version='note' is of type text", "smallint, integer or bigint")),
        ({"lease_columns": ("level", "until")}, ("owner='level' is of type smallint",)),
        ({"lease_columns": ("owner", "seen")}, ("until='seen' is of type timestamp without time zone",)),
        ({"lease_columns": ("title", "until")}, ("'title' is too short for the name of a holder", "TYPE text")),
        ({"lease_columns": ("owner", "state_changed_at")}, ("'state_changed_at' is NOT NULL", "DROP NOT NULL")),
        ({"version": "twice"}, ("version='twice' is generated",)),
        ({"state": "twice"}, ("state='twice' is generated",)),
    ],
)
async def test_a_column_that_cannot_be_what_it_is_declared_to_be_is_refused(
    shop: Shop, declared: dict[str, Any], said: tuple[str, ...]
) -> None:
    await shop.make(WALLPAPERS)
    with refused(*said):
        check(await shop.look(**declared), WHO)


async def test_moments_may_have_a_zone_or_none_and_nothing_else_is_one(shop: Shop) -> None:
    await shop.make(WALLPAPERS)
    found = await shop.look(changed_at="seen", version="version", lease_columns=("owner", "until"))
    for column in ("seen", "until"):
        check(found, WHO, due_at=column, stale_for=True, order_by="note")
    for column in ("born", "note"):
        with refused(f"due_at='{column}' is of type", "timestamp with time zone"):
            check(found, WHO, due_at=column)


async def test_staleness_needs_the_time_of_the_last_change(shop: Shop) -> None:
    await shop.make(WALLPAPERS)
    with refused("stale_for=", "changed_at="):
        check(await shop.look(), WHO, stale_for=True)


async def test_a_state_that_an_enum_does_not_have_is_refused_with_its_labels(shop: Shop) -> None:
    await shop.make(WALLPAPERS)
    found = await shop.look(state="upload_state")
    for given in ({"states": ["Uploading"]}, {"claimed_as": "Uploading"}, {"moves_to": ["Uploading"]}):
        with refused("'Uploading'", "it has uploading, stored", "did you mean 'uploading'?"):
            check(found, WHO, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        *((state, "not a whole number") for state in ("", "open", "1.0", "1_0", " 1", "+1", "01", "-0", "٣", "1\n")),
        *((state, "between -32768 and 32767") for state in ("32768", "-32769", "9" * 5000)),
    ],
)
async def test_a_state_that_an_integer_cannot_be_is_refused(shop: Shop, state: str, said: str) -> None:
    await shop.make(WALLPAPERS)
    with refused("cannot be in 'level' (smallint)", said):
        check(await shop.look(state="level"), WHO, states=[state])


async def test_states_that_fit_their_column_are_accepted(shop: Shop) -> None:
    await shop.make(WALLPAPERS)
    check(await shop.look(state="level"), WHO, states=["0", "-32768", "32767"])
    check(await shop.look(state="note"), WHO, states=["", "x" * 500])
    check(await shop.look(state="title"), WHO, states=["éééééééé"])
    with refused("only 8 characters fit"):
        check(await shop.look(state="title"), WHO, states=["ok"], claimed_as="PROCESSING")
    with refused("'open' is given, but the table was declared without state="):
        check(await shop.look(), WHO, states=["open"])


@pytest.mark.parametrize(
    ("ddl", "key", "said"),
    [
        ("create table t (a int not null, b int not null)", "a", ("key='a' is not unique", "ON public.t (a)")),
        ("create table t (a int not null, b int not null, unique (a, b))", "a", ("key=('a', 'b') would be unique",)),
        ("create table t (a int not null); create unique index i on t (a) where a > 0", "a", ("'i' is partial",)),
        ("create table t (a int not null, constraint i unique (a) deferrable)", "a", ("'i' is deferrable",)),
        ("create table t (a int not null); create unique index i on t (abs(a))", "a", ("key='a' is not unique",)),
        ("create table t (a int unique)", "a", ("'a' may be NULL", "SET NOT NULL")),
        ("create table t (a int, b int not null, unique (a, b))", ("a", "b"), ("'a' may be NULL",)),
        (
            "create table t (a int, b int, primary key (a, b)) partition by list (b);"
            "create table t1 partition of t for values in (1); create unique index on t1 (a)",
            "a",
            ("key=('a', 'b') would be unique", "the columns it is partitioned by"),
        ),
    ],
)
async def test_a_key_that_may_be_shared_by_two_rows_is_refused(
    shop: Shop, ddl: str, key: Any, said: tuple[str, ...]
) -> None:
    await shop.make(ddl)
    with refused(*said):
        check(await shop.look("t", key), WHO)


async def test_an_index_whose_building_failed_makes_nothing_unique(shop: Shop) -> None:
    await shop.make("create table t (a int not null); insert into t values (1), (1)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        await shop.make("create unique index concurrently i on t (a)")
    with refused("'i' is not valid"):
        check(await shop.look("t", "a"), WHO)


@pytest.mark.parametrize(
    ("ddl", "key"),
    [
        ("create table t (a int, b text, primary key (a))", ("a", "b")),
        ("create table t (a int not null, b text not null, c int, unique (b, a) include (c))", ("a", "b")),
        ("create table t (a int, b int, primary key (a, b)) partition by list (b)", ("a", "b")),
        ("create domain given as int not null; create table t (a given unique)", "a"),
    ],
)
async def test_a_key_is_unique_by_any_index_on_it_or_on_a_part_of_it(shop: Shop, ddl: str, key: Any) -> None:
    await shop.make(ddl.replace("b text,", "b text not null,"))
    check(await shop.look("t", key), WHO)


async def test_a_column_that_postgres_writes_itself_may_be_key_but_not_set(shop: Shop) -> None:
    await shop.make(WALLPAPERS)
    found = await shop.look(state="twice")
    check(found, WHO, states=["4"], deletes=True)
    with refused("column='id' is generated"):
        check(await shop.look(), WHO, also=["id"])


async def test_rights_that_are_missing_are_named_as_the_grant_to_give(shop: Shop, role: str) -> None:
    await shop.make(WALLPAPERS)
    declared = {"state": "upload_state", "changed_at": "state_changed_at"}
    for rights in ("SELECT, UPDATE", "DELETE"):
        grant = f"GRANT {rights} ON public.wallpapers TO clerk"
        with refused(grant):
            check(await shop.look_as(role, **declared), WHO, deletes=rights == "DELETE")
        await shop.make(grant)
        check(await shop.look_as(role, **declared), WHO)
    check(await shop.look_as(role, **declared), WHO, deletes=True)


async def test_rights_on_single_columns_count(shop: Shop, role: str) -> None:
    await shop.make(WALLPAPERS + "grant select (id, upload_state), update (note) on wallpapers to clerk")
    found = await shop.look_as(role, state="upload_state", changed_at="state_changed_at")
    expected = "GRANT SELECT (state_changed_at), UPDATE (upload_state, state_changed_at) ON public.wallpapers TO clerk"
    with refused(expected):
        check(found, WHO)
    await shop.make(expected)
    found = await shop.look_as(role, state="upload_state", changed_at="state_changed_at")
    check(found, WHO, also=["note"])
    with refused("GRANT UPDATE (title) ON"):
        check(found, WHO, also=["title"])
    with refused("GRANT SELECT (title) ON"):
        check(found, WHO, reads=["title"])


async def test_deleting_needs_the_right_to_lock_rows_as_well(shop: Shop, role: str) -> None:
    await shop.make(WALLPAPERS + "grant select, delete on wallpapers to clerk")
    with refused("GRANT UPDATE ON public.wallpapers TO clerk"):
        check(await shop.look_as(role), WHO, deletes=True)
    await shop.make("grant update (note) on wallpapers to clerk")
    check(await shop.look_as(role), WHO, deletes=True)


async def test_a_schema_that_may_not_be_used_is_named_as_the_grant_to_give(shop: Shop, role: str) -> None:
    await shop.make('create schema "My app"; create table "My app".t (id int primary key)')
    with refused('GRANT USAGE ON SCHEMA "My app" TO clerk'):
        await shop.look_as(role, "My app.t")
    with refused("there is no such table", 'GRANT USAGE ON SCHEMA "My app" TO clerk'):
        await shop.look_as(role, "t")
    await shop.make('grant usage on schema "My app" to clerk')
    assert (await shop.look_as(role, "My app.t")).schema == "My app"


GUARDED = WALLPAPERS + "alter table wallpapers enable row level security; grant all on wallpapers to clerk;"
FOR_TENANTS = "create policy \"Tenants only\" on wallpapers using (owner = current_setting('app.tenant', true));"
HIDDEN = "row-level security applies to the role clerk"


@pytest.mark.parametrize("also", ["", FOR_TENANTS, "create policy new on wallpapers to clerk with check (true);"])
async def test_row_level_security_that_hides_rows_is_an_error_with_what_to_do(shop: Shop, role: str, also: str) -> None:
    await shop.make(GUARDED + also)
    found = await shop.look_as(role, state="upload_state")
    with refused(HIDDEN, "no policy for SELECT, UPDATE names it", "all rows would be hidden") as error:
        check(found, WHO, states=["stored"])
    assert ('("Tenants only": for every role, with a condition)' in str(error.value)) == (also == FOR_TENANTS)
    run, other = re.findall(r"run: (.*), or: (.*)$", str(error.value))[0]
    await shop.make(other)
    check(await shop.look_as(role, state="upload_state"), WHO, states=["stored"], deletes=True)
    await shop.make("alter role clerk nobypassrls;" + run)
    check(await shop.look_as(role, state="upload_state"), WHO, states=["stored"])
    check(await shop.look_as(role, state="upload_state"), WHO, states=["stored"], deletes=True)
    await shop.make("insert into wallpapers (upload_state, state_changed_at) values ('stored', now()); set role clerk")
    claimed = await shop.connection.execute("select from wallpapers for update skip locked")
    assert claimed.rowcount == 1, "what the message says to run is enough"
    await shop.make("reset role")


async def test_a_policy_for_each_command_that_is_needed_will_do(shop: Shop, role: str) -> None:
    await shop.make(GUARDED)
    for policy, missing in (
        (
            "create policy a on wallpapers for select to clerk using (owner = 'me')",
            "no policy for UPDATE, DELETE names",
        ),
        ("create policy b on wallpapers for update to clerk using (true)", "no policy for DELETE names"),
    ):
        await shop.make(policy)
        with refused(HIDDEN, missing, "CREATE POLICY trueup ON public.wallpapers TO clerk USING (true)"):
            check(await shop.look_as(role), WHO, deletes=True)
    check(await shop.look_as(role), WHO)
    await shop.make("create policy c on wallpapers for delete using (true)")
    check(await shop.look_as(role), WHO, deletes=True)


async def test_a_policy_for_a_role_that_ours_belongs_to_is_meant_for_ours(shop: Shop, role: str) -> None:
    await shop.make("create role staff")
    try:
        await shop.make(GUARDED + "create policy p on wallpapers to staff using (owner = 'me')")
        with refused(HIDDEN):
            check(await shop.look_as(role), WHO)
        await shop.make("grant staff to clerk")
        check(await shop.look_as(role), WHO)
    finally:
        await shop.make("drop owned by staff; drop role staff")


async def test_a_restrictive_policy_for_every_role_is_refused_whatever_others_allow(shop: Shop, role: str) -> None:
    await shop.make(GUARDED + "create policy p on wallpapers to clerk using (true);" + FOR_TENANTS)
    check(await shop.look_as(role), WHO)
    await shop.make("create policy wall on wallpapers as restrictive for update using (owner = 'me')")
    with refused(
        HIDDEN, "the restrictive policy wall applies to every role", "ALTER POLICY wall ON public.wallpapers TO …"
    ):
        check(await shop.look_as(role), WHO)
    await shop.make("alter policy wall on wallpapers to clerk")
    check(await shop.look_as(role), WHO)


async def test_row_level_security_that_does_not_apply_is_no_concern(shop: Shop, role: str) -> None:
    await shop.make(GUARDED)
    check(await shop.look(), WHO, deletes=True)  # superusers see everything
    await shop.make("alter table wallpapers owner to clerk")
    check(await shop.look_as(role), WHO, deletes=True)
    await shop.make("alter table wallpapers force row level security")
    with refused(HIDDEN):
        check(await shop.look_as(role), WHO)


async def test_policies_of_a_partition_do_not_count_for_the_table_it_is_part_of(shop: Shop, role: str) -> None:
    await shop.make(
        "create table p (id int primary key) partition by range (id); create table p1 partition of p for values from (0) to (5);"
        "alter table p1 enable row level security; insert into p values (1); grant all on p, p1 to clerk"
    )
    check(await shop.look_as(role, "p"), WHO)
    with refused(HIDDEN):
        check(await shop.look_as(role, "p1"), WHO)


async def test_a_partition_in_another_database_is_refused_by_name(shop: Shop) -> None:
    await shop.make(
        "create foreign data wrapper far; create server there foreign data wrapper far;"
        "create table p (id int not null) partition by range (id); create table p1 partition of p for values from (0) to (5);"
        "create table p2 partition of p for values from (5) to (9) partition by range (id);"
        'create foreign table "P 3" partition of p2 for values from (5) to (7) server there;'
        "create unique index on p1 (id)"
    )
    with refused("table 'p'", 'its partition "P 3" is a foreign table', "detach it, or declare each local partition"):
        await shop.look("p")
    check(await shop.look("p1"), WHO)
    await shop.make('alter table p2 detach partition "P 3"')
    assert (await shop.look("p")).partitioned


async def test_a_table_that_somebody_rebuilds_is_described_all_the_same(shop: Shop) -> None:
    await shop.make(WALLPAPERS)
    async with shop.connection.transaction():
        await shop.make("lock table wallpapers in access exclusive mode")
        found = await shop.look(state="upload_state")
    check(found, WHO, states=["stored"])


async def test_a_table_may_be_a_partition_or_have_dropped_columns(shop: Shop) -> None:
    await shop.make(
        "create table p (gone int, id int primary key) partition by range (id); alter table p drop column gone;"
        "create table p1 partition of p for values from (0) to (500)"
    )
    found = await shop.look("p1")
    assert list(found.columns) == ["id"]
    check(found, WHO)
