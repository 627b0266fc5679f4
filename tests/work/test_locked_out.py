"""Somebody locks trueup's tables for longer than any statement may take: a migration of theirs, `vacuum full`, a forgotten session."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from tests.support.pgbouncer import PgBouncer
from tests.support.watching import Watched, until
from trueup import App, Row, To
from trueup.events import DatabaseLost, StatementTimedOut
from trueup.store.db.own_connection import OwnConnection

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

TABLES = (
    "select oid::regclass::text from pg_class where relnamespace = 'trueup'::regnamespace and relkind in ('r', 'p')"
)
BACKENDS = """
select application_name, pid, wait_event_type = 'Lock', query_start::text from pg_stat_activity
 where datname = current_database() and application_name like 'trueup%' and backend_type = 'client backend'
"""
ROUNDS = 4  # tries of each part while the lock is held
OWN = {
    "claim",
    "finish",
    "housekeeping",
    "plan",
    "renew",
    "scan",
    "rows claim",
    "rows settle",
    "rows renew",
    "lease renewal",
}


@contextmanager
def locked(url: str, *more: str) -> Iterator[None]:
    """All of trueup's tables, and these, until the block ends."""
    with psycopg.connect(url) as connection:
        tables = [name for (name,) in connection.execute(TABLES)] + list(more)
        for table in tables:
            connection.execute(f"lock table {table} in access exclusive mode")
        yield


class Backends:
    """What our own connections do on the server, looked at again and again."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self.waits: dict[str, set[tuple[int, str]]] = defaultdict(set)
        self.most: Counter[str] = Counter()
        self.most_at_once = 0

    def look(self) -> None:
        rows = self._connection.execute(BACKENDS).fetchall()
        self.most |= Counter(name.removeprefix("trueup ") for name, *_ in rows)
        self.most_at_once = max(self.most_at_once, len(rows))
        for name, pid, waits, started in rows:
            if waits:
                self.waits[name.removeprefix("trueup ")].add((pid, started))

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def backends(database_url: str) -> Iterator[Backends]:
    backends = Backends(database_url)
    yield backends
    backends.close()


def everything(url: str) -> App:
    """An App whose worker has every kind of connection in use: handlers that run on, a schedule, a scan, rows, leases."""
    often: dict[str, Any] = {"renew_every": "200ms", "rescue_every": "100ms", "prune_every": "1s"}
    app = App(url, statement_timeout="400ms", lease_for="1m", drain_for="0s", **often)

    @app.job
    async def tail() -> None: ...

    @app.every("1s")
    async def tick() -> None: ...

    @app.scan("things", every="1s")
    async def things(cursor: Any) -> AsyncIterator[tuple[int, int]]:
        for number in range(3):
            yield number, number

    @things.each
    async def seen(number: int) -> None: ...

    table = app.table("things", key="id", state="state")

    @table.reconcile("open", every="1s", name="things", concurrency=2)
    async def fix(thing: Row) -> To:
        return To("done")

    # Without rows, so that it claims every second also when all that `things` has room for cannot be settled.
    app.table("others", key="id", state="state").reconcile("open", every="1s", name="others")(fix)

    return app


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pgbouncer"])
async def test_no_backend_stays_behind_in_a_lock_queue(database_url: str, backends: Backends, pooled: bool) -> None:
    with ExitStack() as stack:
        url = database_url
        if pooled:
            pooler = stack.enter_context(PgBouncer(database_url, default_pool_size=40))
            url = pooler.url(str(conninfo_to_dict(database_url)["dbname"]))
        with psycopg.connect(database_url, autocommit=True) as user:
            for table in ("things", "others"):
                user.execute(f"create table {table} (id int primary key, state text not null)")
            user.execute("insert into things select n, 'open' from generate_series(1, 1000) as n")
        app = everything(url)
        events = Watched(app)
        async with app.worker():
            await until(lambda: user_rows(database_url, "done") > 0)
            with locked(database_url):
                parts = {"claim", "housekeeping", "plan", "renew", "scan", "rows claim"}

                def tried() -> bool:
                    backends.look()
                    return all(len(backends.waits[part]) >= ROUNDS for part in parts)

                try:
                    await until(tried, timeout=60)
                except TimeoutError:
                    tries = {part: len(waits) for part, waits in backends.waits.items()}
                    raise TimeoutError(f"not every part of {parts} was kept waiting {ROUNDS} times: {tries}") from None
        await app.close()
    if not pooled:  # a pooler lends one session to several parts
        assert {part: count for part, count in backends.most.items() if part in OWN and count > 1} == {}, backends.most
    assert backends.most_at_once <= len(OWN) + 10, backends.most
    # Where this process had no time to read the refusal before its own limit, the connection was closed.
    reported = {event.part for event in [*events.of(StatementTimedOut), *events.of(DatabaseLost)]}
    assert {"claim", "housekeeping", "plan"} <= reported


async def test_a_refusal_leaves_the_connection_as_it_is_and_is_not_called_a_lost_database(app: App) -> None:
    store, events = await app.open(), Watched(app)
    line = OwnConnection(store.url, "test", app.events, timedelta(seconds=5), timedelta(seconds=2))
    pid = await line.fetch(b"select pg_backend_pid()")
    with locked(store.url):
        for steered in (False, True):
            with pytest.raises(errors.LockNotAvailable):
                if steered:
                    await line.fetch_steered(b"select 1", b"select count(*) from trueup.jobs", {})
                else:
                    await line.fetch(b"select count(*) from trueup.jobs")
    assert await line.fetch(b"select pg_backend_pid()") == pid
    assert len(events.of(StatementTimedOut, part="test")) == 1, "said once until something succeeds"
    assert events.of(DatabaseLost) == []
    await line.close()


def user_rows(url: str, state: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("select count(*) from things where state = %s", [state]).fetchone()
    return int(row[0]) if row else 0
