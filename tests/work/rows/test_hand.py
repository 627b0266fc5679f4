"""Rows in hand: how many run, what becomes of them when a lease is gone, and when the worker stops."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.support.watching import until
from tests.work.rows.field import NAME, Field
from trueup import Context, Retry, To
from trueup.events import RowChanged, RowClaimLost, RowReleased, RowRetried, ServiceFailed
from trueup.testing.clock import ManualClock
from trueup.work.rows import pace

pytestmark = pytest.mark.asyncio


def tasks() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == f"trueup {NAME}"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_as_many_handlers_as_concurrency_run_at_a_time_and_never_more(field: Field, is_async: bool) -> None:
    running = peak = 0

    def begin() -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)

    async def handler(row: Any) -> Any:
        nonlocal running
        begin()
        await asyncio.sleep(0.005)
        running -= 1
        return To("done")

    def in_thread(row: Any) -> Any:
        nonlocal running
        begin()
        time.sleep(0.02)
        running -= 1
        return To("done")

    await field.put(60)
    field.fix(handler if is_async else in_thread, concurrency=7, batch=20)
    assert (await field.sweep()).changed == 60
    assert peak == 7


async def test_a_handler_is_cancelled_and_told_when_its_lease_can_no_longer_be_trusted(
    field: Field, clock: ManualClock
) -> None:
    heard: list[str] = []

    async def handler(row: Any, *, ctx: Context) -> Any:
        clock.advance(seconds=26)  # of 30, and nobody renews
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            assert ctx.lost.is_set()
            raise

    await field.put()
    field.fix(handler, lease_for="30s")
    counts = await field.sweep()
    assert (counts.lost, counts.settled) == (1, 1)
    assert heard == ["cancelled"]
    assert field.events.of(RowClaimLost)[0].refused_by == "local"
    known = await field.known()
    assert known is not None
    assert known["state"] == "held"
    clock.advance(seconds=5)
    assert (await field.sweep()).claimed == 1


async def test_an_outcome_that_comes_after_the_lease_was_lost_changes_nothing(field: Field, clock: ManualClock) -> None:
    go_on = asyncio.Event()
    runs: list[int] = []

    async def deaf(row: Any) -> Any:
        runs.append(row.id)
        if len(runs) > 1:
            return To("done", n=2)
        clock.advance(seconds=31)
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        return To("done", n=1)

    await field.put()
    field.fix(deaf, concurrency=2)
    first = await field.sweep()  # ends, though the handler does not
    assert (first.lost, first.settled) == (1, 1)
    assert len(tasks()) == 1
    assert (await field.sweep()).changed == 1
    go_on.set()
    await until(lambda: not tasks())
    assert (await field.thing())["n"] == 2
    assert len(field.events.of(RowChanged)) == 1
    assert len(field.events.of(RowClaimLost)) == 1


async def test_rows_wait_for_no_handler_that_has_lost_its_row_and_does_not_end(
    field: Field, clock: ManualClock
) -> None:
    go_on = asyncio.Event()
    runs: list[int] = []

    async def deaf(row: Any) -> Any:
        runs.append(row.id)
        if len(runs) == 1:
            clock.advance(seconds=26)
            while not go_on.is_set():
                try:
                    await go_on.wait()
                except asyncio.CancelledError:
                    continue
        return To("done")

    await field.put(3)
    field.fix(deaf, concurrency=1, lease_for="30s")
    counts = await field.sweep()
    assert (counts.claimed, counts.settled, counts.changed) == (3, 3, 0)
    assert await field.sweeper().run_once() == pace.PAUSED_LOOK
    go_on.set()
    assert "do not end" in field.events.of(ServiceFailed)[0].error
    await until(lambda: not tasks())
    clock.advance(seconds=30)
    assert (await field.sweep()).changed == 3
    assert runs == [1, 1, 2, 3]


async def test_rows_are_not_kept_for_handlers_that_do_not_end(live: Field) -> None:
    go_on = asyncio.Event()

    async def deaf(row: Any) -> Any:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    await live.put(3)
    live.fix(deaf, run_at_start=True, concurrency=1, lease_for="1s", timeout="50ms")
    async with live.app.worker():
        await live.events.seen(RowReleased, count=2)  # those whose leases were renewed while they waited
        assert [event.key for event in live.events.of(RowClaimLost)] == ["1"]
        go_on.set()


async def test_a_row_is_not_begun_with_little_of_its_lease_left(field: Field, clock: ManualClock) -> None:
    begun: list[int] = []

    async def handler(row: Any) -> Any:
        begun.append(row.id)
        if row.id == 1:
            clock.advance(seconds=17)  # 25.5 are trusted: less than a third of 30 is left
        return To("done")

    await field.put(3)
    field.fix(handler, concurrency=1, lease_for="30s")
    counts = await field.sweep()
    assert begun == [1]
    assert (counts.changed, counts.unchanged) == (1, 2)
    assert await field.known(2) is None  # as if it had never been claimed
    assert (await field.sweep()).changed == 2


async def test_waiting_for_the_rate_counts_from_the_claim(live: Field) -> None:
    await live.put(20)
    live.fix(lambda row: To("done"), rate="100/s", concurrency=1)
    started = time.monotonic()
    assert (await live.sweep()).changed == 20
    assert 0.15 < time.monotonic() - started < 1.5  # added up, the waits would be two seconds


# -- stopping -------------------------------------------------------------------------------------------------------------


class Slow:
    """A handler that runs until it is let go."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.cancelled: list[int] = []
        self.go_on = asyncio.Event()

    async def handler(self, row: Any) -> Any:
        self.begun.append(row.id)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.append(row.id)
            raise
        self.ended.append(row.id)
        return To("done")


