"""Leases of rows in hand are renewed, whatever the handlers do; and not for handlers that have used up their time."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from tests.support.watching import until
from tests.work.rows.field import Field
from trueup import Context, Retry, To
from trueup.events import RowChanged, RowClaimLost, RowRetried
from trueup.testing.clock import ManualClock
from trueup.work.rows.held import RowInHand
from trueup.work.rows.renewer import RowRenewer

pytestmark = pytest.mark.asyncio


async def test_a_row_is_either_renewed_or_written() -> None:
    """A renewal may change what the outcome is compared with."""
    held = RowInHand(None, 0.0)  # type: ignore[arg-type]
    assert held.begin_renewing(0.0)
    assert not held.begin_writing()
    held.end_turn("write")  # of another statement
    assert not held.begin_writing()
    held.end_turn("renewal")
    assert held.begin_writing()
    assert not held.begin_renewing(0.0)


async def test_a_lease_is_renewed_when_a_third_of_it_has_passed(field: Field, clock: ManualClock) -> None:
    renewer = field.manual.worker.row_services.renewer
    dues: list[float] = []

    async def handler(row: Any) -> Any:
        for seconds in (9.9, 0.2, 9.9, 0.2):
            clock.advance(seconds=seconds)
            await asyncio.to_thread(renewer.renew_once)
            known = await field.known()
            assert known is not None
            dues.append(round((known["due_at"] - clock.now()).total_seconds(), 3))
        return To("done")

    await field.put()
    field.fix(handler, lease_for="30s")
    assert (await field.sweep()).changed == 1
    assert dues == [20.1, 30, 20.1, 30]
    renewer.connection.close()


@pytest.mark.slow
async def test_a_blocked_event_loop_loses_no_lease(live: Field) -> None:
    async def handler(row: Any) -> Any:
        time.sleep(2.5)  # two and a half leases
        return To("done", n=1)

    await live.put(3)
    live.fix(handler, run_at_start=True, lease_for="1s", concurrency=1)
    async with live.app.worker():
        await live.events.seen(RowChanged, count=3)
    assert live.events.of(RowClaimLost) == []


async def test_rows_that_wait_for_their_turn_are_renewed_too(live: Field) -> None:
    async def handler(row: Any) -> Any:
        await asyncio.sleep(0.7)
        return To("done")

    await live.put(4)
    live.fix(handler, run_at_start=True, lease_for="1s", concurrency=1)
    async with live.app.worker():
        await live.events.seen(RowChanged, count=4)
    assert {event.attempt for event in live.events.of(RowChanged)} == {1}
    assert live.events.of(RowClaimLost) == []


async def test_a_handler_that_ignores_its_timeout_loses_its_row_when_the_lease_has_passed(live: Field) -> None:
    go_on = threading.Event()
    runs: list[int] = []

    async def deaf(row: Any, *, ctx: Context) -> Any:
        runs.append(ctx.term)
        if len(runs) > 1:
            return To("done", n=2)
        while not go_on.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
        return To("done", n=1)

    await live.put()
    live.fix(deaf, run_at_start=True, lease_for="1s", timeout="100ms", every="100ms", concurrency=2)
    async with live.app.worker():
        await live.events.seen(RowChanged)
        go_on.set()
        await live.events.seen(RowClaimLost)
    assert (await live.thing())["n"] == 2
    assert len(runs) == 2
    assert runs[1] > runs[0]


async def test_a_handler_that_blocks_the_loop_past_its_timeout_is_not_renewed_for(live: Field) -> None:
    taken_over: list[bool] = []

    async def handler(row: Any) -> Any:
        if not taken_over:
            time.sleep(2.5)
            taken_over.append(True)
        return To("done")

    await live.put()
    live.fix(handler, run_at_start=True, lease_for="1s", timeout="200ms", every="100ms")
    async with live.app.worker():
        (lost,) = await live.events.seen(RowClaimLost)
        await live.events.seen(RowChanged)
    assert lost.refused_by in ("local", "database")


async def test_a_thread_that_hangs_past_its_timeout_is_a_failure_and_its_row_goes_on(live: Field) -> None:
    go_on = threading.Event()
    runs: list[int] = []

    def handler(row: Any) -> Any:
        runs.append(row.id)
        if len(runs) == 1:
            go_on.wait(20)
            return To("done", n=1)
        return To("done", n=2)

    await live.put()
    live.fix(handler, run_at_start=True, lease_for="1s", timeout="100ms", concurrency=1, retry=Retry(first="1ms"))
    async with live.app.worker():
        await live.events.seen(RowRetried)
        await live.events.seen(RowChanged)
        go_on.set()
    assert (await live.thing())["n"] == 2


async def test_a_lease_that_went_to_somebody_else_cancels_the_handler(live: Field) -> None:
    cancelled = asyncio.Event()

    async def handler(row: Any, *, ctx: Context) -> Any:
        await live.do("update trueup.rows set term = term + 1")
        try:
            await ctx.lost.wait()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await live.put()
    live.fix(handler, run_at_start=True, lease_for="1s", every="1h")
    async with live.app.worker():
        await until(cancelled.is_set)
        (event, *_) = await live.events.seen(RowClaimLost)
    assert event.refused_by == "local"


async def test_a_handler_that_goes_on_after_its_commit_is_left_in_peace(live: Field) -> None:
    ended = asyncio.Event()

    async def handler(row: Any, *, ctx: Context) -> Any:
        async with ctx.transaction(To("done")):
            pass
        await asyncio.sleep(1.5)  # longer than its lease, which is gone with the commit
        ended.set()

    await live.put()
    live.fix(handler, run_at_start=True, lease_for="1s")
    async with live.app.worker():
        await until(ended.is_set)
        await live.events.seen(RowChanged)
    assert live.events.of(RowClaimLost) == []


async def test_an_error_in_a_renewal_does_not_end_the_keeper(live: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    renew, failures = RowRenewer.renew_once, 0

    def fails_first(self: RowRenewer) -> None:
        nonlocal failures
        if failures < 2:
            failures += 1
            raise RuntimeError("odd")
        renew(self)

    monkeypatch.setattr(RowRenewer, "renew_once", fails_first)

    async def handler(row: Any) -> Any:
        await asyncio.sleep(2)
        return To("done")

    await live.put()
    live.fix(handler, run_at_start=True, lease_for="1s")
    async with live.app.worker():
        await live.events.seen(RowChanged)
    assert failures == 2


async def test_a_keeper_may_be_stopped_and_started_again(live: Field) -> None:
    live.fix(lambda row: None)
    await live.gather()
    renewer = live.manual.worker.row_services.renewer
    for _ in range(3):
        renewer.start()
        renewer.start()
        thread = renewer._thread
        assert thread is not None
        assert thread.is_alive()
        await asyncio.to_thread(renewer.stop)
        assert not thread.is_alive()
    await asyncio.to_thread(renewer.stop)
