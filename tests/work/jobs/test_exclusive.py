"""Schedules whose runs take a lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.servers.valkey import Valkey
from tests.support.watching import Watched, until
from trueup import App, ConfigError, Context, Lease, LostLease, Tick
from trueup.events import JobDropped, JobRetried, LeaseAcquired, RunHandledElsewhere, RunPostponed
from trueup.schedules.cron import Cron
from trueup.schedules.when import Every, Once
from trueup.work.jobs.exclusive import ELSEWHERE, RunLease

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
    quarter, daily = lease.request(tick, Every("15m")), lease.request(tick, Cron("0 0 * * *"))
    assert (quarter.name, quarter.ttl, quarter.most) == ("cron:nightly", timedelta(minutes=1), timedelta(minutes=14))
    assert (daily.ttl, daily.most, daily.wait) == (timedelta(minutes=1), timedelta(hours=23), None)
    assert lease.request(tick, Every("10s")).ttl == timedelta(seconds=9)
    assert lease.request(tick, Once(DUE)).most is None


async def test_the_step_in_which_it_is_renewed_can_be_given() -> None:
    lease = RunLease.of("redis", "14m", "cron:x", "20s")
    assert lease is not None
    request = lease.request(Tick("nightly", DUE, timedelta(), 2), Every("15m"))
    assert (request.ttl, request.wait, request.most) == (
        timedelta(seconds=20),
        timedelta(seconds=20),
        timedelta(minutes=14),
    )


@pytest.mark.parametrize("sync", [False, True])
async def test_a_function_that_asks_for_its_lease_is_given_the_one_it_runs_under(app: App, sync: bool) -> None:
    events = Watched(app)
    given: list[Lease] = []

    if sync:

        @app.every("1h", name="nightly", lease="postgres")
        def nightly(lease: Lease) -> None:
            given.append(lease)

    else:

        @app.every("1h", name="nightly", lease="postgres")
        async def nightly(tick: Tick, lease: Lease) -> None:
            async with app.transaction() as tx:
                await lease.fence(tx)
            given.append(lease)

    await fire(app, "nightly")
    async with app.worker():
        await until(lambda: given)
    assert [event.term for event in events.of(LeaseAcquired)] == [given[0].term]
    async with app.lease("cron:nightly"), app.transaction() as tx:
        with pytest.raises(LostLease):
            await given[0].fence(tx)


async def test_a_function_that_asks_for_a_lease_without_one_is_refused(app: App) -> None:
    with pytest.raises(ConfigError, match="its schedule has no lease="):

        @app.every("1h")
        async def nightly(lease: Lease) -> None: ...


async def test_a_run_whose_lease_nobody_can_be_asked_for_waits_and_spends_no_attempt(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trueup.work.jobs.exclusive.ASK_AGAIN", timedelta(milliseconds=200))
    seen: list[Tick] = []
    with Valkey() as valkey:
        app = App(database_url, redis_url=valkey.url)
        events = Watched(app)

        @app.every("1h", name="nightly", lease="redis", lease_key="cron:nightly-report")
        async def nightly(tick: Tick) -> None:
            assert valkey.keys() == ["cron:nightly-report"]
            seen.append(tick)

        await fire(app, "nightly")
        valkey.stop()
        async with app.worker():
            await events.seen(RunPostponed, count=2)
            assert seen == []
            await asyncio.to_thread(valkey.start)
            await until(lambda: seen)
        assert [tick.attempt for tick in seen] == [1]
        assert [outcome for outcome, _ in await ticks(app)] == ["fired"]
        assert "Redis is unreachable" in events.of(RunPostponed)[0].reason
        await app.close()


async def test_a_retry_waits_for_the_lease_of_the_holder_that_died() -> None:
    again = RunLease("postgres").request(Tick("nightly", DUE, timedelta(), 2), Every("1h"))
    assert again.wait == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"lease_step": "1m"}, "need lease="),
        ({"lease": "postgres", "lease_step": "10ms"}, "lease_step='10ms' is too short"),
        ({"lease": "redis", "lease_key": 1}, "lease_key=1"),
        ({"lease": "redis", "lease_key": ""}, "lease_key"),
        ({"lease": "redis", "lease_key": "two words"}, "lease_key"),
        ({"lease": "advisory", "lease_key": "cron:x"}, "lease_key='cron:x'"),
        ({"lease": "advisory", "lease_key": True}, "lease_key=True"),
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
