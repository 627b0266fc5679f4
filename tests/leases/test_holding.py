"""Holding a lease, whatever keeps it: `async with app.lease(…)` and `with app.lease_sync(…)`."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.leases.keepers import Keeper
from tests.support.watching import Watched
from trueup import LostLease, NotAcquired
from trueup.clock import elapsed
from trueup.events import LeaseLost
from trueup.work.leases.lease import LeaseContext

pytestmark = pytest.mark.asyncio

LONG = "30s"  # where nothing expires: acquiring through several servers takes a second where the machine is busy


def lease(keeper: Keeper, ttl: str = "1s", wait: str | None = None) -> LeaseContext:
    return keeper.app.lease("nightly", ttl=ttl, wait=wait, backend=keeper.backend)


async def test_held_elsewhere_is_said_at_once_and_it_is_free_after_the_block(keeper: Keeper) -> None:
    async with lease(keeper, LONG) as first:
        began = elapsed()
        with pytest.raises(NotAcquired, match="held elsewhere"):
            async with lease(keeper, LONG):
                pass
        assert elapsed() - began < 1, "no retry: those are for a database that is away"
        first.check()
    async with lease(keeper, LONG) as second:
        assert second.term > first.term
        assert second.holder != first.holder


async def test_one_who_waits_gets_it_when_it_is_given_back(keeper: Keeper) -> None:
    order: list[str] = []

    async def wait_for_it() -> None:
        async with lease(keeper, LONG, wait="10s"):
            order.append("second")

    async with lease(keeper, LONG):
        waiting = asyncio.create_task(wait_for_it())
        with pytest.raises(NotAcquired):
            async with lease(keeper, LONG, wait="300ms"):
                pass
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_a_holder_that_lost_it_is_cancelled_and_learns_why(keeper: Keeper) -> None:
    events = Watched(keeper.app)
    with pytest.raises(LostLease):
        async with lease(keeper) as held:
            await asyncio.to_thread(keeper.forget, "nightly")
            await asyncio.sleep(60)
    assert held.lost.is_set()
    assert [event.term for event in events.of(LeaseLost)] == [held.term]
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_a_thread_that_lost_it_is_told_and_leaving_raises(keeper: Keeper) -> None:
    def hold() -> bool:
        with lease(keeper) as held:
            keeper.forget("nightly")
            return held.lost.wait_sync(10)

    with pytest.raises(LostLease):
        await asyncio.to_thread(hold)


async def test_it_is_kept_while_the_event_loop_is_blocked(keeper: Keeper) -> None:
    async with lease(keeper) as held:
        blocked_until = elapsed() + 1.6  # the ttl is a second
        while elapsed() < blocked_until:  # by waiting and, for longer than a thread waits for its turn, by computing
            time.sleep(0.05)
            computing_until = elapsed() + 0.02
            while elapsed() < computing_until:
                pass
        held.check()
        with pytest.raises(NotAcquired):
            async with lease(keeper):
                pass


async def test_a_plain_with_block_inside_a_running_loop_works_and_cancels_nobody(keeper: Keeper) -> None:
    with pytest.raises(LostLease), lease(keeper) as held:
        await asyncio.to_thread(keeper.forget, "nightly")
        await asyncio.wait_for(held.lost.wait(), 10)
