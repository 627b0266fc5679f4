"""What handlers do around their calls to others: the database's time, retries, and a rate that the fleet shares."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.support.watching import until
from trueup import App, ConfigError, Context, Discard, GiveUp, JobFailed, RateExceeded, Retry, Snooze, injected
from trueup.clock import elapsed
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

QUICK = Retry(max_attempts=3, first="1ms")


# -- the database's time ----------------------------------------------------------------------------------------------


async def test_now_is_the_databases_time_and_in_a_transaction_the_moment_it_began(app: App) -> None:
    before = await app.now()
    async with app.transaction() as tx:
        began = await app.now(tx)
        assert (await (await tx.execute("select now()")).fetchone()) == (began,)
        assert await app.now(tx) == began
    assert before <= began <= await app.now()
    with psycopg.connect(app.store.url) as connection:
        connection.execute("select 1")
        assert connection.execute("select now()").fetchone() == (app.now_sync(connection),)
    assert app.now_sync() >= began


async def test_now_is_what_the_clock_of_a_test_says(still: App, clock: ManualClock) -> None:
    assert await still.now() == clock.now()


# -- retries ----------------------------------------------------------------------------------------------------------


class Flaky:
    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.sync(*args, **kwargs)

    def sync(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return args, kwargs


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("retry", "errors", "calls", "raised"),
    [
        (QUICK, [], 1, None),
        (QUICK, [OSError(), ValueError()], 3, None),
        (QUICK, [OSError(), OSError(), ValueError("last")], 3, ValueError),
        (Retry(first="1ms", retry_on=(OSError,)), [ValueError()], 1, ValueError),
        (Retry(first="1ms", give_up_on=(ValueError,)), [OSError(), ValueError()], 2, ValueError),
        (QUICK, [GiveUp("no")], 1, GiveUp),
        (QUICK, [Snooze("1s")], 1, Snooze),
        (QUICK, [Discard("no")], 1, Discard),
        (QUICK, [KeyboardInterrupt()], 1, KeyboardInterrupt),
    ],
)
async def test_a_call_is_repeated_as_the_policy_says(
    retry: Retry, errors: list[BaseException], calls: int, raised: type[BaseException] | None, is_async: bool
) -> None:
    flaky = Flaky(*errors)

    async def call() -> Any:
        return await retry.call(flaky, 1, x=2) if is_async else retry.call_sync(flaky.sync, 1, x=2)

    if raised is None:
        assert await call() == ((1,), {"x": 2})
    else:
        with pytest.raises(raised):
            await call()
    assert flaky.calls == calls


async def test_a_cancellation_ends_it_whether_it_calls_or_waits() -> None:
    for flaky in (Flaky(OSError()), Flaky(asyncio.CancelledError())):
        task = asyncio.create_task(Retry(first="1h", cap="1h").call(flaky))
        await until(lambda flaky=flaky: flaky.calls == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert flaky.calls == 1


@pytest.mark.parametrize("is_async", [True, False])
async def test_it_does_not_wait_past_the_timeout_of_its_handler(app: App, is_async: bool) -> None:
    retry = Retry(max_attempts=5, first="30s", cap="30s")
    flaky = Flaky(*[OSError("their own error")] * 5)

    if is_async:

        @app.job(retry=Retry(max_attempts=1), timeout="20s")
        async def calling() -> None:
            await retry.call(flaky)
    else:

        @app.job(name="calling", retry=Retry(max_attempts=1), timeout="20s")
        def calling() -> None:
            retry.call_sync(flaky.sync)

    async with app.worker():
        job = await calling.enqueue()
        begun = elapsed()
        with pytest.raises(JobFailed, match="their own error"):
            await job.result(timeout="15s")
        assert elapsed() - begun < 15
    assert flaky.calls == 1


async def test_the_deadline_of_one_handler_is_not_left_to_the_next(app: App) -> None:
    seen: list[int] = []

    @app.job(timeout="1s")
    async def short() -> None: ...

    @app.job
    async def patient(ctx: Context = injected) -> None:
        seen.append(await Retry(first="1200ms").call(Flaky(OSError()), ctx.attempt))

    async with app.worker(concurrency=1):
        await short.enqueue()
        await (await patient.enqueue()).result(timeout="15s")
    assert len(seen) == 1


# -- a rate that calls share ------------------------------------------------------------------------------------------


def next_at(app: App) -> Any:
    with psycopg.connect(app.store.url) as connection:
        row = connection.execute("select next_at from trueup.rates where name = 'provider'").fetchone()
    assert row is not None
    return row[0]


async def test_calls_of_all_processes_are_a_spacing_apart(app: App, database_url: str) -> None:
    other = App(database_url)
    begun: list[float] = []

    async def call(which: App) -> None:
        await which.rate("provider", "20/s")
        begun.append(elapsed())

    def call_sync() -> None:
        other.rate_sync("provider", "20/s")
        begun.append(elapsed())

    started = elapsed()
    threads = [threading.Thread(target=call_sync) for _ in range(5)]
    for thread in threads:
        thread.start()
    await asyncio.gather(*(call(app) for _ in range(10)), *(call(other) for _ in range(5)))
    for thread in threads:
        await asyncio.to_thread(thread.join)
    await other.close()
    begun.sort()
    assert len(begun) == 20
    assert begun[-1] - started >= 19 / 20
    for first in range(20):  # a call begins a little later than it may; on a busy machine, a little later still
        for last in range(first + 1, 20):
            assert last - first <= (begun[last] - begun[first] + 0.3) * 20 + 1


async def test_rates_of_other_names_do_not_wait_for_each_other(app: App) -> None:
    for name in "abcdefgh":
        await app.rate(name, "1/1h", wait="0s")
    with pytest.raises(RateExceeded):
        await app.rate("a", "1/1h", wait="1s")


async def test_one_that_is_too_far_away_is_refused_and_takes_nothing(still: App, clock: ManualClock) -> None:
    await still.rate("slow", "1/m")
    for _ in range(3):
        with pytest.raises(RateExceeded, match="'slow'") as refused:
            await still.rate("slow", "1/m", wait="30s")
        assert refused.value.after == timedelta(minutes=1)
    clock.advance(seconds=60)
    await still.rate("slow", "1/m", wait="0s")


async def test_a_clock_that_went_back_by_hours_stops_nobody(still: App, clock: ManualClock) -> None:
    await still.rate("provider", "1/s")
    clock.advance(hours=-5)
    await still.rate("provider", "1/s", wait="0s")
    with pytest.raises(RateExceeded):
        await still.rate("provider", "1/s", wait="0s")


async def test_a_process_that_misses_its_moment_takes_another_one(app: App) -> None:
    await app.rate("provider", "2/s")
    first = next_at(app)
    task = asyncio.create_task(app.rate("provider", "2/s"))
    await until(lambda: next_at(app) > first)
    time.sleep(1.0)  # the loop is blocked over its moment
    blocked_until = elapsed()
    await app.rate("provider", "2/s")
    await task
    assert elapsed() - blocked_until > 0.3


async def test_one_that_is_cancelled_while_it_waits_costs_its_moment_only(still: App, clock: ManualClock) -> None:
    await still.rate("provider", "1/m")
    task = asyncio.create_task(still.rate("provider", "1/m", wait="5m"))
    await until(lambda: next_at(still) == clock.now() + timedelta(minutes=2))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    clock.advance(seconds=120)
    await still.rate("provider", "1/m", wait="0s")


@pytest.mark.parametrize(("rate", "wait"), [("fast", "1s"), ("1/s", "2h")])
async def test_what_cannot_be_is_refused(app: App, rate: str, wait: str) -> None:
    with pytest.raises(ConfigError):
        await app.rate("provider", rate, wait=wait)
