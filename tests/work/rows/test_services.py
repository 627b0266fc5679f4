"""All that sweeps in a worker; and several workers that share the rows of one table."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import psycopg
import pytest

from tests.support.watching import until
from tests.work.rows.field import NAME, Field
from trueup import App, ConfigError, Delete, To
from trueup.clock import elapsed
from trueup.events import RowChanged, RowClaimLost
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio


async def connections(field: Field) -> int:
    """Those of this database that are for rows."""
    query = "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'trueup row%%'"
    return int(await field.value(query))


# -- looking at tables ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        ({"table": "thing"}, {}, "no such table"),
        ({"state": "stat"}, {}, "no such column"),
        (
            {},
            {"exhausted": To("dead", nosuch=1)},
            "exhausted=To('dead', nosuch=1): table things has no column 'nosuch'",
        ),
        ({}, {"order_by": "nosuch"}, "no such column"),
    ],
)
async def test_a_worker_does_not_start_on_a_table_that_is_not_as_declared(
    live: Field, table: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    given = {"table": "things", "key": "id", "state": "state", "changed_at": "changed_at", **table}
    live.fix(lambda row: None, table=live.app.table(given.pop("table"), **given), **options)
    worker = live.app.worker()
    with pytest.raises(ConfigError) as raised:
        await worker.start()
    assert f"reconciler {NAME!r}" in str(raised.value)
    assert said in str(raised.value)
    async with asyncio.timeout(10):
        while await connections(live):  # a server takes a moment to let one go
            await asyncio.sleep(0.01)
    await worker.abandon()


@pytest.mark.slow
async def test_nothing_is_left_behind_however_often_a_worker_comes_and_goes(live: Field) -> None:
    done: list[int] = []

    async def handler(row: Any, *, tx: Any) -> Any:
        done.append(row.id)
        return To("done")

    live.fix(handler, claim="row_lock", run_at_start=True)
    for n in range(5):
        await live.put(5, first=1 + 10 * n)
        async with live.app.worker():
            await until(lambda n=n: len(done) == 5 * (n + 1))
    assert await live.states() == {"done": 25}
    await until_none_connected(live)
    assert await live.value("select count(*) from trueup.workers where lease_until > now()") == 1  # the manual one


async def until_none_connected(field: Field) -> None:
    async with asyncio.timeout(10):
        while await connections(field):
            await asyncio.sleep(0.01)


async def test_a_sweep_of_what_nobody_declared_names_those_there_are(field: Field) -> None:
    field.fix(lambda row: None)
    with pytest.raises(ConfigError, match=r"no reconciler 'other' is declared; there are fix"):
        await field.sweep("other")


async def test_a_manual_sweep_on_a_clock_that_stands_still_ends_where_the_rate_does(
    field: Field, clock: ManualClock
) -> None:
    await field.put(100)
    field.fix(lambda row: To("done"), rate="10/s")
    first = (await field.sweep()).changed
    assert 1 <= first <= 4
    assert (await field.sweep()).claimed == 0
    clock.advance(seconds=1)
    assert 1 <= (await field.sweep()).changed <= 10


async def test_a_manual_sweep_serves_moves_and_deletions_too(field: Field, clock: ManualClock) -> None:
    await field.put(5)
    field.table.move("new", to="old", stale_for="10m", name="age")
    field.table.delete("old", stale_for="1d", name="drop")
    assert (await field.sweep("age")).changed == 5
    assert (await field.sweep("drop")).changed == 0
    clock.advance(days=2)
    assert (await field.sweep("drop")).changed == 5
    assert await field.states() == {}


# -- sharing --------------------------------------------------------------------------------------------------------------


class Fleet:
    """Several workers over one table, each with an App of its own."""

    def __init__(self, url: str, count: int, *, together: bool = False, **options: Any) -> None:
        """`together`: no row ends before each worker has one, however long one of them takes to start."""
        self.all_begun = asyncio.Event()
        if not together:
            self.all_begun.set()
        self.seen: Counter[int] = Counter()
        self.starts: list[float] = []
        self.by: Counter[int] = Counter()
        self.apps = [App(url) for _ in range(count)]
        self.fields = [Field(app) for app in self.apps]
        for number, field in enumerate(self.fields):
            field.fix(self._handler(number), run_at_start=True, **options)

    def _handler(self, number: int) -> Any:
        async def handler(row: Any) -> Any:
            self.starts.append(elapsed())
            self.seen[row.id] += 1
            self.by[number] += 1
            if len(self.by) == len(self.apps):
                self.all_begun.set()
            await self.all_begun.wait()
            await asyncio.sleep(0.001)
            return Delete()

        return handler

    async def run(self, rows: int) -> None:
        workers = [app.worker() for app in self.apps]
        try:
            await asyncio.gather(*(worker.start() for worker in workers))
            await until(lambda: self.seen.total() >= rows)
        finally:
            await asyncio.gather(*(worker.stop() for worker in workers))

    async def close(self) -> None:
        for field in self.fields:
            await field.close()
            await field.app.close()


async def test_two_workers_share_the_rows_and_handle_each_once(live: Field) -> None:
    await live.put(600)
    fleet = Fleet(live.app.store.url, 2, together=True, batch=20, concurrency=5)
    try:
        await fleet.run(600)
        assert len(fleet.seen) == 600
        assert set(fleet.seen.values()) == {1}
        assert min(fleet.by[0], fleet.by[1]) > 50
        assert await live.states() == {}
        assert all(field.events.of(RowClaimLost) == [] for field in fleet.fields)
    finally:
        await fleet.close()


async def lateness(worst: list[float], url: str) -> None:
    """How late this loop or an answer of the server is at worst: starts that are late are that much nearer to those that follow."""
    async with await psycopg.AsyncConnection.connect(url, dbname="postgres", autocommit=True) as connection:
        while True:
            began = elapsed()
            await asyncio.sleep(0.005)
            await connection.execute("select 1")
            worst[0] = max(worst[0], elapsed() - began - 0.005)


async def test_a_rate_holds_for_the_fleet_and_waiting_for_it_asks_seldom(live: Field) -> None:
    await live.put(60)
    fleet = Fleet(live.app.store.url, 2, batch=50, concurrency=20, rate="40/s")
    worst = [0.0]
    measuring = asyncio.create_task(lateness(worst, live.app.store.url))
    try:
        before = await live.value("select xact_commit from pg_stat_database where datname = current_database()")
        await fleet.run(60)
        await live.do("select pg_stat_force_next_flush()")
        after = await live.value("select xact_commit from pg_stat_database where datname = current_database()")
        starts = sorted(fleet.starts)
        # 60 starts take a second and a half; what is late brings starts closer together by as much.
        assert starts[-1] - starts[0] > 1.2 - worst[0]
        windows = [sum(1 for other in starts if start <= other < start + 0.5) for start in starts]
        assert max(windows) <= 20 + 4 + 40 * worst[0]
        assert set(fleet.seen.values()) == {1}
        assert after - before < 600
    finally:
        measuring.cancel()
        await asyncio.gather(measuring, return_exceptions=True)
        await fleet.close()


async def test_rows_of_a_worker_that_was_killed_are_done_by_the_other(live: Field) -> None:
    begun = asyncio.Event()
    other = App(live.app.store.url)
    survivor = Field(other)
    try:

        async def hangs(row: Any) -> Any:
            begun.set()
            await asyncio.Event().wait()

        await live.put(3)
        live.fix(hangs, run_at_start=True, lease_for="1s")
        survivor.fix(lambda row: To("done"), run_at_start=True, lease_for="1s", every="100ms")
        dying = live.app.worker()
        await dying.start()
        await until(begun.is_set)
        await dying.abandon()
        async with other.worker():
            await survivor.events.seen(RowChanged, count=3)
        assert await live.states() == {"done": 3}
    finally:
        await survivor.close()
        await other.close()


# -- rows about reconcilers that are gone -----------------------------------------------------------------------------------


async def test_a_reconciler_whose_row_is_gone_is_declared_again_and_sweeps(field: Field) -> None:
    """As after a restore under running workers."""
    await field.put(3)
    field.fix(lambda row: To("done"))
    sweeper = await field.gather()
    before = await field.gate()
    await field.do("delete from trueup.reconcilers")
    await sweeper.run_once()
    assert {name: value for name, value in (await field.gate()).items() if name in ("name", "place", "declared")} == {
        name: before[name] for name in ("name", "place", "declared")
    }
    await field.do("delete from trueup.reconcilers")
    assert (await field.sweep()).lost == 0
    await field.do("delete from trueup.reconcilers")
    await field.manual.worker.register()
    assert (await field.gate())["name"] == NAME, "a new life declares it, before any sweep"
