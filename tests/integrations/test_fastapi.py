"""The lifespan and the dependency, in real FastAPI and Starlette applications on a real database."""

# No `from __future__ import annotations`: FastAPI could not find the dependencies that tests declare inside functions.

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import httpx
import pytest
import sqlalchemy as sa
from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlmodel import Field, SQLModel
from sqlmodel.ext.asyncio.session import AsyncSession as SQLModelSession
from starlette.applications import Starlette

from trueup import App
from trueup.integrations.fastapi import InSession, in_session, lifespan

pytestmark = pytest.mark.asyncio


class Order(SQLModel, table=True):
    __tablename__ = "fastapi_orders"
    id: int | None = Field(default=None, primary_key=True)
    item: str


@asynccontextmanager
async def serving(server: Any) -> AsyncIterator[httpx.AsyncClient]:
    """The application with its lifespan, as a server would run it, without a port."""
    async with (
        server.router.lifespan_context(server),
        httpx.AsyncClient(transport=httpx.ASGITransport(server), base_url="http://shop") as client,
    ):
        yield client


async def ordering(
    app: App, engine: Any, make: Callable[[Any], Any], scope: Literal["function", "request"] | None
) -> tuple[FastAPI, Any]:
    @app.job
    async def ship(item: str) -> str:
        return f"shipped {item}"

    async def get_session() -> AsyncIterator[Any]:
        async with make(engine) as session, session.begin():
            yield session

    server = FastAPI(lifespan=lifespan(app, worker=True))

    @server.post("/orders")
    async def order(
        item: str,
        session: Annotated[Any, Depends(get_session, scope=scope)],
        jobs: Annotated[InSession, Depends(in_session(get_session, scope=scope))],
    ) -> int:
        assert jobs.session is session
        session.add(Order(item=item))
        handle = await jobs.enqueue(ship, item)
        await jobs.using(ship, delay="1h").enqueue(item)
        if item == "nothing":
            raise HTTPException(409)
        return handle.id

    return server, ship


@pytest.mark.parametrize(
    ("driver", "make", "scope"),
    [
        ("asyncpg", AsyncSession, "function"),
        ("asyncpg", SQLModelSession, None),
        ("psycopg", AsyncSession, "request"),
        ("psycopg", SQLModelSession, "function"),
    ],
)
async def test_a_job_exists_if_and_only_if_the_request_commits(
    database_url: str, driver: str, make: Callable[[Any], Any], scope: Literal["function", "request"] | None
) -> None:
    engine = create_async_engine(make_url(database_url).set(drivername=f"postgresql+{driver}"))
    async with engine.begin() as connection:
        await connection.run_sync(SQLModel.metadata.tables["fastapi_orders"].create)
    app = App(database_url)
    server, _ = await ordering(app, engine, make, scope)
    async with serving(server) as client:
        stored = await client.post("/orders", params={"item": "tea"})
        assert stored.status_code == 200
        assert (await client.post("/orders", params={"item": "nothing"})).status_code == 409
        assert await app.wait_for_result(stored.json(), "30s") == "shipped tea"
        async with app.transaction() as tx:
            rows = await (await tx.execute("select item from fastapi_orders")).fetchall()
            jobs = await (await tx.execute("select count(*) from trueup.jobs")).fetchone()
    assert rows == [("tea",)]
    assert jobs == (1,), "the delayed one; that of the refused request was rolled back"
    await engine.dispose()


async def test_plain_path_operations_use_a_sync_session(database_url: str) -> None:
    engine = sa.create_engine(make_url(database_url).set(drivername="postgresql+psycopg"))
    app = App(database_url)

    @app.job
    def ship(item: str) -> str:
        return f"shipped {item}"

    def get_session() -> Iterator[Session]:
        with Session(engine) as session, session.begin():
            yield session

    server = FastAPI(lifespan=lifespan(app, worker=True, queues=["default"], concurrency=2))

    @server.post("/orders")
    def order(item: str, jobs: Annotated[InSession, Depends(in_session(get_session))]) -> int:
        return jobs.enqueue_sync(ship, item).id

    async with serving(server) as client:
        job_id = (await client.post("/orders", params={"item": "tea"})).json()
        assert await app.wait_for_result(job_id, "30s") == "shipped tea"
    app.close_sync()
    engine.dispose()


async def test_starlette_has_the_same_lifespan_around_one_of_its_own(database_url: str) -> None:
    """What the server's own lifespan opens is there before the first handler begins, and until the last one has ended."""
    app, seen = App(database_url, drain_for="10s"), list[str]()
    running, asked = asyncio.Event(), asyncio.Event()

    @app.job
    async def print_label() -> None:
        running.set()
        assert seen == ["opened"], "a handler runs only while the lifespan's resources are open"
        await asked.wait()
        seen.append("printed")

    @asynccontextmanager
    async def inside(server: Any) -> AsyncIterator[dict[str, int]]:
        await print_label.enqueue()
        await asyncio.sleep(0)
        seen.append("opened")
        yield {"answer": 42}
        await print_label.using(delay="1h").enqueue()
        seen.append("closed")

    server = Starlette(lifespan=lifespan(app, worker=True, inside=inside))
    async with server.router.lifespan_context(server) as state:
        assert state == {"answer": 42}
        await asyncio.wait_for(running.wait(), 10)
        asyncio.get_running_loop().call_later(0.2, asked.set)  # the worker is draining by then
    assert seen == ["opened", "printed", "closed"]
    assert app._store is None, "closed"
