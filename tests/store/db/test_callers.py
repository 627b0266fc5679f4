"""Every kind of transaction that callers bring, in every condition: it takes part, or it is refused before anything is stored.

Taking part means that a fence keeps others from taking the lease over, and that a job is there, when the caller commits.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import class_row, dict_row, scalar_row
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.support import django_project  # noqa: F401 - sets Django up
from trueup import App, ConfigError, NotAcquired
from trueup.aside import aside
from trueup.store.db import callers
from trueup.store.inserting import ONE_STATEMENT
from trueup.work.leases.hold import Lease

pytestmark = pytest.mark.asyncio


@dataclass
class Theirs:
    """A caller's transaction: what is passed as `tx`, and how its owner goes on with it."""

    tx: Any
    commit: Callable[[], Any]
    rollback: Callable[[], Any]
    sync: bool = False

    async def run(self, call: Callable[[], Any]) -> None:
        result = call()
        if inspect.isawaitable(result):
            await result


@dataclass
class Order:
    id: int


@asynccontextmanager
async def of_psycopg(url: str, state: str) -> AsyncIterator[Theirs]:
    autocommit = state in ("autocommit", "pipeline without a transaction", "open in autocommit")
    async with AsyncExitStack() as stack:
        conn = await stack.enter_async_context(await psycopg.AsyncConnection.connect(url, autocommit=autocommit))
        if state == "raw cursors":
            conn.cursor_factory = psycopg.AsyncRawCursor
        if state == "rows of a class":
            conn.row_factory = class_row(Order)
        if state.startswith("pipeline"):
            await stack.enter_async_context(conn.pipeline())
        if state == "open in autocommit":
            await conn.execute("begin")
        if state == "two-phase":
            await conn.tpc_begin(conn.xid(1, "gtrid", "bqual"))
        if state in ("open", "pipeline", "aborted"):
            await conn.execute("select 1")
        if state == "aborted":
            with pytest.raises(psycopg.Error):
                await conn.execute("select 1 / 0")
        if state == "closed":
            await conn.close()
        commit = (lambda: conn.execute("commit")) if autocommit else conn.commit
        yield Theirs(conn, commit, conn.tpc_rollback if state == "two-phase" else conn.rollback)


@asynccontextmanager
async def of_psycopg_sync(url: str, state: str) -> AsyncIterator[Theirs]:
    autocommit = state in ("autocommit", "pipeline without a transaction", "open in autocommit")
    with psycopg.connect(url, autocommit=autocommit) as conn:
        pipeline = conn.pipeline()
        if state == "raw cursors":
            conn.cursor_factory = psycopg.RawCursor
        if state == "rows of a class":
            conn.row_factory = class_row(Order)
        if state.startswith("pipeline"):
            pipeline.__enter__()
        if state == "open in autocommit":
            conn.execute("begin")
        if state == "two-phase":
            conn.tpc_begin(conn.xid(1, "gtrid", "bqual"))
        if state in ("open", "pipeline", "aborted"):
            conn.execute("select 1")
        if state == "aborted":
            with pytest.raises(psycopg.Error):
                conn.execute("select 1 / 0")
        if state == "closed":
            conn.close()
        commit = (lambda: conn.execute("commit")) if autocommit else conn.commit
        yield Theirs(conn, commit, conn.tpc_rollback if state == "two-phase" else conn.rollback, sync=True)
        if state.startswith("pipeline"):
            pipeline.__exit__(None, None, None)


@asynccontextmanager
async def of_asyncpg(url: str, state: str) -> AsyncIterator[Theirs]:
    conn = await asyncpg.connect(url)
    transaction = conn.transaction()
    if state in ("open", "aborted"):
        await transaction.start()
    if state == "plain begin":
        await conn.execute("begin")
    if state == "aborted":
        with pytest.raises(asyncpg.PostgresError):
            await conn.execute("select 1 / 0")
    if state == "closed":
        await conn.close()
    commit = (lambda: conn.execute("commit")) if state == "plain begin" else transaction.commit
    yield Theirs(conn, commit, transaction.rollback if state == "aborted" else lambda: None)
    await conn.close(timeout=10)


