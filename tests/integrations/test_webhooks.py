"""Deliveries to a receiver that behaves, and to one that does not."""

from __future__ import annotations

import asyncio
import gzip
import html
import json
import logging
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.integrations.sink import Exchange, Sink, raw, says
from trueup import App, Context, Retry, Snooze
from trueup.integrations.webhooks import (
    Delivered,
    DeliveryError,
    DeliveryFailed,
    DeliveryPostponed,
    DeliveryRefused,
    Webhook,
)
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

HERE = ("127.0.0.1",)
LONG = "100ms"  # enough to prove that a delivery ends, short beside the test's own limit


def webhook(sink: Sink, **options: Any) -> Webhook:
    return Webhook(sink.url, allow=HERE, **options)


async def delivered_to(*answers: Any, **options: Any) -> Delivered:
    async with Sink(*answers) as sink, webhook(sink, **options) as hook:
        return await hook.deliver({"n": 1}, key="k")


async def failure(delivery: Awaitable[Delivered]) -> DeliveryError:
    with pytest.raises(DeliveryError) as raised:
        await delivery
    return raised.value


async def test_a_delivery_is_a_post_of_json_with_its_idempotency_key() -> None:
    async with Sink(says(201, b"thanks")) as sink, webhook(sink, headers={"X-Tenant": "7"}) as hook:
        done = await hook.deliver({"b": "ü", "a": [1, None]}, key="order:17", headers={"X-Kind": "paid"})
    assert (done.status, done.body_excerpt) == (201, "thanks")
    assert timedelta() < done.duration < timedelta(seconds=10)
    (received,) = sink.received
    assert received.target == "/hooks"
    assert received.body == '{"a":[1,null],"b":"ü"}'.encode()
    assert received.headers == {
        "host": f"127.0.0.1:{sink.port}",
        "accept": "*/*",
        "content-type": "application/json",
        "user-agent": "trueup-webhooks",
        "x-tenant": "7",
        "x-kind": "paid",
        "accept-encoding": "identity",
        "connection": "close",
        "idempotency-key": "order:17",
        "content-length": str(len(received.body)),
    }


async def test_every_delivery_has_a_connection_of_its_own() -> None:
    async with Sink() as sink, webhook(sink) as hook:
        for _ in range(3):
            await hook.deliver({}, key="k")
    assert [received.connection for received in sink.received] == [1, 2, 3]


async def test_many_at_once_are_all_delivered() -> None:
    async with Sink() as sink, webhook(sink) as hook:
        await asyncio.gather(*(hook.deliver({"n": n}, key=str(n)) for n in range(200)))
    assert len({received.body for received in sink.received}) == 200


@pytest.mark.parametrize("status", [400, 401, 404, 410, 422])
async def test_a_client_error_is_final(status: int) -> None:
    error = await failure(delivered_to(says(status, b"no such customer")))
    assert isinstance(error, DeliveryRefused)
    assert (error.status, error.excerpt) == (status, "no such customer")
    assert f"answered {status}: 'no such customer'" in str(error)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 501, 502, 503, 504, 599])
async def test_a_server_error_and_what_is_only_about_the_moment_are_worth_another_attempt(status: int) -> None:
    error = await failure(delivered_to(says(status)))
    assert isinstance(error, DeliveryFailed)
    assert error.status == status


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry_After": "7"}, 7),
        ({"Retry_After": "0"}, 1),
        ({"Retry_After": "86400"}, 3600),
        ({"Retry_After": "9" * 5000}, 3600),
        ({"Retry_After": "Fri, 01 Jan 1999 00:01:30 GMT", "Date": "Fri, 01 Jan 1999 00:00:00 GMT"}, 90),
        ({"Retry_After": "Friday, 01-Jan-99 00:01:30 GMT", "Date": "Fri Jan  1 00:00:00 1999"}, 90),
        ({"Retry_After": "Fri, 01 Jan 2999 00:00:00 GMT", "Date": "Fri, 01 Jan 1999 00:00:00 GMT"}, 3600),
    ],
)
async def test_the_receiver_says_when_to_come_again(status: int, headers: dict[str, str], seconds: int) -> None:
    error = await failure(delivered_to(says(status, **headers)))
    assert isinstance(error, DeliveryPostponed)
    assert (error.status, error.after) == (status, timedelta(seconds=seconds))


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry_After": "-5"},
        {"Retry_After": "soon"},
        {"Retry_After": "1.5"},
        {"Retry_After": "٧"},
        {"Retry_After": ""},
        {"Retry_After": "Fri, 01 Jan 2999 00:00:00 GMT"},  # by whose clock?
        {"Retry_After": "Fri, 01 Jan 1999 00:00:00 GMT", "Date": "Fri, 01 Jan 1999 00:00:01 GMT"},
        {"Retry_After": "Fri, 99 Jan 1999 00:00:00 GMT", "Date": "Fri, 01 Jan 1999 00:00:00 GMT"},
    ],
)
async def test_a_retry_after_without_sense_is_as_good_as_none(headers: dict[str, str]) -> None:
    assert isinstance(await failure(delivered_to(says(429, **headers))), DeliveryFailed)


