"""A paused queue or kind: nothing of it is claimed by any way, others go on, and it goes on when it is resumed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trueup import App, ConfigError, Limit
from trueup.testing.worker import ManualWorker

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "limited": {"limit": 5},
    "fair": {"limit": Limit(total=5, per_key=2), "fair_by": "n"},
}


@pytest.mark.asyncio
@pytest.mark.parametrize("paused", ["queue", "kind"])
@pytest.mark.parametrize("way", WAYS)
async def test_nothing_paused_is_claimed_and_the_others_are(still: App, way: str, paused: str) -> None:
    ran: list[str] = []

    @still.job(name="send", queue="mail", **WAYS[way])
    async def send(n: int) -> None:
        ran.append("send")

    @still.job(name="other", queue="mail" if paused == "kind" else "default")
    async def other() -> None:
        ran.append("other")

    worker = ManualWorker(still)
    await worker.begin()
    name = {"queue": "mail"} if paused == "queue" else {"kind": "send"}
    assert await still.jobs.pause(**name, reason="the provider is down", by="ann")
    assert not await still.jobs.pause(**name)
    for n in range(3):
        await send.enqueue(n)
        await still.jobs.retry([await send.using(delay="1h").enqueue(n)])
    await other.enqueue()
    assert await worker.run_pending() == 1
    assert ran == ["other"]
    (depth,) = [each for each in await still.jobs.queues() if each.kind == "send"]
    assert (depth.due, depth.paused) == (6, True)

    await worker.end()
    worker = ManualWorker(still)  # a pause outlives restarts
    await worker.begin()
    assert await worker.run_pending() == 0
    (pause,) = await asyncio.to_thread(still.jobs.paused_sync)
    assert (pause.what, pause.reason, pause.paused_by) == (paused, "the provider is down", "ann")

    assert await still.jobs.resume(**name)
    assert not await still.jobs.resume(**name)
    ran.clear()
    assert await worker.run_pending() == 6
    assert ran == ["send"] * 6
    await worker.end()


@pytest.mark.asyncio
@pytest.mark.parametrize("options", [{}, {"limit": 5}, {"rate": "100/s"}], ids=["plain", "limited", "rated"])
async def test_a_running_worker_stops_claiming_at_once_and_goes_on_when_told(
    database_url: str, options: dict[str, Any]
) -> None:
    app = App(database_url, poll_every="1m")  # only a notification is quick enough

    @app.job(queue="mail", **options)
    async def send(n: int) -> None: ...

    @app.job
    async def marker() -> None: ...

    async with app, app.worker():
        await (await send.enqueue(1)).result(timeout="20s")
        await app.jobs.pause(queue="mail")
        waiting = await send.enqueue(2)
        await (await marker.enqueue()).result(timeout="20s")
        assert (await waiting.status()).state == "queued"
        await app.jobs.resume(queue="mail")
        await waiting.result(timeout="20s")


@pytest.mark.asyncio
@pytest.mark.parametrize("given", [{}, {"queue": "a", "kind": "b"}, {"queue": ""}, {"kind": "no spaces"}])
async def test_what_cannot_be_paused_is_refused(still: App, given: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        await still.jobs.pause(**given)