async def test_a_stop_lets_running_handlers_end_and_gives_back_what_waits(live: Field) -> None:
    slow = Slow()
    await live.put(10)
    live.fix(slow.handler, run_at_start=True, concurrency=3, batch=10)
    worker = live.app.worker()
    await worker.start()
    await until(lambda: len(slow.begun) == 3)
    stopping = asyncio.create_task(worker.stop())
    await live.events.seen(RowReleased, count=7)
    slow.go_on.set()
    await stopping
    assert len(slow.ended) == 3
    assert slow.cancelled == []
    assert await live.states() == {"done": 3, "new": 7}
    assert await live.value("select count(*) from trueup.rows") == 0
    assert tasks() == []


async def test_what_does_not_end_in_time_is_cancelled_and_given_back_with_its_attempt(live: Field) -> None:
    slow = Slow()
    await live.put(5)
    live.fix(slow.handler, run_at_start=True, concurrency=2)
    worker = live.app.worker()
    await worker.start()
    await until(lambda: len(slow.begun) == 2)
    worker.request_stop()
    worker.request_stop()
    await worker.stop()
    assert sorted(slow.cancelled) == sorted(slow.begun)
    assert await live.states() == {"new": 5}
    # Those that were begun may have done something outside: their next attempt has the same idempotency key.
    known = await live.ask("select state, attempt, occasion is not null as kept from trueup.rows")
    assert known == [{"state": "resting", "attempt": 0, "kept": True}] * 2
    assert live.events.of(RowRetried) == []
    assert live.events.of(RowClaimLost) == []
    assert tasks() == []


async def test_an_attempt_interrupted_by_a_stop_is_given_back_whatever_the_handler_raises(
    live: Field,
) -> None:
    begun: list[int] = []

    async def handler(row: Any, *, ctx: Context) -> Any:
        if ctx.attempt == 1:
            raise ValueError("the first time")
        begun.append(row.id)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise RuntimeError("the connection is in an unknown state") from error

    await live.put()
    live.fix(handler, run_at_start=True, retry=Retry(first="1ms", max_attempts=2))
    worker = live.app.worker()
    await worker.start()
    await until(lambda: begun)
    worker.request_stop()
    worker.request_stop()
    await worker.stop()
    known = await live.known()
    assert known is not None
    assert (known["state"], known["attempt"]) == ("resting", 1)


async def test_a_sweeper_may_be_stopped_twice_and_started_again(live: Field) -> None:
    await live.put(3)
    live.fix(lambda row: To("done"), every="10ms", run_at_start=True)
    sweeper = await live.gather()
    for _ in range(20):
        sweeper.start()
        sweeper.start()
        await asyncio.gather(sweeper.stop(), sweeper.stop())
        await sweeper.stop()
    sweeper.start()
    await live.events.seen(RowChanged, count=3)
    await sweeper.stop()
    assert tasks() == []


async def test_a_kill_leaves_nothing_behind_and_begins_nothing_new(live: Field) -> None:
    slow = Slow()
    await live.put(10)
    live.fix(slow.handler, run_at_start=True, concurrency=3)
    worker = live.app.worker()
    await worker.start()
    await until(lambda: len(slow.begun) == 3)
    await worker.abandon()
    assert len(slow.begun) == 3
    assert len(slow.cancelled) == 3
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("trueup ")] == []
    assert await live.value("select count(*) from trueup.rows where state = 'held'") == 10


async def test_a_commit_stands_when_the_worker_stops_right_after_it(live: Field) -> None:
    committed = asyncio.Event()

    async def handler(row: Any, *, ctx: Context) -> Any:
        async with ctx.transaction(To("done")):
            pass
        committed.set()
        await asyncio.Event().wait()

    await live.put()
    live.fix(handler, run_at_start=True)
    worker = live.app.worker()
    await worker.start()
    await until(committed.is_set)
    worker.request_stop()
    worker.request_stop()
    await worker.stop()
    assert await live.states() == {"done": 1}
    assert len(live.events.of(RowChanged)) == 1
    assert live.events.of(RowClaimLost) == []
    assert live.events.of(RowReleased) == []
