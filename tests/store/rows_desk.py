"""What tests of reconcilers' statements do over and over: make a table, declare a reconciler on it, claim, settle, look."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from trueup.backoff import Retry
from trueup.jobs.failure import Failure
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.declare import Table
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.reconcile.table import TableSpec
from trueup.store.db import loaders
from trueup.store.db.own_connection import OwnConnection
from trueup.store.db.repository import Database
from trueup.store.rows import checks, tables
from trueup.store.rows.batch import Batch
from trueup.store.rows.purges import Purges
from trueup.store.rows.rows import Rows
from trueup.store.store import Store

SECONDS = timedelta(seconds=10)
RETRY = Retry(max_attempts=3)
OWNER = "host:1"


def failure(message: str = "boom") -> Failure:
    return Failure(1, "ValueError", message, "")


class Declared:
    """Takes what is declared on a table, in place of an App."""

    def __init__(self) -> None:
        self.one: Reconciler | Purge | None = None

    def __call__(self, declared: Reconciler | Purge) -> None:
        self.one = declared


@dataclass
class RowsDesk:
    """Tables are described by keywords of TableSpec; everything else goes to `reconcile`, `move` or `delete`."""

    store: Store
    connection: AsyncConnection[Any]
    lines: list[OwnConnection] = field(default_factory=list)

    async def run(self, query: str, *params: object) -> list[dict[str, Any]]:
        """Any statement, as the user's own code would send it."""
        async with self.connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(query.encode(), params or None)
            return await cursor.fetchall() if cursor.description else []

    async def scalar(self, query: str, *params: object) -> Any:
        rows = await self.run(query, *params)
        return next(iter(rows[0].values())) if rows else None

    @asynccontextmanager
    async def elsewhere(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A transaction of the user's that is rolled back at the end."""
        async with await AsyncConnection.connect(self.store.url) as connection:
            yield connection
            await connection.rollback()

    def line(self) -> OwnConnection:
        line = self.store.own_connection("test", keep=True, for_rows=True)
        self.lines.append(line)
        return line

    # -- reconcilers --------------------------------------------------------------------------------------------------

    async def rows(
        self,
        *states: Any,
        table: Any = "t",
        key: Any = "id",
        state: str | None = "state",
        handler: Any = None,
        database: Database | None = None,
        spec: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Rows:
        """A reconciler's rows. `database` is what its statements are sent through; otherwise a line of its own."""

        def look(row) -> None:  # type: ignore[no-untyped-def]
            """What nobody calls here."""

        declared = Declared()
        options = {"name": "look", "retry": RETRY, **options}
        Table(declared, TableSpec.of(table, key, state, **(spec or {}))).reconcile(*states, **options)(handler or look)
        reconciler = declared.one
        assert isinstance(reconciler, Reconciler)
        found = await self.found(reconciler)
        database = database or self.line()
        store = self.store
        enqueue = store.enqueue
        return Rows(
            database, database, store.statements, store.clock, enqueue, reconciler, found, owner=OWNER, timeout=SECONDS
        )

    async def purges(
        self,
        verb: str,
        *states: Any,
        table: Any = "t",
        key: Any = "id",
        state: str | None = "state",
        database: Database | None = None,
        spec: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Purges:
        declared = Declared()
        spec_of = TableSpec.of(table, key, state, **(spec or {}))
        getattr(Table(declared, spec_of), verb)(*states, name="sweep", **options)
        purge = declared.one
        assert isinstance(purge, Purge)
        found = await self.found(purge)
        if purge.lane is not None:
            await self.store.lanes.register([purge.lane])
        return Purges(database or self.line(), self.store.statements, self.store.clock, purge, found, SECONDS)

    async def found(self, declared: Reconciler | Purge) -> tables.Found:
        """The table, checked as a worker checks it."""
        selection = declared.selection
        line = self.line()
        found = await tables.find(line, self.store.statements, selection.table)
        checks.check(
            found,
            "reconciler",
            states=selection.states,
            stale_for=selection.stale_for is not None,
            due_at=selection.due_at,
            order_by=selection.order.column,
            claimed_as=selection.claimed_as,
            deletes=isinstance(declared, Purge) and declared.to is None,
        )
        return found

    # -- what is known ------------------------------------------------------------------------------------------------

    async def known(self) -> dict[str, dict[str, Any]]:
        """What trueup knows about rows, by key."""
        return {row["key"]: row for row in await self.run("select * from trueup.rows order by key")}

    async def plant(self, keys: str, state: str = "resting", due_in: str = "1 day", name: str = "look") -> None:
        """Make rows known: `keys` is a select of texts."""
        query = (
            "insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at) "
            f"select %s, k.key, %s, %s + %s::interval, nextval('trueup.row_terms'), 1, %s, %s from ({keys}) as k(key)"
        )
        now: datetime | None = self.store.clock.now()
        await self.run(query, name, state, now, due_in, now, now)


@asynccontextmanager
async def desk_on(store: Store) -> AsyncIterator[RowsDesk]:
    async with await AsyncConnection.connect(store.url, autocommit=True, context=loaders.context()) as connection:
        desk = RowsDesk(store, connection)
        yield desk
        for line in desk.lines:
            await line.close()


async def claimed(rows: Rows, holder: UUID | None = None, most: int = 100) -> list[ClaimedRow]:
    """One claim of fresh rows, from the start."""
    return (await rows.claims.fresh(holder or uuid4(), most, None)).rows


async def one(rows: Rows, holder: UUID | None = None) -> ClaimedRow:
    (row,) = await claimed(rows, holder)
    return row


async def again(rows: Rows, holder: UUID | None = None, most: int = 100, *, suspects: bool = False) -> list[ClaimedRow]:
    return (await rows.claims.again(holder or uuid4(), most, None, suspects=suspects)).rows


async def sweep(rows: Rows, most: int, holder: UUID | None = None, *, windows: int = 1_000) -> list[Batch]:
    """Claims of fresh rows until none is left, as a sweep makes them."""
    batches: list[Batch] = []
    position = None
    while not batches or not batches[-1].exhausted:
        assert len(batches) < windows, "the sweep does not end"
        batches.append(await rows.claims.fresh(holder or uuid4(), most, position))
        position = batches[-1].position or position
    return batches


def keys(batches: Iterable[Batch]) -> list[str]:
    return [row.key for batch in batches for row in batch.rows]


async def settled(rows: Rows, row: ClaimedRow, verdict: Any) -> str | None:
    """What became of one row."""
    return (await rows.settle(row.holder, [row], [verdict])).get(row.key)


async def settle_all(rows: Rows, claimed: Sequence[ClaimedRow], verdict: Any) -> dict[str, Any]:
    return dict(await rows.settle(claimed[0].holder, claimed, [verdict] * len(claimed)))
