"""A table of somebody's, reconcilers over it, and one sweep at a time or workers that loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg.rows import dict_row

from tests.support.watching import Watched
from trueup import App
from trueup.reconcile.counts import Counts
from trueup.reconcile.declare import Table
from trueup.testing.worker import ManualWorker
from trueup.work.rows.sweeper import Sweeper
from trueup.work.worker import Worker

NAME = "fix"
THINGS = """
create table things (
  id int primary key, state text not null, changed_at timestamptz not null, due_at timestamptz,
  n int not null default 0 constraint small check (n < 1000), note varchar(20), twice int generated always as (n * 2) stored
);
create index on things (state, changed_at, id);
create index on things (state, due_at, id);
create table log (id int, said text)
"""


class Field:
    def __init__(self, app: App) -> None:
        self.app = app
        self.events = Watched(app)
        self.table: Table = app.table("things", key="id", state="state", changed_at="changed_at")
        self.manual = ManualWorker(app)

    async def prepare(self) -> None:
        await self.app.open()
        await self.do(THINGS)
        await self.manual.begin()

    async def close(self) -> None:
        await self.manual.end()

    # -- the table ----------------------------------------------------------------------------------------------------

    async def put(self, count: int = 1, state: str = "new", *, first: int = 1) -> None:
        """Rows that have been as they are for an hour and longer, the first for longest."""
        now = self.app.store.clock.now()
        await self.do(
            "insert into things (id, state, changed_at, due_at) select i, %(state)s, at - interval '1 h', at - interval '1 h'"
            " from generate_series(%(first)s::int, %(last)s::int) as i,"
            " lateral (select coalesce(%(now)s::timestamptz, now()) + i * interval '1 ms' - interval '1 m') as a(at)",
            {"state": state, "first": first, "last": first + count - 1, "now": now},
        )

    async def do(self, statement: str, params: Any = None) -> None:
        async with self.app.store.pool.use() as connection:
            await connection.execute(statement.encode(), params)

    async def ask(self, query: str, params: Any = None) -> list[dict[str, Any]]:
        async with self.app.store.pool.use() as connection, connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(query.encode(), params)
            return await cursor.fetchall()

    async def value(self, query: str, params: Any = None) -> Any:
        rows = await self.ask(query, params)
        return next(iter(rows[0].values())) if rows else None

    async def thing(self, key: int = 1) -> dict[str, Any]:
        (row,) = await self.ask("select * from things where id = %s", (key,))
        return row

    async def states(self) -> dict[str, int]:
        return {row["state"]: row["n"] for row in await self.ask("select state, count(*) as n from things group by 1")}

    async def checksum(self) -> str:
        """Of every row as it is stored, with its version."""
        query = "select md5(coalesce(string_agg(t::text || t.xmin::text, '' order by id), '')) from things as t"
        return str(await self.value(query))

    async def known(self, key: int = 1) -> dict[str, Any] | None:
        """What trueup knows about a row."""
        query = """select state, nullif(due_at, 'infinity') as due_at, holder, term, attempt, crashes, alone, reason, errors,
                      proposed from trueup.rows where reconciler = %s and key = %s"""
        rows = await self.ask(query, (NAME, str(key)))
        return rows[0] if rows else None

    async def gate(self) -> dict[str, Any]:
        (row,) = await self.ask("select * from trueup.reconcilers where name = %s", (NAME,))
        return row

    # -- the reconciler -----------------------------------------------------------------------------------------------

    def fix(self, handler: Callable[..., Any], *states: str, table: Table | None = None, **options: Any) -> None:
        given = {"name": NAME, "every": "1h", **options}
        if "due_at" not in given:
            given.setdefault("stale_for", "10m")
        (table or self.table).reconcile(*(states or ("new",)), **given)(handler)

    async def gather(self) -> Sweeper:
        """Look at the table, and nothing more."""
        row_services = self.manual.worker.row_services
        row_services.declare(self.app._reconcilers.all())
        await row_services.gather()
        return self.sweeper()

    async def sweep(self, name: str = NAME) -> Counts:
        return await self.manual.sweep(name)

    def sweeper(self, worker: Worker | None = None) -> Sweeper:
        member = (worker or self.manual.worker).row_services.members[NAME]
        assert isinstance(member, Sweeper)
        return member
