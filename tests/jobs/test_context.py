from __future__ import annotations

import asyncio

import pytest

from tests.jobs.claimed import claimed
from trueup import ConfigError
from trueup.jobs.context import Context, LostSignal


@pytest.mark.asyncio
async def test_everybody_who_waits_learns_that_the_lease_is_lost() -> None:
    lost = LostSignal()
    waiting = [asyncio.create_task(lost.wait()) for _ in range(2)]
    thread = asyncio.create_task(asyncio.to_thread(lost.wait_sync, 10))
    await asyncio.sleep(0)
    assert not lost.is_set()
    lost.set()
    lost.set()
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting, lost.wait())
        assert await thread
    assert lost.is_set()


@pytest.mark.asyncio
async def test_a_waiter_that_gave_up_does_not_disturb_the_others() -> None:
    lost = LostSignal()
    gone, stays = asyncio.create_task(lost.wait()), asyncio.create_task(lost.wait())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    lost.set()
    async with asyncio.timeout(10):
        await stays


def test_waiting_in_a_thread_can_be_bounded() -> None:
    assert not LostSignal().wait_sync(0.001)


@pytest.mark.asyncio
async def test_a_job_that_asks_for_what_only_rows_have_is_told_so() -> None:
    context = Context(claimed(), LostSignal(), access=None)  # type: ignore[arg-type]  # neither gets that far
    with pytest.raises(ConfigError, match=r"ctx\.key is the key of a reconciler's row"):
        _ = context.key
    with pytest.raises(ConfigError, match=r"writes to the row of a reconciler"):
        await context.checkpoint(n=1)
