"""Statements that callers and handlers send through the shared connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.support.watching import Watched, until
from trueup import App, Context, DatabaseUnavailable, Job, Retry
from trueup.events import LeaseNotReleased
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
  return coalesce(new, old);
end $$;
create trigger ask before {event} on trueup.{table} for each row execute function ask();
"""
MANY = 600  # more than one statement takes
WAITS = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


def many(**options: Any) -> Callable[[App, Job[..., Any]], Awaitable[object]]:
    return lambda app, send: send.using(**options).enqueue_many({} for _ in range(MANY))


def many_sync(**options: Any) -> Callable[[App, Job[..., Any]], Awaitable[object]]:
    return lambda app, send: asyncio.to_thread(send.using(**options).enqueue_many_sync, ({} for _ in range(MANY)))


async def hold(app: App, _: Job[..., Any]) -> None:
    async with app.lease("mine"):
        pass


async def hold_an_advisory_lock(app: App, _: Job[..., Any]) -> None:
    async with app.lease("mine", backend="advisory"):
        pass


CALLS: dict[str, tuple[str, Callable[[App, Job[..., Any]], Awaitable[object]]]] = {
    "enqueue": ("jobs", lambda app, send: send.enqueue()),
    "enqueue unique": ("jobs", lambda app, send: send.using(unique="k").enqueue()),
    "enqueue together": ("jobs", lambda app, send: asyncio.gather(*(send.enqueue() for _ in range(5)))),
    "enqueue_sync": ("jobs", lambda app, send: asyncio.to_thread(send.enqueue_sync)),
    "enqueue_sync unique": ("jobs", lambda app, send: asyncio.to_thread(send.using(unique="k").enqueue_sync)),
    "enqueue unique_for": ("jobs", lambda app, send: send.using(unique="k", unique_for="1h").enqueue()),
    "enqueue_sync unique_for": (
        "jobs",
        lambda app, send: asyncio.to_thread(send.using(unique="k", unique_for="1h").enqueue_sync),
    ),
    "enqueue replacing": ("jobs", lambda app, send: send.using(unique="k", on_conflict="replace").enqueue()),
    "enqueue_many": ("jobs", many()),
    "enqueue_many unique": ("jobs", many(unique="k")),
    "enqueue_many raising": ("jobs", lambda app, send: send.using(on_conflict="raise").enqueue_many({} for _ in "ab")),
    "enqueue_many_sync": ("jobs", many_sync()),
    "enqueue_many_sync unique": ("jobs", many_sync(unique="k")),
    "rate": ("rates", lambda app, send: app.rate("calls", "1000/s")),
    "rate_sync": ("rates", lambda app, send: asyncio.to_thread(app.rate_sync, "calls", "1000/s")),
    "lease": ("leases", hold),
    "advisory lease": ("leases", hold_an_advisory_lock),
}


async def test_a_lease_is_given_back_although_the_server_asks_to_repeat_it(still: App, database_url: str) -> None:
    watched = Watched(still)
    with psycopg.connect(database_url, autocommit=True) as connection:
        async with still.lease("mine"):
            connection.execute(INSERTING.format(table="leases", event="update or delete").encode())
        assert connection.execute("select last_value from tries").fetchone() == (3,)
    assert watched.of(LeaseNotReleased) == []
    async with still.lease("mine"):
        pass


