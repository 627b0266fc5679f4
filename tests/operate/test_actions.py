"""The record of what people did: every action is in it, once, in the same transaction, and without secrets."""

from __future__ import annotations

import asyncio
import getpass
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from tests.support.database import TestServer
from tests.web.dashboard.filled import fill, shop
from trueup import App, ConfigError, NotFound
from trueup.operate.acting import acting
from trueup.operate.actions import NAMES, WHATS
from trueup.schedules import Cron
from trueup.store.history import APART, Kept
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

HOURLY = Cron("0 * * * *")
DAY = timedelta(days=1)


class Shop:
    """A busy shop's database, and what is needed to act on it."""

    def __init__(self, app: App, url: str) -> None:
        self.app = app
        self.url = url

    def query(self, text: str, *params: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text.encode(), params)
            return cursor.fetchall() if cursor.description else []

    def one(self, state: str) -> int:
        table = "history" if state == "dead" else "jobs"
        late = "and run_at > now()" if state == "queued" else ""
        return int(
            self.query(f"select id from trueup.{table} where state = '{state}' {late} order by id limit 1")[0][0]
        )

    def count(self, condition: str) -> int:
        return int(self.query(f"select count(*) from {condition}")[0][0])

    def everything(self) -> list[tuple[Any, ...]]:
        tables = ("jobs", "history", "pauses", "schedules", "ticks", "reconcilers", "rows")
        return [
            self.query(f"select md5(string_agg(x::text, '' order by x::text)) from trueup.{t} as x") for t in tables
        ]  # type: ignore[misc]

    @property
    def now(self) -> datetime:
        now: datetime = self.query("select date_trunc('hour', now())")[0][0]
        return now


@pytest.fixture(scope="module")
def filled(server: TestServer) -> Iterator[str]:
    """Of which each test gets a copy: filling takes five times as long."""
    with server.database() as url:
        fill(url, jobs=60)
        with psycopg.connect(url) as connection:
            connection.execute("truncate trueup.actions")
            name = connection.info.dbname
        yield name


@pytest_asyncio.fixture
async def world(server: TestServer, filled: str) -> AsyncIterator[Shop]:
    with server.database(filled) as url:
        app = shop(url)
        await app.open()
        yield Shop(app, url)
        await app.close()


Act = Callable[[Shop], Awaitable[Any]]


async def _made(shop: Shop) -> None:
    await shop.app.schedules.create("reports", HOURLY, shop.app.named("send_receipt").call(order=1, to="x"), by="setup")


async def _undeclared(shop: Shop) -> None:
    shop.query("delete from trueup.declarations")
    shop.query("delete from trueup.rows where state = 'held'")


async def _ahead(shop: Shop) -> None:
    shop.query("update trueup.schedules set decided_until = now() + interval '1 day' where name = 'close_carts'")


async def _paused(shop: Shop) -> None:
    await shop.app.jobs.pause(queue="mail", by="setup")
    await shop.app.reconcilers.pause("ship_paid_orders", by="setup")


PREPARED = {
    "jobs.resume": _paused,
    "schedules.edit": _made,
    "schedules.delete": _made,
    "schedules.retire": _undeclared,
    "schedules.rewind": _ahead,
    "reconcilers.resume": _paused,
    "reconcilers.forget": _undeclared,
}


async def prepare(shop: Shop, name: str) -> Act:
    if name in PREPARED:
        await PREPARED[name](shop)
    return ACTIONS[name][0]