def of_sqlalchemy(driver: str, wrap: Callable[[Any, dict[str, Any]], Any]) -> Callable[..., Any]:
    @asynccontextmanager
    async def theirs(url: str, state: str) -> AsyncIterator[Theirs]:
        options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"} if state == "autocommit" else {}
        engine = create_async_engine(make_url(url).set(drivername=f"postgresql+{driver}"), **options)
        tx = wrap(engine, {"twophase": True} if state == "two-phase" else {})
        if hasattr(tx, "start"):
            await tx.start()
            if state == "two-phase":
                await tx.run_sync(lambda sync: sync.begin_twophase())
        if state in ("open", "aborted"):
            await tx.execute(sa.text("select 1"))
        if state == "aborted":
            with pytest.raises(sa.exc.DBAPIError):
                await tx.execute(sa.text("select 1 / 0"))
        if state == "closed":
            await tx.close()
        yield Theirs(tx, tx.commit, tx.rollback)
        await tx.close()
        await engine.dispose()

    return theirs


def of_sqlalchemy_sync(wrap: Callable[[Any, dict[str, Any]], Any]) -> Callable[..., Any]:
    @asynccontextmanager
    async def theirs(url: str, state: str) -> AsyncIterator[Theirs]:
        options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"} if state == "autocommit" else {}
        engine = sa.create_engine(make_url(url).set(drivername="postgresql+psycopg"), **options)
        tx = wrap(engine, {"twophase": True} if state == "two-phase" else {})
        if isinstance(tx, sa.Connection) and state == "two-phase":
            tx.begin_twophase()
        if state in ("open", "aborted"):
            tx.execute(sa.text("select 1"))
        if state == "aborted":
            with pytest.raises(sa.exc.DBAPIError):
                tx.execute(sa.text("select 1 / 0"))
        if state == "closed":
            tx.close()
        yield Theirs(tx, tx.commit, tx.rollback, sync=True)
        tx.close()
        engine.dispose()

    return theirs


