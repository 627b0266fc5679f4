"""Statements that read all of a large table are found before they run, and the index that is printed helps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection, sql

from trueup.errors import ConfigError
from trueup.events import Events
from trueup.reconcile.table import TableSpec
from trueup.store.db.load import Statements
from trueup.store.db.own_connection import OwnConnection
from trueup.store.rows.guard import MANY, index_ddl, unserved
from trueup.store.rows.tables import Found, find, named

pytestmark = pytest.mark.asyncio

SECONDS = timedelta(seconds=10)
PLAIN = "create table t (id int primary key, state text not null, due timestamptz not null, shop text)"
FILL = """
insert into {table} ({id}, {state}, {due}, {shop})
select n, case when n %% 1000 = 0 then 'open' else 'done' end, now() - n * interval '1 s', 'shop ' || n %% 10
  from generate_series(1, %(rows)s) as n
"""


class Shop:
    def __init__(self, url: str, connection: AsyncConnection[Any]) -> None:
        self.connection = connection
        self.events = Events()
        self.line = OwnConnection(url, "test", self.events, SECONDS, SECONDS)

    async def make(self, ddl: str) -> None:
        await self.connection.execute(ddl.encode())

    async def look(self, name: Any = "t", key: Any = "id", where: str | None = None, state: str = "state") -> Found:
        return await find(self.line, Statements("trueup"), TableSpec.of(name, key, state, where=where))

    async def fill(self, found: Found, rows: int = 3 * MANY) -> None:
        names = dict(zip(("id", "state", "due", "shop"), map(named, found.columns), strict=True))
        await self.connection.execute(
            sql.SQL(FILL).format(table=named(found.schema, found.name), **names), {"rows": rows}
        )
        await self.connection.execute(sql.SQL("analyze {}").format(sql.Identifier(found.schema, found.name)))

    async def unserved(self, found: Found, timeout: timedelta = SECONDS) -> int | None:
        return await unserved(
            self.line, claim(found), {"state": "open", "most": 100}, found, timeout=timeout, who="reconciler 'sweep'"
        )


def claim(found: Found) -> bytes:
    """Like the claims of a sweep: of one state, oldest first, locked, then changed."""
    columns = list(found.columns)
    spec = found.spec
    where = "" if spec.where is None else f" and ({spec.where})".replace("%", "%%")
    key = sql.SQL(", ").join(map(named, spec.key))
    text = """
    -- a comment, as files of statements begin with one
    with picked as materialized (
      select {key} from {table} where {state} = %(state)s{where} order by {due}, {key} limit %(most)s for update skip locked
    ), claimed as (
      update {table} as t set {state} = 'held' from picked where (t.{first}) = (picked.{first}) returning t.{first}
    )
    select * from claimed order by 1;
    """
    composed = sql.SQL(text).format(
        key=key,
        table=named(found.schema, found.name),
        state=named(columns[1]),
        due=named(columns[2]),
        first=named(spec.key[0]),
        where=sql.SQL(where),  # type: ignore[arg-type]
    )
    return composed.as_string(None).encode()


@pytest_asyncio.fixture
async def shop(empty_database_url: str) -> AsyncIterator[Shop]:
    async with await AsyncConnection.connect(empty_database_url, autocommit=True) as connection:
        shop = Shop(empty_database_url, connection)
        yield shop
        await shop.line.close()


ODD = "weird \"na%%me {x} %s 'é"


@pytest.mark.parametrize(
    ("ddl", "name", "key", "expected"),
    [
        (PLAIN, "t", "id", "CREATE INDEX CONCURRENTLY ON public.t (state, due, id);"),
        (
            'create schema "My app"; create table "My app"."Order" ("Id" int primary key, "group" text, "Due at" timestamptz, shop text)',
            "My app.Order",
            "Id",
            'CREATE INDEX CONCURRENTLY ON "My app"."Order" ("group", "Due at", "Id");',
        ),
        (
            "create table t (id int, state text, due timestamptz, shop text, primary key (id, shop))",
            "t",
            ("id", "shop"),
            "CREATE INDEX CONCURRENTLY ON public.t (state, due, id, shop);",
        ),
        (
            f'create table "{ODD.replace(chr(34), chr(34) * 2)}" (id int primary key, "a%b" text, "{{c}}" timestamptz, d text)',
            ("public", ODD),
            "id",
            'CREATE INDEX CONCURRENTLY ON public."weird ""na%%me {x} %s \'é" ("a%b", "{c}", id);',
        ),
    ],
)
async def test_the_index_that_is_printed_can_be_made_as_it_is_and_serves(
    shop: Shop, ddl: str, name: Any, key: Any, expected: str
) -> None:
    await shop.make(ddl)
    state, due = list((await shop.look(name, key)).columns)[1:3]
    await shop.fill(await shop.look(name, key))
    found = await shop.look(name, key, state=state)
    assert await shop.unserved(found) == 3 * MANY
    printed = index_ddl(found, state=True, order=[due])
    assert printed == expected
    await shop.make(printed)
    assert await shop.unserved(found) is None


PARTITIONED = """
create table t (id int, state text, due timestamptz, shop text, primary key (id, shop)) partition by list (shop);
create table "T 0" partition of t for values in ('shop 0');
create table t_1 partition of t for values in ('shop 1', 'shop 2', 'shop 3') partition by range (id);
create table t_1a partition of t_1 for values from (0) to (15000);
create table t_1b partition of t_1 default;
create table t_rest partition of t default;
create table t_empty partition of t for values in ('none');
"""


async def test_of_a_partitioned_table_all_partitions_count_and_one_index_serves_them(shop: Shop) -> None:
    await shop.make(PARTITIONED)
    key = ("id", "shop")
    await shop.fill(await shop.look("t", key))
    found = await shop.look("t", key)
    assert await shop.unserved(found) == 3 * MANY
    printed = index_ddl(found, state=True, order=["due"])
    assert printed.splitlines()[-1] == "CREATE INDEX ON public.t (state, due, id, shop);"
    assert all(line.startswith("-- ") for line in printed.splitlines()[:-1])
    await shop.make(printed)
    assert await shop.unserved(found) is None


async def test_an_index_made_on_each_partition_first_is_taken_over(shop: Shop) -> None:
    await shop.make("create table t (id int primary key, state text) partition by range (id)")
    await shop.make("create table t_1 partition of t default")
    await shop.make("create index concurrently of_t_1 on t_1 (state, id)")
    await shop.make(index_ddl(await shop.look(), state=True, order=[]))
    cursor = await shop.connection.execute("select count(*) from pg_inherits where inhrelid = 'of_t_1'::regclass")
    assert await cursor.fetchone() == (1,)


async def test_only_partitions_that_are_read_count(shop: Shop) -> None:
    await shop.make(PARTITIONED)
    await shop.fill(await shop.look("t", ("id", "shop")))
    found = await shop.look("t", ("id", "shop"), where="shop = 'shop 0'")
    assert await shop.unserved(found) is None
    found = await shop.look("t", ("id", "shop"), where="shop in ('shop 4', 'shop 5')")
    assert await shop.unserved(found) == 3 * MANY * 6 // 10


async def test_a_small_table_needs_no_index(shop: Shop) -> None:
    await shop.make(PLAIN)
    await shop.fill(await shop.look(), MANY - 1)
    assert await shop.unserved(await shop.look()) is None
    await shop.make("insert into t values (0, 'done', now(), ''); analyze t")
    assert await shop.unserved(await shop.look()) == MANY


BUSY = "update t set state = 'open'; analyze t"


async def test_an_existing_index_is_not_requested_when_the_planner_reads_the_table(shop: Shop) -> None:
    await shop.make(PLAIN)
    await shop.fill(await shop.look())
    await shop.make(BUSY)
    found = await shop.look(where="shop <> 'shop 1'")
    params = {"state": "open", "most": 3 * MANY}
    assert await unserved(shop.line, claim(found), params, found, timeout=SECONDS) is not None
    await shop.make(index_ddl(await shop.look(), state=True, order=["due"]))
    explained = await shop.line.fetch(b"explain " + claim(found), params)
    assert any("Seq Scan" in line for (line,) in explained)
    assert await unserved(shop.line, claim(found), params, found, timeout=SECONDS) is None


async def test_rows_that_were_found_may_be_fetched_by_reading_the_table(shop: Shop) -> None:
    await shop.make(PLAIN)
    await shop.fill(await shop.look())
    await shop.make(BUSY)
    found = await shop.look()
    await shop.make("create index on t (state)")
    await shop.make(index_ddl(found, state=True, order=["due"]))
    explained = await shop.line.fetch(b"explain " + claim(found), {"state": "open", "most": 3 * MANY})
    assert any("Hash Join" in line for (line,) in explained)
    assert await unserved(shop.line, claim(found), {"state": "open", "most": 3 * MANY}, found, timeout=SECONDS) is None


@pytest.mark.parametrize("other", ["(state)", "(shop)", "(id, state)", "(state, id)"])
async def test_another_index_does_not_do_when_the_planner_reads_the_table_all_the_same(shop: Shop, other: str) -> None:
    await shop.make(PLAIN)
    await shop.fill(await shop.look())
    await shop.make(f"create index on t {other}; {BUSY}")
    found = await shop.look()
    params = {"state": "open", "most": 3 * MANY}
    expected = 3 * MANY
    assert await unserved(shop.line, claim(found), params, found, timeout=SECONDS) == pytest.approx(expected, rel=0.01)


async def test_rows_in_key_order_are_served_by_the_key_unless_a_state_is_declared(
    shop: Shop,
) -> None:
    await shop.make(PLAIN)
    await shop.fill(await shop.look())
    found = await shop.look()
    every = b"select id from t order by id limit %(most)s"
    some = b"select id from t where state = 'gone' order by id limit %(most)s"
    for most in (100, 3 * MANY):
        assert await unserved(shop.line, every, {"most": most}, found, timeout=SECONDS) is None
    assert await unserved(shop.line, some, {"most": 100}, found, timeout=SECONDS) == 3 * MANY
    await shop.make(index_ddl(found, state=True, order=[]))
    assert await unserved(shop.line, some, {"most": 100}, found, timeout=SECONDS) is None


async def test_other_tables_of_the_statement_do_not_count(shop: Shop) -> None:
    await shop.make(PLAIN)
    await shop.make("create schema other; create table other.t (like public.t)")
    await shop.fill(await shop.look())
    found = await shop.look()
    await shop.make("insert into other.t select * from public.t; analyze other.t")
    query = b"select 1 from t where id = any(array(select id from other.t where state = %(state)s))"
    assert await unserved(shop.line, query, {"state": "open"}, found, timeout=SECONDS) is None


async def test_a_parallel_scan_is_a_scan(shop: Shop) -> None:
    await shop.make(PLAIN)
    await shop.fill(await shop.look(), 10 * MANY)
    settings = ("parallel_setup_cost", "parallel_tuple_cost", "min_parallel_table_scan_size")
    database = (await (await shop.connection.execute("select current_database()")).fetchone() or ("",))[0]
    for setting in settings:
        await shop.make(f"alter database {database} set {setting} = 0")
    query = b"select count(*) from t where shop = %(shop)s"
    await shop.line.drop()  # sessions that are open keep their settings
    found = await shop.look()
    explained = await shop.line.fetch(b"explain " + query, {"shop": "shop 1"})
    assert any("Parallel Seq Scan" in line for (line,) in explained)
    assert await unserved(shop.line, query, {"shop": "shop 1"}, found, timeout=SECONDS) == 10 * MANY


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("shopp = 'x'", 'column "shopp" does not exist'),
        ("shop = ", "syntax error"),
        ("id = 'abc'", "invalid input syntax for type integer"),
        ("id", "argument of AND must be type boolean"),
        ("1 / 0 = 1", "division by zero"),
    ],
)
async def test_a_condition_that_postgres_refuses_is_quoted_with_its_words(shop: Shop, where: str, said: str) -> None:
    await shop.make(PLAIN)
    found = await shop.look(where=where)
    with pytest.raises(ConfigError, match=said) as caught:
        await shop.unserved(found)
    assert "reconciler 'sweep'" in str(caught.value)
    assert f"where={where!r}" in str(caught.value)


async def test_a_refused_statement_leaves_the_connection_as_it_was(shop: Shop) -> None:
    await shop.make(PLAIN)
    before = await shop.line.fetch(b"select pg_backend_pid(), current_setting('statement_timeout')")
    with pytest.raises(ConfigError):
        await shop.unserved(await shop.look(where="nothing"))
    await shop.unserved(await shop.look())
    assert await shop.line.fetch(b"select pg_backend_pid(), current_setting('statement_timeout')") == before


async def test_nobody_waits_for_a_table_that_is_being_rebuilt(shop: Shop) -> None:
    await shop.make(PLAIN)
    found = await shop.look()
    before = await shop.line.fetch(b"select pg_backend_pid()")
    async with shop.connection.transaction():
        await shop.make("lock table t in access exclusive mode")
        assert await shop.unserved(found, timedelta(milliseconds=50)) is None
    assert await shop.line.fetch(b"select pg_backend_pid()") == before


async def test_a_database_that_goes_away_is_no_mistake_of_the_users(shop: Shop) -> None:
    await shop.make(PLAIN)
    found = await shop.look()
    query = b"select pg_terminate_backend(pg_backend_pid()), %(state)s::text, %(most)s::int"
    (pid,) = (await shop.line.fetch(b"select pg_backend_pid()"))[0]
    await shop.connection.execute("select pg_terminate_backend(%s)", [pid])
    with pytest.raises(psycopg.OperationalError):
        await unserved(shop.line, query, {"state": "", "most": 1}, found, timeout=SECONDS)


async def test_nothing_is_run(shop: Shop) -> None:
    await shop.make(PLAIN)
    found = await shop.look()
    await shop.fill(found, 10)
    assert await unserved(shop.line, b"delete from t where id > %(id)s", {"id": 0}, found, timeout=SECONDS) is None
    cursor = await shop.connection.execute("select count(*) from t")
    assert await cursor.fetchone() == (10,)


@pytest.mark.parametrize(
    "where",
    [
        "shop = 'shop 1'",
        "shop in ('shop 1', 'now()')",
        "(shop = 'it''s') or not (shop like '%1%')",
        "coalesce(shop, '') <> '' and id > 1.5",
        '"shop" is not null',
    ],
)
async def test_a_plain_condition_becomes_that_of_the_index(shop: Shop, where: str) -> None:
    await shop.make(PLAIN)
    await shop.fill(await shop.look())
    found = await shop.look(where=where)
    printed = index_ddl(found, state=True, order=["due"])
    assert printed == f"CREATE INDEX CONCURRENTLY ON public.t (state, due, id) WHERE ({where});"
    await shop.make(printed)
    assert await shop.unserved(found) is None


@pytest.mark.parametrize(
    "where",
    [
        "due < now()",
        "due < current_timestamp",
        "due + interval '1 day' < '2020-01-01'",
        "due::date = '2020-01-01'",
        "shop in (select 'shop 1')",
        "exists (select 1)",
        "t.shop = 'shop 1'",
        "shop = 'shop 1' -- for now\n",
        "shop = E'shop\\' 1'",
        "shop = $$shop 1$$",
        "\"substring\"(shop, 1) = 's'",
    ],
)
async def test_the_index_serves_without_a_condition_that_indexes_cannot_have(shop: Shop, where: str) -> None:
    await shop.make(PLAIN)
    await shop.fill(await shop.look())
    found = await shop.look(where=where)
    printed = index_ddl(found, state=True, order=["due"])
    assert printed == "CREATE INDEX CONCURRENTLY ON public.t (state, due, id);"
    assert await shop.unserved(found) == 3 * MANY
    await shop.make(printed)
    assert await shop.unserved(found) is None


async def test_an_index_names_each_column_once_and_the_state_only_where_it_counts(shop: Shop) -> None:
    await shop.make(PLAIN)
    found = await shop.look()
    assert "(due, id)" in index_ddl(found, state=False, order=["due"])
    assert "(state, due, id)" in index_ddl(found, state=True, order=["due", "id"])
    assert "(state, id)" in index_ddl(found, state=True, order=["state"])
