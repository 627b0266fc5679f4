"""Schedules whose runs take a lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.watching import Watched, until
from trueup import App, ConfigError, Context, Tick
from trueup.events import JobDropped, JobRetried, LeaseAcquired, RunHandledElsewhere
from trueup.schedules.cron import Cron
from trueup.schedules.interval import Every
from trueup.schedules.once import Once
from trueup.worker.exclusive import ELSEWHERE, RunLease

pytestmark = pytest.mark.asyncio

DUE = datetime(2026, 6, 1, tzinfo=UTC)


async def ticks(app: App) -> list[tuple[str, str | None]]:
    async with app.store.pool.use() as connection:
        rows = await connection.execute("select outcome, reason from trueup.ticks order by due_at")
        return await rows.fetchall()


async def fire(app: App, name: str) -> None:
    """One tick, now."""
    store = await app.open()
    for entry in app._schedules.values():
        await store.schedules.put(entry)
    await store.schedules.trigger(name)


def is_async(ran: list[Any], app: App, **options: Any) -> None:
    @app.every("1h", name="nightly", **options)
    async def nightly() -> None:
        ran.append(asyncio.current_task())


def is_sync(ran: list[Any], app: App, **options: Any) -> None:
    @app.every("1h", name="nightly", **options)
    def nightly(tick: Tick) -> None:
        ran.append(tick)


@pytest.mark.parametrize("declare", [is_async, is_sync])
@pytest.mark.parametrize("backend", ["postgres", "advisory"])
async def test_a_run_takes_the_lease_of_its_schedule(app: App, declare: Callable[..., None], backend: str) -> None:
    ran: list[Any] = []
    events = Watched(app)
    declare(ran, app, lease=backend)
    await fire(app, "nightly")
    async with app.worker():
        await until(lambda: ran)
    assert [event.lease for event in events.of(LeaseAcquired)] == ["cron:nightly"]
    assert [outcome for outcome, _ in await ticks(app)] == ["fired"]


@pytest.mark.parametrize("declare", [is_async, is_sync])
async def test_while_another_instance_has_it_the_tick_is_skipped_and_not_retried(
    app: App, declare: Callable[..., None]
) -> None:
    ran: list[Any] = []
    events = Watched(app)
    declare(ran, app, lease="postgres")
    await fire(app, "nightly")
    async with app.lease("cron:nightly"), app.worker():
        await events.seen(JobDropped)
    assert ran == []
    assert await ticks(app) == [("skipped", ELSEWHERE)]
    assert [event.schedule for event in events.of(RunHandledElsewhere)] == ["nightly"]
    assert not events.of(JobRetried)


async def test_a_key_that_others_know_is_the_lock_of_the_run(app: App) -> None:
    ran: list[Any] = []
    events = Watched(app)
    is_async(ran, app, lease="advisory", lease_key=738523901)
    await fire(app, "nightly")
    async with app.store.pool.use() as connection:
        await connection.execute("select pg_advisory_lock(738523901)")
        async with app.worker():
            await events.seen(JobDropped)
        await connection.execute("select pg_advisory_unlock(738523901)")
    assert ran == []


async def test_a_run_that_lasts_longer_than_its_lease_may_is_cancelled(app: App) -> None:
    events = Watched(app)

    @app.every("1h", name="nightly", lease="postgres", lease_ttl="1s")
    async def nightly() -> None:
        await asyncio.sleep(60)

    await fire(app, "nightly")
    async with app.worker():
        (retried,) = await events.seen(JobRetried)
    assert retried.error_type == "trueup.errors.LostLease"


async def test_the_function_still_takes_what_it_asks_for_and_can_be_called_by_hand(app: App) -> None:
    seen: list[Any] = []

    @app.cron("0 3 * * *", lease="postgres")
    async def nightly(tick: Tick, ctx: Context) -> None:
        seen.append((tick.schedule, ctx.attempt))

    @app.cron("0 4 * * *", lease="postgres")
    async def plain() -> str:
        return "by hand"

    called: Awaitable[str] = plain()
    assert await called == "by hand"
    await fire(app, "nightly")
    async with app.worker():
        await until(lambda: seen)
    assert seen == [("nightly", 1)]


async def test_a_lease_lasts_until_a_little_before_the_next_tick_in_steps_of_a_minute() -> None:
    lease, tick = RunLease("postgres"), Tick("nightly", DUE, timedelta(), 1)
    quarter, daily = lease.wish(tick, Every("15m")), lease.wish(tick, Cron("0 0 * * *"))
    assert (quarter.name, quarter.ttl, quarter.most) == ("cron:nightly", timedelta(minutes=1), timedelta(minutes=14))
    assert (daily.ttl, daily.most, daily.wait) == (timedelta(minutes=1), timedelta(hours=23), None)
    assert lease.wish(tick, Every("10s")).ttl == timedelta(seconds=9)
    assert lease.wish(tick, Once(DUE)).most is None


async def test_a_retry_waits_for_the_lease_of_the_holder_that_died() -> None:
    again = RunLease("postgres").wish(Tick("nightly", DUE, timedelta(), 2), Every("1h"))
    assert again.wait == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"lease": "etcd"}, "lease='etcd'"),
        ({"lease_ttl": "1m"}, "need lease="),
        ({"lease": "postgres", "lease_key": 1}, "lease_key="),
        ({"lease": "postgres", "lease_ttl": "10ms"}, "too short"),
    ],
)
async def test_a_lease_that_makes_no_sense_is_refused_at_the_declaration(
    app: App, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        app.cron("0 3 * * *", **options)


async def test_an_option_that_no_schedule_takes_is_refused_like_any_unknown_argument(app: App) -> None:
    with pytest.raises(TypeError, match="retries"):
        app.cron("* * * * *", retries=3)  # type: ignore[call-arg]