# Each action: what it is called in the record, on what, on which name, and how many (None: at least one).
ACTIONS: dict[str, tuple[Act, tuple[str, str, str | None, int | None]]] = {
    "jobs.cancel": (
        lambda s: s.app.jobs.cancel([s.one("queued"), s.one("running")], by="ada"),
        ("cancel", "job", None, 2),
    ),
    "jobs.retry": (lambda s: s.app.jobs.retry([s.one("dead"), s.one("queued")], by="ada"), ("retry", "job", None, 2)),
    "jobs.hurry": (lambda s: s.app.jobs.hurry([s.one("queued")], by="ada"), ("hurry", "job", None, 1)),
    "jobs.revive": (lambda s: s.app.jobs.revive([s.one("dead")], by="ada"), ("revive", "job", None, 1)),
    "jobs.discard": (lambda s: s.app.jobs.discard([s.one("dead")], by="ada"), ("discard", "job", None, 1)),
    "jobs.pause": (lambda s: s.app.jobs.pause(kind="send_receipt", by="ada"), ("pause", "kind", "send_receipt", 1)),
    "jobs.resume": (lambda s: s.app.jobs.resume(queue="mail", by="ada"), ("resume", "queue", "mail", 1)),
    "jobs.cancel_all": (lambda s: s.app.jobs.cancel_all(by="ada"), ("cancel", "job", None, 46)),
    "jobs.revive_all": (lambda s: s.app.jobs.revive_all(by="ada"), ("revive", "job", None, None)),
    "jobs.discard_all": (lambda s: s.app.jobs.discard_all(by="ada"), ("discard", "job", None, None)),
    "jobs.hurry_all": (lambda s: s.app.jobs.hurry_all(by="ada"), ("hurry", "job", None, None)),
    "schedules.create": (
        lambda s: s.app.schedules.create("r", HOURLY, s.app.named("send_receipt").call(order=1, to="x"), by="ada"),
        ("create", "schedule", "r", 1),
    ),
    "schedules.edit": (
        lambda s: s.app.schedules.edit("reports", grace="5m", by="ada"),
        ("edit", "schedule", "reports", 1),
    ),
    "schedules.pause": (
        lambda s: s.app.schedules.pause("close_carts", by="ada"),
        ("pause", "schedule", "close_carts", 1),
    ),
    "schedules.resume": (
        lambda s: s.app.schedules.resume("settle_books", by="ada"),
        ("resume", "schedule", "settle_books", 1),
    ),
    "schedules.retire": (
        lambda s: s.app.schedules.retire("close_carts", by="ada"),
        ("retire", "schedule", "close_carts", 1),
    ),
    "schedules.rewind": (
        lambda s: s.app.schedules.rewind("close_carts", by="ada"),
        ("rewind", "schedule", "close_carts", 1),
    ),
    "schedules.delete": (lambda s: s.app.schedules.delete("reports", by="ada"), ("delete", "schedule", "reports", 1)),
    "schedules.trigger": (
        lambda s: s.app.schedules.trigger("close_carts", by="ada"),
        ("trigger", "schedule", "close_carts", 1),
    ),
    "schedules.backfill": (
        lambda s: s.app.schedules.backfill("close_carts", s.now - 30 * DAY, s.now - 29 * DAY, by="ada"),
        ("backfill", "schedule", "close_carts", 25),
    ),
    "reconcilers.pause": (
        lambda s: s.app.reconcilers.pause("ship_paid_orders", by="ada"),
        ("pause", "reconciler", "ship_paid_orders", 1),
    ),
    "reconcilers.resume": (
        lambda s: s.app.reconcilers.resume("ship_paid_orders", by="ada"),
        ("resume", "reconciler", "ship_paid_orders", 1),
    ),
    "reconcilers.forget": (
        lambda s: s.app.reconcilers.forget("expire_carts", by="ada"),
        ("forget", "reconciler", "expire_carts", 120),
    ),
    "reconcilers.release": (
        lambda s: s.app.reconcilers.release("ship_paid_orders", ["70311", "70324"], by="ada"),
        ("release", "row", "ship_paid_orders", 2),
    ),
    "reconcilers.discard": (
        lambda s: s.app.reconcilers.discard("ship_paid_orders", ["70311"], by="ada"),
        ("discard", "row", "ship_paid_orders", 1),
    ),
    "reconcilers.release_all": (
        lambda s: s.app.reconcilers.release_all("ship_paid_orders", by="ada"),
        ("release", "row", "ship_paid_orders", 5),
    ),
    "reconcilers.discard_all": (
        lambda s: s.app.reconcilers.discard_all("ship_paid_orders", by="ada"),
        ("discard", "row", "ship_paid_orders", 5),
    ),
    "reconcilers.run": (
        lambda s: s.app.reconcilers.run("ship_paid_orders", limit=3, by="ada"),
        ("run", "reconciler", "ship_paid_orders", 3),
    ),
}
READS = {
    *(f"jobs.{name}" for name in ("get", "list", "count", "queues", "paused")),
    *(
        f"schedules.{name}"
        for name in ("list", "show", "preview", "preview_backfill", "audit", "attention", "ticks_between")
    ),
    *(
        f"reconcilers.{name}"
        for name in (
            *("list", "show", "summary", "waiting", "behind", "dry_run"),
            *("count_known", "quarantined", "quarantined_row", "count_quarantined"),
        )
    ),
}


