"""Statements that callers and handlers send through the shared connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from trueup import App, Context, DatabaseUnavailable, Job, Retry
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

# A sequence counts on although the transaction is rolled back.
ASKING = """
create sequence tries;
create function ask() returns trigger language plpgsql as $$
begin
  if new.progress is distinct from old.progress and nextval('tries') <= {times} then
    raise exception 'again' using errcode = '{state}';
  end if;
  return new;
end $$;
create trigger ask before update on trueup.jobs for each row execute function ask();
"""


def make_the_server_ask(url: str, state: str, times: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(ASKING.format(state=state, times=times).encode())


@pytest.mark.parametrize("state", ["40001", "40P01"])
@pytest.mark.parametrize("how", ["async", "sync"])
async def test_a_statement_that_the_server_asks_to_repeat_is_repeated(
    still: App, worker: ManualWorker, database_url: str, state: str, how: str
) -> None:
    """Where serializable is the default, two that touch each other's rows suffice: the handler must not see it."""

    @still.job(retry=Retry(max_attempts=1))
    async def tell(*, ctx: Context) -> str:
        if how == "async":
            await ctx.progress(50)
        else:
            await asyncio.to_thread(ctx.progress_sync, 50)
        return "told"

    job = await tell.enqueue()
    make_the_server_ask(database_url, state, times=3)
    await worker.run_pending()
    assert await job.result(timeout="1s") == "told"


async def test_one_that_it_asks_for_again_and_again_ends_with_the_error(
    still: App, worker: ManualWorker, database_url: str
) -> None:
    seen: list[BaseException] = []

    @still.job(retry=Retry(max_attempts=1))
    async def tell(*, ctx: Context) -> None:
        try:
            await ctx.progress(50)
        except psycopg.errors.SerializationFailure as error:
            seen.append(error)

    await tell.enqueue()
    make_the_server_ask(database_url, "40001", times=1_000)
    await worker.run_pending()
    assert len(seen) == 1


INSERTING = """
create sequence tries;
create function ask() returns trigger language plpgsql as $$
begin
  if nextval('tries') <= 2 then
    raise exception 'again' using errcode = '40001';
  end if;
  return new;
end $$;
create trigger ask before insert on trueup.{table} for each row execute function ask();
"""
CALLS: dict[str, tuple[str, Callable[[App, Job[..., Any]], Awaitable[object]]]] = {
    "enqueue": ("jobs", lambda app, send: send.enqueue()),
    "enqueue unique": ("jobs", lambda app, send: send.using(unique="k").enqueue()),
    "enqueue together": ("jobs", lambda app, send: asyncio.gather(*(send.enqueue() for _ in range(5)))),
    "enqueue_sync": ("jobs", lambda app, send: asyncio.to_thread(send.enqueue_sync)),
    "enqueue_sync unique": ("jobs", lambda app, send: asyncio.to_thread(send.using(unique="k").enqueue_sync)),
    "rate": ("rates", lambda app, send: app.rate("calls", "1000/s")),
}


@pytest.mark.parametrize("call", CALLS)
async def test_callers_are_not_asked_to_repeat_what_is_one_statement(still: App, database_url: str, call: str) -> None:
    @still.job
    async def send() -> None: ...

    table, make = CALLS[call]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(INSERTING.format(table=table).encode())
        await make(still, send)
        assert connection.execute(f"select count(*) > 0 from trueup.{table}".encode()).fetchone() == (True,)


@pytest.mark.parametrize("autocommit", [True, False], ids=["explicit", "implicit"])
async def test_inside_a_transaction_of_the_caller_nothing_is_repeated(
    still: App, database_url: str, autocommit: bool
) -> None:
    """Without autocommit, the first statement of a transaction is sent on an idle connection."""

    @still.job
    async def send() -> None: ...

    async with await psycopg.AsyncConnection.connect(database_url, autocommit=autocommit) as tx:
        await tx.execute(INSERTING.format(table="jobs").encode())
        await tx.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            if autocommit:
                async with tx.transaction():
                    await send.using(tx=tx).enqueue()
            else:
                await send.using(tx=tx).enqueue()
        await tx.rollback()
        assert await (await tx.execute("select last_value from tries")).fetchone() == (1,)


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_a_connection_that_cannot_be_made_ready_is_closed(
    database_url: str, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    """psycopg's pool forgets a connection whose `configure` raises: it would stay open until it is collected."""
    made: list[Any] = []

    def fails(connection: Any, _prepare: str) -> None:
        made.append(connection)
        raise psycopg.OperationalError("not ready")

    async def fails_async(connection: Any, prepare: str) -> None:
        fails(connection, prepare)

    app = App(database_url)
    store = await app.open()
    pool: Any = store.sync_pool if sync else store.pool
    monkeypatch.setattr("trueup.store.db.pool.make_ready_sync", fails)
    monkeypatch.setattr("trueup.store.db.pool.make_ready", fails_async)
    monkeypatch.setattr(pool, "_wait", 0.2)
    with pytest.raises(DatabaseUnavailable, match="not ready"):
        await (asyncio.to_thread(app.jobs.count_sync) if sync else app.jobs.count())
    assert made
    assert all(connection.closed for connection in made)
    await app.close()
