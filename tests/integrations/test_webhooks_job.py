"""Deliveries as durable jobs: the same key and bytes at every attempt, and no attempt for what the receiver puts off."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.integrations.sink import Exchange, Sink, says
from trueup import App, JobFailed, Retry
from trueup.integrations.webhooks import DeliveryPostponed, Webhook, delivery_job, verify
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


def hook(sink: Sink) -> Webhook:
    return Webhook(sink.url, allow=["127.0.0.1"], secret=SECRET)


@pytest.mark.asyncio
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
    first, second = sink.received
    assert first.body == second.body == '{"a":"ü","b":2}'.encode()
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] != ""
    verify(second.headers, second.body, SECRET, now=clock.now())


async def run_to_its_end(app: App, worker: ManualWorker, clock: ManualClock, *, most: int = 1_000) -> list[timedelta]:
    """Run the one job there is whenever it is due. Gives the moments of its runs, counted from the first."""
    began = clock.now()
    moments = []
    while len(moments) < most and (wait := await until_due(app, clock)) is not None:
        clock.advance(seconds=wait)
        assert await worker.run_pending() == 1
        moments.append(clock.now() - began)
    return moments


async def until_due(app: App, clock: ManualClock) -> float | None:
    async with app.transaction() as tx:
        found = await (await tx.execute("select run_at from trueup.jobs")).fetchone()
    return None if found is None else max((found[0] - clock.now()).total_seconds(), 0)


@pytest.mark.asyncio
async def test_the_receipt_of_a_receiver_that_repeats_secrets_holds_none(still: App, worker: ManualWorker) -> None:
    async def repeats(exchange: Exchange) -> None:
        sent = exchange.received.headers["authorization"]
        theirs = {"headers": {"Authorization": sent}, "db": "postgresql://u:theirsecret@db/x", "nul": "\0"}
        await says(200, json.dumps(theirs).encode() + b"\xff" + b"x" * 1000)(exchange)

    async with Sink(repeats) as sink:
        webhook = Webhook(sink.url, allow=["127.0.0.1"], headers={"Authorization": "Basic b3VyOnNlY3JldA=="})
        job = await delivery_job(still, webhook).enqueue({})
        assert await worker.run_pending() == 1
        receipt = await job.result()
        await still.close()
    assert receipt["status"] == 200
    assert "b3VyOnNlY3JldA" not in receipt["answer"]
    assert "theirsecret" not in receipt["answer"]
    assert len(receipt["answer"]) < 600


@pytest.mark.asyncio
async def test_what_the_receiver_puts_off_spends_no_attempt(
    still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    postponed = [says(429, retry_after="60") for _ in range(5)]
    async with Sink(*postponed, says(204)) as sink:
        deliver = delivery_job(still, hook(sink), retry=Retry(max_attempts=1))
        job = await deliver.enqueue({"n": 1}, key="order:1")
        moments = await run_to_its_end(still, worker, clock)
        assert (await job.result())["status"] == 204
    assert [moment.total_seconds() for moment in moments] == [0, 60, 120, 180, 270, 405]
    assert {received.headers["idempotency-key"] for received in sink.received} == {"order:1"}


@pytest.mark.matrix
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    "headers",
    [
        {"retry_after": "0"},
        {"retry_after": "1"},
        {"retry_after": "120"},
        {"retry_after": "9" * 30},
        {"retry_after": "Fri, 01 Jan 1999 00:00:05 GMT", "date": "Fri, 01 Jan 1999 00:00:00 GMT"},
        {"retry_after": "Fri, 01 Jan 2999 00:00:00 GMT", "date": "Fri, 01 Jan 1999 00:00:00 GMT"},
    ],
)
@pytest.mark.asyncio
async def test_a_receiver_that_postpones_for_ever_is_given_up(
    status: int, headers: dict[str, str], still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    async with Sink(says(status, **headers)) as sink:
        deliver = delivery_job(still, hook(sink), retry=Retry(max_attempts=3, first="5s", factor=1))
        job = await deliver.enqueue({"n": 1})
        moments = await run_to_its_end(still, worker, clock)
        with pytest.raises(JobFailed, match=str(status)):
            await job.result(timeout="1s")
    day = timedelta(days=1)
    assert [moment - day for moment in moments[-3:]] == [timedelta(seconds=seconds) for seconds in (0, 5, 10)]
    assert len(moments) <= 60, "asked less and less often"
    assert len(sink.received) == len(moments)


@pytest.mark.parametrize("headers", [{}, {"retry_after": "-5"}, {"retry_after": "later"}])
@pytest.mark.asyncio
async def test_a_postponement_that_does_not_say_until_when_spends_an_attempt(
    headers: dict[str, str], still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    async with Sink(says(503, **headers)) as sink:
        deliver = delivery_job(still, hook(sink), retry=Retry(max_attempts=3, first="5s", factor=1))
        await deliver.enqueue({"n": 1})
        assert len(await run_to_its_end(still, worker, clock)) == 3
    assert len(sink.received) == 3


@pytest.mark.asyncio
async def test_how_long_a_receiver_may_postpone_is_chosen_and_counted_from_the_first_time(
    still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    """Neither a long delay before the first run nor one that came late uses it up."""
    async with Sink(says(503, retry_after="10")) as sink:
        deliver = delivery_job(still, hook(sink), retry=Retry(max_attempts=1), postpone_for="1m")
        await deliver.using(delay="30d").enqueue({"n": 1})
        clock.advance(days=40)
        moments = await run_to_its_end(still, worker, clock)
    assert [moment.total_seconds() for moment in moments] == [0, 10, 20, 30, 45, 60]
    assert len(sink.received) == 6


@pytest.mark.asyncio
async def test_a_revived_delivery_may_be_postponed_anew(still: App, worker: ManualWorker, clock: ManualClock) -> None:
    async with Sink(says(503, retry_after="10")) as sink:
        deliver = delivery_job(still, hook(sink), retry=Retry(max_attempts=1), postpone_for="15s")
        job = await deliver.enqueue({"n": 1})
        assert len(await run_to_its_end(still, worker, clock)) == 3
        clock.advance(hours=1)
        assert await still.jobs.revive([job.id]) == {job.id}
        assert len(await run_to_its_end(still, worker, clock)) == 3
    assert len(sink.received) == 6


@pytest.mark.parametrize(
    ("asked", "waited", "seconds"),
    [(1, 0, 1), (60, 0, 60), (60, 100, 60), (60, 200, 100), (1, 86_399, 1), (1, 7_200, 3_600), (1, 20_000, 3_600)],
)
def test_a_postponement_is_what_was_asked_for_and_grows(asked: int, waited: int, seconds: int) -> None:
    error = DeliveryPostponed(timedelta(seconds=asked), 503)
    assert error.delay(timedelta(seconds=waited)) == timedelta(seconds=seconds)


@pytest.mark.parametrize("waited", [timedelta(days=1), timedelta(days=400)])
def test_a_postponement_beyond_its_bound_is_an_error(waited: timedelta) -> None:
    error = DeliveryPostponed(timedelta(seconds=1), 503)
    with pytest.raises(DeliveryPostponed):
        error.delay(waited)
    assert error.delay(waited, within=waited + timedelta(hours=2)) == timedelta(hours=1)


@pytest.mark.asyncio
async def test_what_the_receiver_refuses_ends_the_job(still: App, worker: ManualWorker) -> None:
    async with Sink(says(400, b"no")) as sink:
        deliver = delivery_job(still, hook(sink))
        job = await deliver.enqueue({"n": 1})
        assert await worker.run_pending() == 1
        with pytest.raises(JobFailed, match="400"):
            await job.result(timeout="1s")


@pytest.mark.asyncio
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
    keys: list[Any] = [received.headers["idempotency-key"] for received in sink.received]
    assert keys == ["order:1"]
