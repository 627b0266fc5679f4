"""Signatures, as the sender makes them and as a receiver checks them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.integrations.sink import Sink
from trueup import ConfigError
from trueup.integrations.webhooks import BadSignature, Webhook, verify
from trueup.integrations.webhooks.signing import signature_headers, signing_keys

SENT = datetime(2026, 6, 1, 12, tzinfo=UTC)
BODY = b'{"a":1}'


def signed(*secrets: str, body: bytes = BODY) -> dict[str, str]:
    return signature_headers(signing_keys(secrets), "order:17", SENT, body)


def test_signatures_are_those_of_standard_webhooks() -> None:
    """The example of the specification."""
    headers = signature_headers(
        signing_keys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        datetime.fromtimestamp(1614265330, UTC),
        b'{"test": 2432232314}',
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.asyncio
async def test_a_delivery_is_signed_and_the_receiver_can_tell() -> None:
    async with Sink() as sink, Webhook(sink.url, allow="127.0.0.1", secret=["old", "new"]) as hook:
        await hook.deliver({"a": 1}, key="order:ü 1")
        await hook.deliver({"a": 1}, key="order:ü 1", sent_at=SENT)
    first, second = sink.received
    for secret in ("old", "new", ["unknown", "new"]):
        assert verify(first.headers, first.body, secret) == "order:%C3%BC%201"
    assert first.headers["idempotency-key"] == first.headers["webhook-id"]
    assert len(first.headers["webhook-signature"].split(" ")) == 2
    assert second.headers["webhook-timestamp"] == str(int(SENT.timestamp()))


@pytest.mark.asyncio
async def test_without_a_secret_nothing_is_signed() -> None:
    async with Sink() as sink, Webhook(sink.url, allow="127.0.0.1") as hook:
        await hook.deliver({}, key="k")
    assert not [name for name in sink.received[0].headers if name.startswith("webhook-")]


def test_headers_are_found_however_they_are_written() -> None:
    headers = {name.title(): value for name, value in signed("s").items()}
    assert verify(headers, BODY, "s", now=SENT) == "order:17"


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": "order:18"},
        {"webhook-timestamp": str(int(SENT.timestamp()) + 1)},
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": signed("s")["webhook-signature"].replace("v1,", "v2,")},
        {"webhook-signature": "é\ud800"},
        {"webhook-signature": ""},
        {"webhook-id": ""},
        {"webhook-id": "order:\ud800"},
        {"webhook-id": "\udcff" * 100_000},
        {"webhook-timestamp": "\ud800"},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "9" * 5000},
        {"webhook-timestamp": "9" * 11},
        {"webhook-timestamp": "-1"},
        {"webhook-timestamp": "1_7"},
        {"webhook-timestamp": "²"},
        {"webhook-timestamp": "٧"},
    ],
)
def test_whatever_was_changed_is_noticed(changed: dict[str, str]) -> None:
    with pytest.raises(BadSignature):
        verify(signed("s") | changed, BODY, "s", now=SENT)


def test_another_body_or_another_secret_is_noticed() -> None:
    for body, secret in ((BODY + b" ", "s"), (BODY, "t"), (b"", "s")):
        with pytest.raises(BadSignature, match="no signature matches"):
            verify(signed("s"), body, secret, now=SENT)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_signature_is_good_for_a_while_only(sign: int) -> None:
    assert verify(signed("s"), BODY, "s", now=SENT + sign * timedelta(minutes=5))
    with pytest.raises(BadSignature, match="off by"):
        verify(signed("s"), BODY, "s", now=SENT + sign * timedelta(minutes=5, seconds=1))
    assert verify(signed("s"), BODY, "s", tolerance="1h", now=SENT + sign * timedelta(minutes=59))


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_not base64!", [], ["fine", ""], 7, [b"bytes"]])
def test_a_secret_that_cannot_be_one_is_refused_without_being_quoted(secret: Any) -> None:
    with pytest.raises((ConfigError, TypeError)) as refused:
        Webhook("https://example.com/", secret=secret)
    assert "not base64!" not in str(refused.value)
    with pytest.raises((ConfigError, TypeError)):
        verify(signed("s"), BODY, secret, now=SENT)


def test_a_moment_to_sign_needs_a_time_zone() -> None:
    with pytest.raises(ConfigError, match="time zone"):
        asyncio.run(Webhook("https://example.com/", secret="s").deliver({}, key="k", sent_at=SENT.replace(tzinfo=None)))