async def test_every_operation_is_recorded_or_only_reads(still: App) -> None:
    methods = {
        f"{noun}.{name}"
        for noun in ("jobs", "schedules", "reconcilers")
        for name, method in inspect.getmembers(getattr(still, noun), inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert methods == ACTIONS.keys() | READS


@pytest.mark.parametrize("name", ACTIONS)
async def test_an_action_is_recorded_once_with_who_what_and_how_many(world: Shop, name: str) -> None:
    act = await prepare(world, name)
    await act(world)
    await check_record(world, name)


@pytest.mark.parametrize("name", ACTIONS)
async def test_an_action_that_the_server_asks_to_repeat_is_carried_out_and_recorded_once(
    world: Shop, name: str
) -> None:
    act = await prepare(world, name)
    ask_twice(world, "new.actor = 'ada'")
    await act(world)
    await check_record(world, name)


def ask_twice(world: Shop, when: str) -> None:
    """The first two records of actions are refused, and the server asks to repeat them."""
    world.query("create sequence asked")
    world.query(
        "create function ask() returns trigger language plpgsql as $$ begin"
        " if nextval('public.asked') <= 2 then raise 'deadlock detected' using errcode = '40P01'; end if;"
        " return new; end $$"
    )
    world.query(
        f"create trigger ask before insert or update on trueup.actions for each row when ({when}) execute function ask()"
    )


async def check_record(world: Shop, name: str) -> None:
    _, (action, what, on, count) = ACTIONS[name]
    (record,) = (await world.app.actions.list(actor="ada")).actions
    assert (record.action, record.what, record.name, record.via) == (action, what, on, "python")
    assert record.count == count if count is not None else record.count > 0
    assert len(record.keys) <= 100
    if what in ("job", "row"):
        assert len(record.keys) == min(record.count, 100)
    assert abs((world.query("select now()")[0][0] - record.at).total_seconds()) < 60


@pytest.mark.parametrize("name", sorted(ACTIONS.keys() - {"reconcilers.run", "reconcilers.forget"}))
async def test_an_action_that_cannot_be_recorded_does_not_happen(world: Shop, name: str) -> None:
    world.query(
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'the record is refused'; end $$"
    )
    world.query(
        "create trigger refuse before insert on trueup.actions for each row when (new.actor = 'ada') execute function refuse()"
    )
    act = await prepare(world, name)
    before = world.everything()
    with pytest.raises(psycopg.Error, match="the record is refused"):
        await act(world)
    assert world.everything() == before


async def test_an_action_that_fails_at_its_commit_is_not_recorded(world: Shop) -> None:
    world.query(
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'the change is refused'; end $$"
    )
    world.query(
        "create constraint trigger refuse after delete on trueup.jobs deferrable initially deferred"
        " for each row execute function refuse()"
    )
    with pytest.raises(psycopg.Error, match="the change is refused"):
        await world.app.jobs.cancel([world.one("queued")], reason="no use")
    assert not await world.app.actions.list()


async def test_sync_code_is_recorded_alike(world: Shop) -> None:
    job = world.one("queued")
    await asyncio.to_thread(lambda: world.app.jobs.cancel_sync([job], reason="no use"))
    (record,) = (await asyncio.to_thread(lambda: world.app.actions.list_sync(job=job))).actions
    assert (record.actor, record.via, record.keys) == (getpass.getuser(), "python", (str(job),))
    assert record.detail == "no use"


async def test_sync_code_repeats_what_the_server_asks_to_repeat(world: Shop) -> None:
    ask_twice(world, "true")
    job = world.one("queued")
    assert (await asyncio.to_thread(lambda: world.app.jobs.cancel_sync([job]))).cancelled == {job}
    (record,) = (await world.app.actions.list()).actions
    assert (record.count, record.keys) == (1, (str(job),))


async def test_nothing_is_recorded_of_what_changed_nothing_or_of_what_workers_do(
    world: Shop, still: App, worker: ManualWorker
) -> None:
    assert not await world.app.jobs.resume(queue="never-paused")
    assert not await world.app.schedules.pause("settle_books")
    assert not await world.app.reconcilers.release("ship_paid_orders", ["no-such-row"])
    with pytest.raises(NotFound):
        await world.app.jobs.revive([1])

    @still.job
    async def works() -> None: ...

    await works.enqueue()
    await worker.run_pending()
    assert not await world.app.actions.list()


async def test_secrets_are_not_recorded(world: Shop) -> None:
    await world.app.jobs.cancel_all(kind="charge_card", arguments={"card_token": "tok_5b1f0a77"})
    await world.app.schedules.pause("close_carts", "see https://ops:hunter2@wiki.example/")
    await world.app.schedules.create(
        "reports", HOURLY, world.app.named("send_receipt").call(order=1, to="hunter2@example.org")
    )
    written = str(world.query("select a from trueup.actions as a"))
    assert "card_token" in written
    assert "tok_5b1f0a77" not in written
    assert "hunter2" not in written


async def test_an_action_in_pages_is_one_row_and_counts_all(world: Shop) -> None:
    with acting("otto", "web", together=True):
        for job in (world.one("queued"), world.one("running")):
            await world.app.jobs.cancel([job])
    (record,) = (await world.app.actions.list()).actions
    assert (record.actor, record.via, record.count, len(record.keys)) == ("otto", "web", 2, 2)


async def test_the_list_is_narrowed_and_paged(world: Shop) -> None:
    for who in ("ada", "bob", "ada"):
        await world.app.jobs.pause(queue="mail", by=who)
        await world.app.jobs.resume(queue="mail", by=who)
    actions = world.app.actions
    assert [each.action for each in await actions.list(actor="bob")] == ["resume", "pause"]
    assert len(await actions.list(action="pause", what="queue", name="mail", via="python", within="1h")) == 3
    assert not await actions.list(via="cli")
    first = await actions.list(limit=4)
    second = await actions.list(limit=4, after=first.next)
    assert [len(first), len(second), second.next] == [4, 2, None]
    assert [each.id for each in (*first, *second)] == sorted((each.id for each in (*first, *second)), reverse=True)
    with pytest.raises(ConfigError):
        await actions.list(limit=0)
    with pytest.raises(ConfigError, match="by"):
        await world.app.jobs.pause(queue="mail", by=" ")


@pytest.mark.parametrize("condition", ["via", "what", "action"])
async def test_a_condition_that_no_record_can_meet_is_refused_with_what_there_is(world: Shop, condition: str) -> None:
    """An empty list of the audit log would say that nobody did it."""
    with pytest.raises(ConfigError, match=f"^{condition} 'qeue': there are .*, "):
        await world.app.actions.list(**{condition: "qeue"})  # type: ignore[arg-type]


async def test_every_recorded_action_can_be_asked_for() -> None:
    assert {name for _, (name, _, _, _) in ACTIONS.values()} == set(NAMES)
    assert {what for _, (_, what, _, _) in ACTIONS.values()} == set(WHATS)


async def test_it_is_kept_for_keep_actions(still: App, clock: ManualClock) -> None:
    await still.jobs.pause(queue="mail", by="ada")
    kept = Kept(done=DAY, cancelled=DAY, dead=DAY, ticks=DAY, sweeps=DAY, actions=2 * DAY)
    for days, left in ((1, 1), (3, 0)):
        clock.advance(days=days)
        await still.store.history.prune(kept)
        clock.advance(seconds=APART + 1)
        await still.store.history.prune(kept)
        assert len(await still.actions.list()) == left
