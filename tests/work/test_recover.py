"""A claim that the database committed and whose reply never came."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.proxy import Proxy
from tests.support.waiting import wait_until
from trueup import App

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("limit", [None, 3], ids=["queue", "lane"])
async def test_jobs_whose_claim_was_not_answered_are_run_by_the_worker_that_holds_them(
    database_url: str, limit: int | None
) -> None:
    with Proxy.before(database_url) as proxy:
        direct, through = App(database_url), App(proxy.url(database_url))
        ran: list[int] = []
        for app in (direct, through):

            @app.job(limit=limit)
            async def send(n: int) -> None:
                ran.append(n)

        async with direct, through:
            async with through.worker(concurrency=5):
                lost = proxy.drop_next_reply(to=b"COMMIT")  # an idle worker sends none: the next one ends a claim
                handle = await direct.registry["send"].enqueue(7)
                await asyncio.to_thread(lost.wait, 10)
                assert await handle.result("10s") is None
            outcome = await direct.store.views.job(int(handle))
        assert ran == [7]
        assert outcome is not None
        assert outcome["attempt"] == 1, "the first claim was found again, not rescued"


async def test_what_ends_while_the_database_is_asked_is_not_taken_for_unknown(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trueup.work.jobs.claimer.RECOVER_EVERY", 0.0)  # before every claim
    app = App(database_url)
    ran: list[int] = []

    @app.job
    async def send(n: int) -> None:
        ran.append(n)

    async with app:
        worker = app.worker(concurrency=20)
        async with worker:
            worker.claimer._recover_at = 0.0
            await send.enqueue_many((n,) for n in range(3000))
            await asyncio.to_thread(wait_until, lambda: len(ran) >= 3000, "all to have run")
            await worker.finisher.flushed()
    assert sorted(ran) == list(range(3000))


async def test_jobs_in_hand_are_not_fetched_again_with_their_arguments(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking for lost claims costs an id each for what is known, however large the arguments are."""
    app, go_on, fetched = App(database_url), asyncio.Event(), list[object]()

    @app.job
    async def send(text: str) -> None:
        await go_on.wait()

    async with app:
        worker = app.worker(concurrency=20)
        async with worker:
            await send.enqueue_many(("x" * 1_000,) for _ in range(10))
            await asyncio.to_thread(wait_until, lambda: len(worker.hand.running) == 10, "all to run")
            await worker.claimer.stop()
            monkeypatch.setattr(worker.claimer._jobs, "held", lambda *asked: fetched.append(asked))
            await worker.claimer._recover(worker.registrations.current)
            go_on.set()
    assert fetched == []