@asynccontextmanager
async def of_django(url: str, state: str) -> AsyncIterator[Theirs]:
    from django.db import connections, transaction

    given = conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    database = {**connections.settings["default"], **{name: given.get(key, "") for name, key in names.items()}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # this thread has an event loop, and is blocked knowingly
        patch.setitem(connections.settings, "callers", database)
        wrapper, atomic = connections["callers"], transaction.atomic(using="callers")
        if state in ("open", "aborted"):
            atomic.__enter__()
        if state == "aborted":
            with pytest.raises(Exception, match="division by zero"), wrapper.cursor() as cursor:
                cursor.execute("select 1 / 0")

        def end() -> None:
            if wrapper.in_atomic_block:
                wrapper.set_rollback(state == "aborted")
                atomic.__exit__(None, None, None)

        yield Theirs(wrapper, end, end, sync=True)
        wrapper.close()
        del connections["callers"]


def scoped(engine: Any, options: dict[str, Any]) -> Any:
    return async_scoped_session(async_sessionmaker(engine, **options), scopefunc=lambda: 1)


KINDS: dict[str, Callable[..., Any]] = {
    "psycopg": of_psycopg,
    "psycopg, sync": of_psycopg_sync,
    "asyncpg": of_asyncpg,
    "AsyncSession, asyncpg": of_sqlalchemy("asyncpg", lambda engine, options: AsyncSession(engine, **options)),
    "AsyncSession, psycopg": of_sqlalchemy("psycopg", lambda engine, options: AsyncSession(engine, **options)),
    "async_scoped_session": of_sqlalchemy("psycopg", scoped),
    "AsyncConnection, asyncpg": of_sqlalchemy("asyncpg", lambda engine, options: engine.connect()),
    "AsyncConnection, psycopg": of_sqlalchemy("psycopg", lambda engine, options: engine.connect()),
    "Session": of_sqlalchemy_sync(lambda engine, options: Session(engine, **options)),
    "scoped_session": of_sqlalchemy_sync(lambda engine, options: scoped_session(sessionmaker(engine, **options))),
    "Connection": of_sqlalchemy_sync(lambda engine, options: engine.connect()),
    "Django": of_django,
}

ORM = ["open", "none"]
ORM_REFUSED = ["autocommit", "aborted", "two-phase"]
PSYCOPG = ["open", "none", "open in autocommit", "pipeline", "raw cursors", "rows of a class"]
PSYCOPG_REFUSED = ["autocommit", "pipeline without a transaction", "aborted", "closed", "two-phase"]
TAKEN = dict.fromkeys(KINDS, ORM) | {
    "psycopg": PSYCOPG,
    "psycopg, sync": PSYCOPG,
    "asyncpg": ["open", "plain begin"],
    "Django": ["open"],
}
REFUSED = dict.fromkeys(KINDS, ORM_REFUSED) | {
    "psycopg": PSYCOPG_REFUSED,
    "psycopg, sync": PSYCOPG_REFUSED,
    "asyncpg": ["none", "aborted", "closed"],
    "Django": ["none", "aborted"],
    "AsyncConnection, psycopg": [*ORM_REFUSED, "closed"],
    "Connection": [*ORM_REFUSED, "closed"],
}


def cases(table: dict[str, list[str]]) -> list[Any]:
    return [pytest.param(kind, state, id=f"{kind}: {state}") for kind, states in table.items() for state in states]


@pytest.fixture
def send(app: App) -> Any:
    @app.job
    async def send(n: int) -> None: ...

    return send


async def is_free(app: App) -> bool:
    try:
        async with app.lease("ledger"):
            return True
    except NotAcquired:
        return False


async def let_it_pass(app: App) -> None:
    """As if the time of every lease were over."""
    async with app.store.pool.use() as connection:
        await connection.execute("update trueup.leases set lease_until = '-infinity'")


async def jobs(app: App) -> int:
    async with app.store.pool.use() as connection:
        row = await (await connection.execute("select count(*) from trueup.jobs")).fetchone()
        return int(row[0]) if row else 0


async def fence(lease: Lease, theirs: Theirs) -> None:
    if theirs.sync:
        lease.fence_sync(theirs.tx)
    else:
        await lease.fence(theirs.tx)


def enqueueing(send: Any, theirs: Theirs) -> dict[str, Callable[[], Any]]:
    bound, items = send.using(tx=theirs.tx), [(n,) for n in range(ONE_STATEMENT + 1)]
    if theirs.sync:
        return {"one": lambda: bound.enqueue_sync(1), "many": lambda: bound.enqueue_many_sync(items)}
    return {"one": lambda: bound.enqueue(1), "many": lambda: bound.enqueue_many(items)}


@pytest.mark.parametrize(("kind", "state"), cases(TAKEN))
async def test_a_fence_in_a_callers_transaction_keeps_others_out_until_it_commits(
    app: App, database_url: str, kind: str, state: str
) -> None:
    lease = await app.lease("ledger").__aenter__()
    async with KINDS[kind](database_url, state) as theirs:
        await fence(lease, theirs)
        await let_it_pass(app)
        assert not await is_free(app)
        await theirs.run(theirs.commit)
        assert await is_free(app)


@pytest.mark.matrix
@pytest.mark.parametrize("how", ["one", "many"])
@pytest.mark.parametrize(("kind", "state"), cases(TAKEN))
async def test_a_job_in_a_callers_transaction_is_there_when_it_commits(
    app: App, send: Any, database_url: str, kind: str, state: str, how: str
) -> None:
    async with KINDS[kind](database_url, state) as theirs:
        await theirs.run(enqueueing(send, theirs)[how])
        assert await jobs(app) == 0
        await theirs.run(theirs.commit)
        assert await jobs(app) == (1 if how == "one" else ONE_STATEMENT + 1)


@pytest.mark.parametrize(("kind", "state"), cases(REFUSED))
async def test_a_transaction_that_cannot_be_taken_part_in_is_refused_and_stays_the_callers(
    app: App, send: Any, database_url: str, kind: str, state: str
) -> None:
    async with app.lease("ledger") as lease, KINDS[kind](database_url, state) as theirs:
        refusals: list[Callable[[], Awaitable[None]]] = [lambda: fence(lease, theirs)]
        refusals += [lambda call=call: theirs.run(call) for call in enqueueing(send, theirs).values()]
        for attempt in refusals:
            with pytest.raises(Exception) as refused:
                await attempt()
            text = str(refused.value).lower()
            assert any(word in text for word in ("transaction", "closed", "autocommit", "two-phase")), text
            assert not isinstance(refused.value, AttributeError | TypeError | AssertionError)
        assert await jobs(app) == 0
        if state != "closed":
            await theirs.run(theirs.rollback)
            assert await is_usable(theirs), "its owner can go on with it"


async def is_usable(theirs: Theirs) -> bool:
    tx = theirs.tx
    if isinstance(tx, sa.Connection | Session | scoped_session):
        return bool(tx.scalar(sa.text("select 1")) == 1)
    if hasattr(tx, "scalar"):
        return bool(await tx.scalar(sa.text("select 1")) == 1)
    if hasattr(tx, "fetchval"):
        return bool(await tx.fetchval("select 1") == 1)
    if hasattr(tx, "ensure_connection"):
        with tx.cursor() as cursor:
            cursor.execute("select 1")
            return bool(cursor.fetchone() == (1,))
    if isinstance(tx, psycopg.Connection):
        return bool(tx.execute("select 1").fetchone() == (1,))
    return bool(await (await tx.execute("select 1")).fetchone() == (1,))


async def test_an_empty_statement_in_a_pipeline_does_not_hide_what_failed_before(app: App, database_url: str) -> None:
    async with (
        app.lease("ledger") as lease,
        await psycopg.AsyncConnection.connect(database_url) as conn,
    ):
        with pytest.raises(psycopg.errors.DivisionByZero):
            async with conn.pipeline():
                await conn.execute("select 1 / 0")
                await lease.fence(conn)


@pytest.mark.parametrize("factory", [dict_row, scalar_row])
async def test_it_does_not_matter_which_rows_a_connection_makes(app: App, database_url: str, factory: Any) -> None:
    async with app.lease("ledger") as lease:
        async with await psycopg.AsyncConnection.connect(database_url, row_factory=factory) as conn:
            await lease.fence(conn)
        with psycopg.connect(database_url, row_factory=factory) as plain:
            lease.fence_sync(plain)


def psycopg2_connection() -> Any:
    """psycopg2 is not among the packages of the tests; what counts is where its class says it is from."""
    return type("connection", (), {"__module__": "psycopg2.extensions"})()


async def test_what_is_not_a_connection_is_refused_with_what_to_pass_instead(
    app: App, send: Any, database_url: str
) -> None:
    engine = sa.create_engine(make_url(database_url).set(drivername="postgresql+psycopg"))
    several = Session(binds={sa.orm.declarative_base(): engine})
    with psycopg.connect(database_url) as plain, plain.cursor() as cursor, app.lease_sync("ledger") as lease:
        hints = {
            "psycopg 3": psycopg2_connection(),
            "connection that the cursor belongs to": cursor,
            "Session or Connection here, not Engine": engine,
            "several engines": several,
        }
        for hint, tx in hints.items():
            with pytest.raises(ConfigError, match=hint):
                send.using(tx=tx).enqueue_sync(1)
            with pytest.raises(ConfigError, match=hint):
                lease.fence_sync(tx)
        with pytest.raises(ConfigError, match="fence_sync"):
            await lease.fence(plain)
    engine.dispose()


def from_a_server_side_cursor(conn: psycopg.Connection[Any], send: Any, size: int) -> Any:
    with conn.cursor("ids") as cursor:
        yield from cursor.execute("select generate_series(1, %s)", [size])


def in_pages(conn: psycopg.Connection[Any], send: Any, size: int) -> Any:
    for start in range(0, size, 50):
        yield from conn.execute("select generate_series(%s::int, %s)", [start + 1, start + 50])


def beside_another_job(conn: psycopg.Connection[Any], send: Any, size: int) -> Any:
    for n in range(size - 1):
        yield (n,)
    send.using(tx=conn).enqueue_sync(size)
    yield (size,)


@pytest.mark.parametrize("read", [from_a_server_side_cursor, in_pages, beside_another_job])
async def test_a_long_batch_may_be_read_from_the_transaction_that_it_is_stored_in(
    app: App, send: Any, database_url: str, read: Any
) -> None:
    """By an iterator of psycopg's, SQLAlchemy's (`yield_per`) or Django's (`iterator()`)."""
    size = 50 * (ONE_STATEMENT // 50 + 2)

    def store() -> None:
        with psycopg.connect(database_url) as conn:
            stored = send.using(tx=conn).enqueue_many_sync(read(conn, send, size))
            assert stored.created == size

    await app.open()
    await asyncio.wait_for(aside(store, "a thread that may hang"), 20)
    assert (await app.store.pool.fetch(b"select count(distinct args) from trueup.jobs")) == [(size,)]


async def test_a_connection_that_stays_busy_is_refused_with_what_to_do(
    app: App, send: Any, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg itself would wait for ever: it keeps the connection to itself until the loop or the block ends."""
    monkeypatch.setattr(callers, "BUSY_FOR", 0.1)
    await app.open()
    async with await psycopg.AsyncConnection.connect(database_url) as conn, conn.cursor() as cursor:
        async for _ in cursor.stream("select generate_series(1, 2)"):
            with pytest.raises(ConfigError, match="busy with another statement"):
                await asyncio.wait_for(send.using(tx=conn).enqueue(1), 10)
    with psycopg.connect(database_url) as plain, plain.cursor() as of_plain:
        for _ in of_plain.stream("select generate_series(1, 2)"):
            with pytest.raises(ConfigError, match="busy with another statement"):
                send.using(tx=plain).enqueue_sync(1)
