"""Sweeps inside a run that is bounded itself: they end at their deadline, and write nothing once its lease is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from trueup import Again, App, Context, Delete, Lease, LostLease, Row, Stay, Tick, To
from trueup.errors import ConfigError
from trueup.operate.runs.leased import Bounds, leased
from trueup.testing.worker import ManualWorker
from trueup.work.registration import Holder
from trueup.work.rows.options import SweepOptions
from trueup.work.rows.services import RowServices

pytestmark = pytest.mark.asyncio

TABLES = """
create table papers (id int primary key, state text not null, size int, changed_at timestamptz not null default now());
insert into papers select n, 'new' from generate_series(1, 6) as n;
create table notes (paper int not null);
"""
# As another instance takes a lease over whose holder was frozen, or forgotten by whoever keeps it.
TAKE_OVER = "update trueup.leases set term = term + 1, holder = gen_random_uuid() where name = 'run'"
UNTOUCHED = [(number, "new", None) for number in range(1, 7)]


class Shop:
    def __init__(self, url: str) -> None:
        self.url = url
        self.app = App(url)
        self.papers = self.app.table("papers", key="id", state="state", changed_at="changed_at")

    def sql(self, text: str) -> Any:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else None

    @property
    def rows(self) -> Any:
        return self.sql("select id, state, size from papers order by id")

    @property
    def claims(self) -> Any:
        """What is held, and how many attempts were spent."""
        return self.sql("select count(*) filter (where state = 'held'), coalesce(sum(attempt), 0) from trueup.rows")


@pytest_asyncio.fixture
async def shop(database_url: str) -> AsyncIterator[Shop]:
    shop = Shop(database_url)
    shop.sql(TABLES)
    await shop.app.open()
    yield shop
    await shop.app.close()


# -- the deadline -----------------------------------------------------------------------------------------------------


async def test_at_its_deadline_a_run_releases_unstarted_rows_and_lets_the_rest_end(shop: Shop) -> None:
    begun: list[int] = []

    @shop.papers.reconcile("new", concurrency=2, every=None)
    async def slow(paper: Row) -> To:
        begun.append(paper["id"])
        if len(begun) == 2:  # the time is over while both run
            asyncio.get_running_loop().call_later(1.2, go_on.set)
        await go_on.wait()
        return To("done")

    go_on = asyncio.Event()
    run = await shop.app.reconcilers.run("slow", within="1s", drain_for="1m")
    assert (run.ending, run.ok) == ("stopped", True)
    assert "rows that were not started are left" in (run.why or "")
    assert sorted(begun) == [1, 2]
    assert [row[1] for row in shop.rows] == ["done", "done", "new", "new", "new", "new"]
    assert shop.claims == [(0, 0)]
    run = await shop.app.reconcilers.run("slow", within="1m")
    assert (run.ending, len(begun)) == ("completed", 6), "the next run has them"


async def test_what_still_runs_a_while_after_the_deadline_is_interrupted_and_goes_back(shop: Shop) -> None:
    began = asyncio.Event()

    @shop.papers.reconcile("new", concurrency=2, every=None)
    async def endless(paper: Row) -> None:
        began.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(30):
        run = await shop.app.reconcilers.run("endless", within="1s", drain_for="100ms")
    assert began.is_set()
    assert run.ending == "stopped"
    assert (shop.rows, shop.claims) == (UNTOUCHED, [(0, 0)])


async def test_a_move_ends_at_its_deadline_too(shop: Shop) -> None:
    shop.papers.move("new", to="old", stale_for="1h", name="age")
    shop.sql("update papers set changed_at = now() - interval '1 d'")
    run = await shop.app.reconcilers.run("age", within="1m")
    assert (run.ending, [row[1] for row in shop.rows]) == ("completed", ["old"] * 6)


# -- the lease --------------------------------------------------------------------------------------------------------


async def test_outcomes_are_written_while_the_lease_is_held(shop: Shop) -> None:
    @shop.papers.reconcile("new", every=None)
    async def settle(paper: Row, ctx: Context) -> To | Stay | Delete | Again | None:
        match paper["id"]:
            case 1:
                return To("done", size=1)
            case 2:
                return Stay(size=2)
            case 3:
                return Delete()
            case 4:
                return Again("1h")
            case 5:
                return None
            case _:
                async with ctx.transaction(To("done")) as tx:
                    await tx.execute("insert into notes values (6)")
                return None

    async with shop.app.lease("run", ttl="1m") as lease:
        run = await shop.app.reconcilers.run("settle", lease=lease)
    assert run.ending == "completed"
    assert shop.rows == [(1, "done", 1), (2, "new", 2), (4, "new", None), (5, "new", None), (6, "done", None)]
    assert shop.sql("select paper from notes") == [(6,)]
    assert shop.sql("select count(*) from trueup.actions") == [(0,)], "a program's own run is not what a person did"


async def test_once_the_lease_is_lost_there_is_no_checkpoint(shop: Shop) -> None:
    refused: list[LostLease] = []

    @shop.papers.reconcile("new", every=None)
    async def settle(paper: Row, ctx: Context) -> To:
        lease.lost.set()  # as the thread that renews it does
        try:
            await ctx.checkpoint(size=1)
        except LostLease as error:
            refused.append(error)
            raise
        return To("done")

    with pytest.raises(LostLease):
        async with shop.app.lease("run", ttl="1m") as lease:
            await shop.app.reconcilers.run("settle", lease=lease)
    assert refused
    assert shop.rows == UNTOUCHED


@pytest.mark.parametrize("how", ["To", "Stay", "Delete", "transaction"])
async def test_once_somebody_else_has_the_lease_nothing_is_written(shop: Shop, how: str) -> None:
    handled: list[int] = []

    @shop.papers.reconcile("new", concurrency=1, every=None, pause_after=1)
    async def settle(paper: Row, ctx: Context) -> To | Stay | Delete | None:
        handled.append(paper["id"])
        shop.sql(TAKE_OVER)
        if how == "transaction":
            async with ctx.transaction(To("done")) as tx:
                await tx.execute("insert into notes values (1)")
            return None
        return {"To": To("done"), "Stay": Stay(size=1), "Delete": Delete()}[how]

    async with shop.app.lease("run", ttl="1m") as lease:
        with pytest.raises(LostLease):
            await shop.app.reconcilers.run("settle", lease=lease)
    assert handled == [1], "and nothing more is begun"
    assert (shop.rows, shop.claims) == (UNTOUCHED, [(0, 0)]), "what was in hand is back, and no attempt is spent"
    assert shop.sql("select count(*) from notes") == [(0,)]
    assert (await shop.app.reconcilers.show("settle"))["state"] == "active", (
        "nor does the breaker take it for a failure"
    )


async def test_a_run_whose_lease_is_lost_interrupts_its_handlers(shop: Shop) -> None:
    @shop.papers.reconcile("new", every=None)
    async def endless(paper: Row) -> None:
        lease.lost.set()  # as whoever renews it does
        await asyncio.Event().wait()

    refused: list[LostLease] = []
    with pytest.raises(LostLease):  # the lease says so itself at the end of its block
        async with shop.app.lease("run", ttl="1m") as lease, asyncio.timeout(30):
            try:
                await shop.app.reconcilers.run("endless", lease=lease)
            except LostLease as lost:
                refused.append(lost)
    assert len(refused) == 1
    assert (shop.rows, shop.claims) == (UNTOUCHED, [(0, 0)])
    with pytest.raises(LostLease):
        await shop.app.reconcilers.run("endless", lease=lease)


@pytest.mark.parametrize("how", ["returned", "transaction"])
async def test_a_handler_that_notices_the_loss_before_its_interruption_spends_no_attempt(shop: Shop, how: str) -> None:
    """The sweep is run without the watch that interrupts handlers, so that each of them comes to its own end."""

    @shop.papers.reconcile("new", concurrency=1, every=None, pause_after=1)
    async def settle(paper: Row, ctx: Context) -> To | None:
        if how == "returned":
            return To("done")
        async with ctx.transaction(To("done")) as tx:
            await tx.execute("insert into notes values (1)")
        return None

    async with shop.app.lease("run", ttl="1m") as lease:
        shop.sql(TAKE_OVER)
        fenced = leased(shop.app._reconcilers.get("settle"), SweepOptions(), Bounds(None, timedelta(), lease))
        services = RowServices(shop.app.store, shop.app.settings, shop.app.events, [fenced], Holder())
        try:
            await services.gather()
            counts = await services.members["settle"].sweep()
        finally:
            await services.close()
    assert counts.unchanged == 6
    assert (shop.rows, shop.claims) == (UNTOUCHED, [(0, 0)])
    assert (await shop.app.reconcilers.show("settle"))["state"] == "active", "nor is it a failure of the reconciler"


async def test_another_lease_that_a_handler_loses_is_its_own_failure(shop: Shop) -> None:
    @shop.papers.reconcile("new", every=None)
    async def settle(paper: Row) -> To:
        raise LostLease("its own", 1)

    async with shop.app.lease("run", ttl="1m") as lease:
        run = await shop.app.reconcilers.run("settle", lease=lease)
    assert run.outcomes["quarantined"] + run.outcomes["retry"] == 6


async def test_a_sweep_inside_a_cron_run(shop: Shop) -> None:
    """What it is made for."""

    @shop.papers.reconcile("new", every=None)
    async def check(paper: Row) -> To:
        return To("done")

    @shop.app.cron("0 3 * * *", lease="postgres", name="nightly")
    async def nightly(tick: Tick, lease: Lease, ctx: Context) -> dict[str, int]:
        run = await shop.app.reconcilers.run("check", lease=lease, within="10m")
        return run.outcomes

    worker = ManualWorker(shop.app)
    await worker.begin()
    await shop.app.store.schedules.put(shop.app._schedules["nightly"])
    await shop.app.schedules.trigger("nightly")
    await worker.run_pending()
    await worker.end()
    assert [row[1] for row in shop.rows] == ["done"] * 6


async def test_what_a_lease_cannot_fence_is_refused(shop: Shop) -> None:
    @shop.papers.reconcile("new", name="sync", every=None)
    def sync(paper: Row) -> None: ...

    @shop.papers.reconcile("new", name="locked", claim="row_lock", every=None)
    async def locked(paper: Row) -> None: ...

    @shop.papers.reconcile("new", name="shadow", mode="shadow", every=None)
    async def shadow(paper: Row) -> None: ...

    shop.papers.delete("new", stale_for="1d", name="purge")

    @shop.app.scan(every="1h", name="files")
    async def files(cursor: Any) -> AsyncIterator[tuple[Any, Any]]:
        yield 1, 1

    @files.each
    async def each(item: int) -> None: ...

    async with shop.app.lease("run", ttl="1m") as lease:
        for name in ("sync", "locked", "shadow", "purge", "files"):
            with pytest.raises(ConfigError, match=f"{name}.*lease"):
                await shop.app.reconcilers.run(name, lease=lease)
    for wrong in ({"within": "-1s"}, {"within": "soon"}, {"drain_for": "soon"}):
        with pytest.raises(ConfigError, match=f"{next(iter(wrong))}"):
            await shop.app.reconcilers.run("sync", **wrong)
    with pytest.raises(ConfigError, match="a scan has its own lease"):
        await shop.app.reconcilers.run("files", within="1m")
