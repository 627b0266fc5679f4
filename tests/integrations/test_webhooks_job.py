"""Deliveries as durable jobs: the same key and bytes at every attempt, and no attempt for what the receiver puts off."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integrations.sink import Sink, says
from trueup import App, JobFailed, Retry
from trueup.integrations.webhooks import Webhook, delivery_job, verify
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


def hook(sink: Sink) -> Webhook:
    return Webhook(sink.url, allow=["127.0.0.1"], secret=SECRET)


async def test_a_delivery_is_repeated_with_the_same_key_and_bytes_until_it_is_taken(
    still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    async with Sink(says(500), says(200, b"thanks")) as sink:
        deliver = delivery_job(still, hook(sink), retry=Retry(max_attempts=3, first="5s"))
        job = await deliver.enqueue({"b": 2, "a": "ü"})
        assert await worker.run_pending() == 1
        clock.advance(seconds=5)
        assert await worker.run_pending() == 1
        assert await job.result() == {"status": 200, "answer": "thanks"}
        await still.close()  # and with it the connection that was kept
    first, second = sink.received
    assert first.body == second.body == '{"a":"ü","b":2}'.encode()
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] != ""
    verify(second.headers, second.body, SECRET, now=clock.now())


async def test_what_the_receiver_puts_off_spends_no_attempt(
    still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    postponed = [says(429, retry_after="60") for _ in range(5)]
    async with Sink(*postponed, says(204)) as sink:
        deliver = delivery_job(still, hook(sink), retry=Retry(max_attempts=1))
        job = await deliver.enqueue({"n": 1}, key="order:1")
        for _ in range(6):
            assert await worker.run_pending() == 1
            assert await worker.run_pending() == 0  # not before its time
            clock.advance(seconds=60)
        assert (await job.result())["status"] == 204
        await still.close()
    assert {received.headers["idempotency-key"] for received in sink.received} == {"order:1"}


async def test_what_the_receiver_refuses_ends_the_job(still: App, worker: ManualWorker) -> None:
    async with Sink(says(400, b"no")) as sink:
        deliver = delivery_job(still, hook(sink))
        job = await deliver.enqueue({"n": 1})
        assert await worker.run_pending() == 1
        with pytest.raises(JobFailed, match="400"):
            await job.result(timeout="1s")
        await still.close()


async def test_a_delivery_is_there_if_and_only_if_its_transaction_was_committed(
    still: App, worker: ManualWorker
) -> None:
    async with Sink() as sink:
        deliver = delivery_job(still, hook(sink), name="tell")

        async def pay(order: int, *, fails: bool) -> None:
            async with still.transaction() as tx:
                await deliver.using(tx=tx).enqueue({"order": order}, key=f"order:{order}")
                if fails:
                    raise ValueError

        await pay(1, fails=False)
        with pytest.raises(ValueError):
            await pay(2, fails=True)
        assert await worker.run_pending() == 1
        await still.close()
    keys: list[Any] = [received.headers["idempotency-key"] for received in sink.received]
    assert keys == ["order:1"]
