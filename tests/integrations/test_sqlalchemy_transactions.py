"""SQLAlchemy's sessions and connections for `tx=`, over every driver that trueup can enqueue with."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.store.desk import Desk
from trueup import App
from trueup.errors import ConfigError
from trueup.store.inserting import ONE_STATEMENT
from trueup.store.store import Store

pytestmark = pytest.mark.asyncio

WITHOUT_GREENLET = """
import sys
sys.modules["greenlet"] = None
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session
from trueup import App

app = App(sys.argv[1])

@app.job
async def send(n: int) -> None: ...

with Session(sa.create_engine(make_url(sys.argv[1]).set(drivername="postgresql+psycopg"))) as session:
    send.using(tx=session).enqueue_sync(1)
    session.commit()
app.close_sync()
"""

INSERT = sa.text("insert into orders values (:n)")


@pytest_asyncio.fixture
async def desk(store: Store) -> Desk:
    desk = Desk(store)
    await desk.scalar("create table orders (id bigint primary key)")
    return desk


@pytest_asyncio.fixture(params=["asyncpg", "psycopg"])
async def engine(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(make_url(database_url).set(drivername=f"postgresql+{request.param}"))
    yield engine
    await engine.dispose()


@pytest.fixture
def sync_engine(database_url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(make_url(database_url).set(drivername="postgresql+psycopg"))
    yield engine
    engine.dispose()


@pytest.fixture
def send(still: App) -> Any:
    @still.job
    async def send(n: int) -> None: ...

    return send


async def both(desk: Desk) -> tuple[int, int]:
    """How many orders there are for everybody, and how many jobs."""
    orders = await desk.scalar("select count(*) from orders")
    return int(orders), int(await desk.scalar("select count(*) from trueup.jobs"))


@pytest.mark.matrix(pairs=("size", "first", "engine"))
@pytest.mark.parametrize("first", ["the row", "the job"])
@pytest.mark.parametrize("size", [None, 2 * ONE_STATEMENT])
async def test_jobs_are_there_if_and_only_if_the_session_commits(
    desk: Desk, engine: AsyncEngine, send: Any, size: int | None, first: str
) -> None:
    for end, expected in ((AsyncSession.rollback, (0, 0)), (AsyncSession.commit, (1, size or 1))):
        async with AsyncSession(engine) as session:
            if first == "the row":
                await session.execute(INSERT, {"n": 1})
            if size is None:
                await send.using(tx=session).enqueue(1)
            else:
                await send.using(tx=session).enqueue_many((n,) for n in range(size))
            if first == "the job":
                await session.execute(INSERT, {"n": 1})
            assert await both(desk) == (0, 0), "not before the commit"
            await end(session)
        assert await both(desk) == expected


async def test_a_connection_that_has_done_nothing_yet_begins_with_the_job(
    desk: Desk, engine: AsyncEngine, send: Any
) -> None:
    async with engine.connect() as connection:
        await send.using(tx=connection).enqueue(1)
    assert await both(desk) == (0, 0), "nobody committed"
    async with engine.connect() as connection:
        await send.using(tx=connection).enqueue(1)
        await connection.commit()
    async with engine.begin() as connection:
        await send.using(tx=connection).enqueue(2)
    assert await both(desk) == (0, 2)


async def test_a_nested_transaction_takes_its_jobs_along(desk: Desk, engine: AsyncEngine, send: Any) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await send.using(tx=session).enqueue(1)
        nested = await session.begin_nested()
        await session.execute(INSERT, {"n": 2})
        await send.using(tx=session).enqueue_many([(2,), (2,)])
        await nested.rollback()
        async with session.begin_nested():
            await session.execute(INSERT, {"n": 3})
            await send.using(tx=session).enqueue_many([(3,)])
    assert await both(desk) == (1, 2)


async def test_a_connection_in_autocommit_mode_is_refused(desk: Desk, engine: AsyncEngine, send: Any) -> None:
    async with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        with pytest.raises(ConfigError, match="no transaction is open"):
            await send.using(tx=connection).enqueue(1)
        with pytest.raises(ConfigError, match="no transaction is open"):
            await send.using(tx=connection).enqueue_many([(1,)])
    assert await both(desk) == (0, 0)


async def test_the_session_of_a_scope_will_do(
    desk: Desk, engine: AsyncEngine, sync_engine: sa.Engine, send: Any
) -> None:
    scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
    await send.using(tx=scoped).enqueue(1)
    await scoped.commit()
    await scoped.remove()
    plain = scoped_session(sessionmaker(sync_engine))
    send.using(tx=plain).enqueue_sync(2)
    plain.commit()
    plain.remove()
    assert await both(desk) == (0, 2)


@pytest.mark.parametrize("size", [None, 2 * ONE_STATEMENT])
async def test_without_an_event_loop_it_is_the_same(
    desk: Desk, sync_engine: sa.Engine, send: Any, size: int | None
) -> None:
    for end, expected in ((Session.rollback, (0, 0)), (Session.commit, (1, size or 1))):
        with Session(sync_engine) as session:
            if size is None:
                send.using(tx=session).enqueue_sync(1)
            else:
                send.using(tx=session).enqueue_many_sync((n,) for n in range(size))
            session.execute(INSERT, {"n": 1})
            assert await both(desk) == (0, 0), "not before the commit"
            end(session)
        assert await both(desk) == expected
    with sync_engine.connect() as connection:
        send.using(tx=connection).enqueue_sync(1)
    with sync_engine.connect() as connection:
        send.using(tx=connection).enqueue_sync(1)
        connection.commit()
    assert await both(desk) == (1, (size or 1) + 1)


async def test_what_is_of_the_other_kind_or_no_transaction_is_refused_with_a_hint(
    engine: AsyncEngine, sync_engine: sa.Engine, send: Any
) -> None:
    with Session(sync_engine) as session, pytest.raises(ConfigError, match="not Session; use enqueue_sync with it"):
        await send.using(tx=session).enqueue(1)
    async with AsyncSession(engine) as waits:
        with pytest.raises(ConfigError, match="not AsyncSession; use `await …enqueue` with it"):
            send.using(tx=waits).enqueue_sync(1)
    with pytest.raises(ConfigError, match=r"AsyncSession or AsyncConnection here, not AsyncEngine$"):
        await send.using(tx=engine).enqueue(1)
    with pytest.raises(ConfigError, match=r"Session or Connection here, not Engine$"):
        send.using(tx=sync_engine).enqueue_sync(1)


@pytest.mark.slow
async def test_whoever_does_not_await_needs_nothing_that_awaiting_needs(desk: Desk, database_url: str) -> None:
    program = [sys.executable, "-c", WITHOUT_GREENLET, database_url]
    ended = await asyncio.to_thread(subprocess.run, program, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert await both(desk) == (0, 1)
