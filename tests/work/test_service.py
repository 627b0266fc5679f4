"""The loop around every pass, and what a worker opens before its first one."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.pgbouncer import PgBouncer
from tests.support.watching import until
from trueup import App, Row, To
from trueup.errors import DatabaseUnavailable
from trueup.events import Event, Events, ServiceFailed
from trueup.work import service
from trueup.work.service import Service

pytestmark = pytest.mark.asyncio


def database_of(url: str) -> str:
    return str(conninfo_to_dict(url)["dbname"])


class Failing(Service):
    name = "failing"
    passes = 0
    good = -1  # the pass that does not fail
    error: BaseException = ValueError("the same each time")

    async def run_once(self) -> float:
        self.passes += 1
        if self.passes == self.good:
            return 0.0
        raise self.error


async def test_a_loop_that_keeps_failing_reports_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(event: asyncio.Event, seconds: float) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(service, "_wait", at_once)
    seen: list[Event] = []
    events = Events()
    events.subscribe(seen.append)
    failing = Failing(events)
    failing.good = 20
    failing.start()
    await until(lambda: failing.passes > 25)
    await failing.stop()
    times = [event.times for event in seen if isinstance(event, ServiceFailed)]
    assert times[:8] == [1, 2, 4, 8, 16, 1, 2, 4], "and from the beginning after a pass that succeeded"


class Panic(BaseException):
    """Of a foreign runtime that a user's code calls."""


@pytest.mark.parametrize(
    "error", [Panic("boom"), GeneratorExit("boom"), BaseExceptionGroup("several", [Panic("boom")])], ids=repr
)
async def test_a_loop_ended_by_what_is_no_exception_says_so_and_begins_again(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(service, "RESTART_AFTER", 0.01)
    seen: list[Event] = []
    events = Events()
    events.subscribe(seen.append)
    failing = Failing(events)
    failing.error = error
    failing.start()
    await until(lambda: failing.passes > 2)
    await failing.stop()
    failed = [event for event in seen if isinstance(event, ServiceFailed)]
    assert failed
    assert failed[0].error_type.endswith(type(error).__name__)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("53100", True),
        ("53200", True),
        ("58030", True),
        ("54000", True),
        ("57014", False),
        ("55P03", False),
        ("40P01", False),
        ("57P01", False),
    ],
)
async def test_a_loop_that_the_server_refuses_says_so_unless_its_connection_does(state: str, said: bool) -> None:
    seen: list[Event] = []
    events = Events()
    events.subscribe(seen.append)
    failing = Failing(events)
    failing.error = psycopg.errors.lookup(state)("no")
    failing.start()
    await until(lambda: failing.passes > 1)
    await failing.stop()
    assert any(isinstance(event, ServiceFailed) for event in seen) == said


@pytest.mark.slow
async def test_a_pooler_with_too_few_sessions_is_refused_with_the_number_that_is_needed(database_url: str) -> None:
    with PgBouncer(database_url, default_pool_size=3, pool_mode="session") as pooler:
        app = App(pooler.url(database_of(database_url)), connect_timeout="1s")

        @app.job
        async def send() -> None: ...

        async with app:
            with pytest.raises(
                DatabaseUnavailable, match=r"needs \d+ connections of its own at the same time, and got \d of"
            ):
                await app.worker().start()


@pytest.mark.slow
async def test_a_pooler_with_enough_sessions_serves_a_worker(database_url: str) -> None:
    with PgBouncer(database_url, default_pool_size=20, pool_mode="session") as pooler:
        app = App(pooler.url(database_of(database_url)))

        @app.job
        async def send(n: int) -> int:
            return n

        async with app, app.worker():
            assert await (await send.enqueue(7)).result("15s") == 7


OF_EVERY_WORKER = {"claim", "finish", "housekeeping", "plan", "renew", "listen"}
ON_DEMAND = {"rows renew"}
EXTRA = {
    "jobs alone": set[str](),
    "with a scan": {"scan"},
    "with a reconciler": {"rows claim", "rows settle", "rows renew"},
}


@pytest.mark.slow
@pytest.mark.parametrize("what", EXTRA)
async def test_an_idle_worker_has_the_connections_that_the_guide_names(database_url: str, what: str) -> None:
    app = App(database_url)

    @app.job
    async def send() -> None: ...

    if what == "with a scan":

        @app.scan("numbers", every="1h")
        async def numbers(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
            yield 1, 1

        @numbers.each
        async def each(n: int) -> None: ...

    async with app:
        if what == "with a reconciler":
            async with app.transaction() as tx:
                await tx.execute("create table orders (id int primary key, state text, changed_at timestamptz)")
            orders = app.table("orders", key="id", state="state", changed_at="changed_at")

            @orders.reconcile("stuck", stale_for="1m", every="1m")
            async def unstick(order: Row) -> To:
                return To("done")

        async with app.worker():
            open_now = set[str]()

            async def look() -> bool:
                rows = await app.store.pool.fetch(
                    b"select application_name from pg_stat_activity"
                    b" where datname = current_database() and application_name like 'trueup %'"
                )
                open_now.clear()
                open_now.update(row[0].removeprefix("trueup ") for row in rows)
                return open_now >= (OF_EVERY_WORKER | EXTRA[what]) - ON_DEMAND

            async with asyncio.timeout(15):
                while not await look():
                    await asyncio.sleep(0.05)
    page = Path("docs/howto/deploying.md").read_text()
    assert all(f"`{part}`" in page for part in OF_EVERY_WORKER | EXTRA[what])


importlib.import_module("trueup.work.worker")  # and with it every service of a worker
OWN = {("Claimer", "_wake")}  # the hints' event wakes it, too


def subclasses(of: type) -> Iterator[type]:
    for cls in of.__subclasses__():
        yield cls
        yield from subclasses(cls)


async def test_no_service_keeps_something_of_its_own_under_a_name_of_the_loop() -> None:
    """The loop sets its count of failures to 0 after each pass: a sweeper that kept its own there never paused for longer."""
    loop = vars(Service(Events())).keys()
    taken = {
        (cls.__name__, name)
        for cls in subclasses(Service)
        if cls.__module__.startswith("trueup.")
        for name in re.findall(r"self\.(\w+)(?:: [^=\n]+)? = ", inspect.getsource(cls))
        if name in loop
    }
    assert taken - {(cls.__name__, "name") for cls in subclasses(Service)} == OWN