@pytest.mark.parametrize("sync", [False, True], ids=["enqueue_many", "enqueue_many_sync"])
async def test_a_batch_that_loses_a_deadlock_is_stored_all_the_same(
    still: App, database_url: str, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    """Each of two transactions holds a unique key that the other one wants."""
    monkeypatch.setattr("trueup.store.inserting.IN_ORDER", MANY)

    @still.job
    async def send(n: int) -> None: ...

    batch = [(n,) for n in range(2 * MANY)]  # the keys of each half are taken in their order: 0 … 599, and 1000 … 999
    keyed = send.using(unique=lambda n: f"{n}")
    connect = psycopg.AsyncConnection.connect
    async with await connect(database_url) as other, await connect(database_url) as first:
        await other.execute("set deadlock_timeout to '1min'")  # the batch finds out
        await other.commit()
        theirs = send.using(unique=lambda n: f"{n}", tx=other)
        await theirs.enqueue(2 * MANY - 1)
        await send.using(unique="1000", tx=first).enqueue(1000)
        storing = asyncio.create_task(
            asyncio.to_thread(keyed.enqueue_many_sync, batch) if sync else keyed.enqueue_many(batch)
        )
        with psycopg.connect(database_url, autocommit=True) as look:
            await until(lambda: look.execute(WAITS).fetchone() == (1,))  # the batch for `first`
            waiting = asyncio.create_task(theirs.enqueue(0))
            await until(lambda: look.execute(WAITS).fetchone() == (2,))  # and `other` for the batch
        await first.rollback()
        await waiting  # the batch was rolled back
        await other.commit()
    stored = await storing
    assert (stored.created, stored.kept) == (len(batch) - 2, 2)


@pytest.mark.parametrize("call", CALLS)
async def test_callers_are_not_asked_to_repeat_what_is_one_statement_or_our_transaction(
    still: App, database_url: str, call: str
) -> None:
    @still.job
    async def send() -> None: ...

    table, make = CALLS[call]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(INSERTING.format(table=table, event="insert").encode())
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
        await tx.execute(INSERTING.format(table="jobs", event="insert").encode())
        await tx.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            if autocommit:
                async with tx.transaction():
                    await send.using(tx=tx).enqueue()
            else:
                await send.using(tx=tx).enqueue()
        await tx.rollback()
        assert await (await tx.execute("select last_value from tries")).fetchone() == (1,)


async def test_the_connection_that_tried_the_address_is_the_first_of_its_pool(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    for kind in (psycopg.Connection, psycopg.AsyncConnection):

        def counted(cls: Any, *given: Any, _connect: Any = kind.connect.__func__, **options: Any) -> Any:
            made.append(cls.__mro__[2].__name__)
            return _connect(cls, *given, **options)

        monkeypatch.setattr(kind, "connect", classmethod(counted))
    async with App(database_url) as app:
        for _ in range(3):
            await app.jobs.count()
            await asyncio.to_thread(app.jobs.count_sync)
        async with app._store.pool.use(), app._store.pool.use():
            pass
    assert sorted(made) == ["AsyncConnection", "AsyncConnection", "Connection"]


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_a_connection_that_cannot_be_made_ready_is_closed(
    database_url: str, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    """psycopg's pool forgets a connection whose `configure` raises: it would stay open until it is collected."""
    made: list[Any] = []

    def fails(connection: Any, _prepare: str, **_: bool) -> None:
        made.append(connection)
        if len(made) == 2:  # the error of the first one is known by now
            pool._wait = 0.0
        raise psycopg.OperationalError("not ready")

    async def fails_async(connection: Any, prepare: str, **_: bool) -> None:
        fails(connection, prepare)

    app = App(database_url)
    store = await app.open()
    pool: Any = store.sync_pool if sync else store.pool
    monkeypatch.setattr("trueup.store.db.blocking.make_ready_sync", fails)
    monkeypatch.setattr("trueup.store.db.pool.make_ready", fails_async)
    monkeypatch.setattr("trueup.store.db.pool.SLICE", 0.1)
    async with store.pool.use():  # the only connection that was ready
        with pytest.raises(DatabaseUnavailable, match="not ready"):
            await (asyncio.to_thread(app.jobs.count_sync) if sync else app.jobs.count())
    assert made
    assert all(connection.closed for connection in made)
    await app.close()


async def test_our_own_statements_take_no_part_in_conflicts_of_serializable_transactions(database_url: str) -> None:
    """A worker reads and writes all the time. Users' transactions that are serializable by default would fail beside it."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("alter database {} set default_transaction_isolation = serializable").format(name))
    ask = b"show transaction_isolation"
    async with App(database_url) as app:
        store = await app.open()
        own = store.own_connection("test")
        assert await own.fetch(ask) == await store.pool.fetch(ask) == [("read committed",)]
        assert store.sync_pool.fetch(ask) == [("read committed",)]
        await own.close()
        async with app.transaction() as tx:
            assert await (await tx.execute(ask)).fetchall() == [("serializable",)]