async def test_a_retry_after_on_another_answer_changes_nothing() -> None:
    assert isinstance(await failure(delivered_to(says(400, Retry_After="5"))), DeliveryRefused)
    assert isinstance(await failure(delivered_to(says(500, Retry_After="5"))), DeliveryFailed)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with Sink() as elsewhere, Sink(says(status, Location=elsewhere.url)) as sink, webhook(sink) as hook:
        error = await failure(hook.deliver({}, key="k"))
        assert isinstance(error, DeliveryFailed)
        assert "redirects are not followed" in str(error)
        assert elsewhere.received == []


async def test_a_redirect_is_not_followed_with_a_client_that_would() -> None:
    async with Sink() as elsewhere, Sink(says(307, Location=elsewhere.url)) as sink:
        async with httpx.AsyncClient(follow_redirects=True, trust_env=False) as client:
            assert isinstance(await failure(Webhook(sink.url, client=client).deliver({}, key="k")), DeliveryFailed)
        assert elsewhere.received == []


async def hangs(exchange: Exchange) -> None:
    await exchange.until_hung_up()


async def drips_headers(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await exchange.send(b"X-More: 1\r\n")
        await asyncio.sleep(0.01)


async def informs_for_ever(exchange: Exchange) -> None:
    while True:
        await exchange.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("answer", [hangs, drips_headers, informs_for_ever])
async def test_a_receiver_that_takes_its_time_is_given_no_more_than_the_timeout(answer: Any) -> None:
    async with asyncio.timeout(5):
        error = await failure(delivered_to(answer, timeout=LONG))
    assert isinstance(error, DeliveryFailed)
    assert str(error).endswith("has not answered within 100ms")
    assert error.status is None


async def test_nobody_accepting_the_connection_counts_against_the_timeout() -> None:
    async with Sink() as sink:
        sink._server.close()
        async with webhook(sink) as hook:
            error = await failure(hook.deliver({}, key="k"))
    assert isinstance(error, DeliveryFailed)
    assert "no answer" in str(error)


async def drips_body(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        await exchange.send(b"x")
        await asyncio.sleep(0.01)


async def test_a_body_that_drips_is_left_when_the_time_is_over_and_its_status_counts() -> None:
    async with asyncio.timeout(5):
        done = await delivered_to(drips_body, timeout="1s")
    assert done.status == 200
    assert set(done.body_excerpt) == {"x"}


async def sends_half_and_resets(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
    exchange.reset()


@pytest.mark.parametrize(
    "answer",
    [
        sends_half_and_resets,
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf"),
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nnonsense"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhalf and more than was announced"),
        raw(b"HTTP/1.1 200 OK\r\n\r\nhalf"),
    ],
)
async def test_a_status_that_arrived_counts_whatever_becomes_of_the_rest(answer: Any) -> None:
    done = await delivered_to(answer)
    assert done.status == 200
    assert done.body_excerpt in ("half", "")  # a reset may also take what was sent before it


async def resets(exchange: Exchange) -> None:
    exchange.reset()


@pytest.mark.parametrize(
    "answer",
    [
        resets,
        raw(b""),
        raw(b"HTTP/1.1 200 OK\r\nContent-Le"),
        raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        raw(b"\x00\xff" * 1000),
        raw(b"HTTP/1.1 abc OK\r\n\r\n"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx"),
        raw(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000),
        raw(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
    ],
)
async def test_an_answer_that_is_none_is_worth_another_attempt(answer: Any) -> None:
    assert isinstance(await failure(delivered_to(answer)), DeliveryFailed)


async def floods(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n")
    while True:
        await exchange.send(b"x" * 65536)


async def test_no_more_of_an_answer_is_read_than_asked_for_and_the_connection_is_closed() -> None:
    async with Sink(floods, says(200, b"next")) as sink, webhook(sink, max_response="1KiB") as hook:
        done = await hook.deliver({}, key="k")
        assert done.body_excerpt == "x" * 1024
        assert done.duration < timedelta(seconds=5), "not until the timeout"
        assert (await hook.deliver({}, key="k")).body_excerpt == "next"
    assert [received.connection for received in sink.received] == [1, 2]


async def test_an_answer_of_just_that_size_is_read() -> None:
    assert len((await delivered_to(says(200, b"x" * 1024), max_response=1024)).body_excerpt) == 1024


async def test_a_compressed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)
    assert (await delivered_to(says(200, bomb, Content_Encoding="gzip"))).body_excerpt == "(gzip, not unpacked)"


async def test_an_excerpt_can_be_stored_whatever_was_answered() -> None:
    done = await delivered_to(says(200, b"a\0b\xffc"))
    assert done.body_excerpt == "a\ufffdb\ufffdc"


async def test_a_cancelled_delivery_ends_at_once_and_leaves_no_connection() -> None:
    arrived, hung_up = asyncio.Event(), asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        arrived.set()
        await exchange.until_hung_up()
        hung_up.set()

    async with Sink(answer) as sink, webhook(sink) as hook:
        delivery = asyncio.create_task(hook.deliver({}, key="k"))
        await arrived.wait()
        delivery.cancel()
        with pytest.raises(asyncio.CancelledError):
            await delivery
        await asyncio.wait_for(hung_up.wait(), 5)


async def test_a_webhook_can_be_used_after_closing_and_on_several_event_loops() -> None:
    async with Sink() as sink:
        hook = webhook(sink)
        await hook.aclose()
        await hook.deliver({}, key="k")
        await asyncio.to_thread(lambda: asyncio.run(hook.deliver({}, key="k")))
    assert sink.connections == 2


async def test_the_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Sink() as proxy, Sink() as sink, webhook(sink) as hook:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        await hook.deliver({}, key="k")
        assert (len(proxy.received), len(sink.received)) == (0, 1)


async def test_cookies_of_a_receiver_are_not_sent_back() -> None:
    async with Sink(says(200, Set_Cookie="a=b; Path=/")) as sink, webhook(sink) as hook:
        for _ in range(2):
            await hook.deliver({}, key="k")
    assert all("cookie" not in received.headers for received in sink.received)


@pytest.mark.parametrize("status", [400, 500, 429])
async def test_what_entitles_one_to_call_is_in_no_error_and_no_log(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    planted = ["pathsecret", "querysecret", "tokensecret", "signingsecret"]

    async def repeats(exchange: Exchange) -> None:
        got = exchange.received
        echo = "\n".join([got.target, *(f"{name}: {value}" for name, value in got.lines)])
        await says(status, echo.encode(), Retry_After="1")(exchange)

    async with Sink(repeats) as sink:
        url = f"{sink.url}/pathsecret?token=querysecret&x=1"
        headers = {"Authorization": "Bearer tokensecret"}
        hook = Webhook(url, allow=HERE, secret="signingsecret", headers=headers)
        async with hook:
            error = await failure(hook.deliver({}, key="k"))
    shown = [str(error), repr(error), repr(vars(error)), repr(hook), caplog.text]
    assert not [word for word in planted for text in shown if word in text]
    assert f"http://127.0.0.1:{sink.port} answered {status}" in str(error)


@pytest.mark.parametrize("max_response", [64 << 10, *range(150, 300, 11)])
@pytest.mark.parametrize("escaped", [str, json.dumps, html.escape, quote])
async def test_an_answer_that_repeats_our_request_is_cleaned_when_it_is_a_success(
    escaped: Callable[[str], str], max_response: int
) -> None:
    async def repeats(exchange: Exchange) -> None:
        got = exchange.received
        echo = "\n".join([got.target, *(f"{name}: {value}" for name, value in got.lines)])
        await says(200, escaped(f"taken\n{echo}").encode())(exchange)

    async with Sink(repeats) as sink:
        headers = {"Authorization": 'Bearer token/"secret"<1>'}
        url = f"{sink.url}/pathsecret?token=querysecret"
        async with Webhook(url, allow=HERE, headers=headers, max_response=max_response) as hook:
            delivered = await hook.deliver({}, key="k")
    assert "taken" in delivered.body_excerpt
    assert not re.search("pathsec|querysec|token/|oken%2Fs|secret", delivered.body_excerpt)


async def test_the_same_key_and_the_same_bytes_come_at_every_attempt(
    still: App, clock: ManualClock, worker: ManualWorker
) -> None:
    async with Sink(says(500), resets, says(429, Retry_After="20"), says(200)) as sink, webhook(sink) as hook:

        @still.job(retry=Retry(max_attempts=3, first="1s", factor=1, give_up_on=(DeliveryRefused,)))
        async def notify(order: int, *, ctx: Context) -> int:
            try:
                done = await hook.deliver({"order": order, "event": "paid"}, key=ctx.idempotency_key)
            except DeliveryPostponed as error:
                raise Snooze(error.after) from error
            return done.status

        job = await notify.enqueue(7)
        for seconds in (1, 1, 20, 0):
            assert await worker.run_pending() == 1
            clock.advance(seconds=seconds)
        assert await job.result() == 200
    assert len(sink.received) == 4
    assert len({(received.body, received.headers["idempotency-key"]) for received in sink.received}) == 1
