"""What is sent, and what is refused before anything is."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup import ConfigError, InvalidArguments
from trueup.integrations.webhooks import DeliveryFailed, Webhook
from trueup.integrations.webhooks.delivery import encode
from trueup.integrations.webhooks.retry_after import MAX_POSTPONEMENT, MIN_POSTPONEMENT, retry_after
from trueup.integrations.webhooks.target import header_of

PUBLIC = "https://example.com/hooks"


class Colour(Enum):
    RED = "red"


def answering(answer: Callable[[httpx.Request], httpx.Response]) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.MockTransport(answer))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (datetime(2026, 6, 1, 14, tzinfo=timezone(timedelta(hours=2))), '"2026-06-01T12:00:00+00:00"'),
        (datetime(2026, 6, 1, 12, tzinfo=UTC), '"2026-06-01T12:00:00+00:00"'),
        (datetime(2026, 6, 1, 12, tzinfo=UTC).replace(tzinfo=None), '"2026-06-01T12:00:00"'),
        (date(2026, 6, 1), '"2026-06-01"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.10"), '"1.10"'),
        (Colour.RED, '"red"'),
        (MappingProxyType({"b": 1, "a": 2}), '{"a":2,"b":1}'),
        (10**30, str(10**30)),
        ("ü\0", '"ü\\u0000"'),
    ],
)
def test_values_have_one_form(value: Any, written: str) -> None:
    assert encode({"value": value}).decode() == f'{{"value":{written}}}'


def test_the_order_in_which_a_payload_was_put_together_does_not_matter() -> None:
    one = OrderedDict([("b", {"y": 1, "x": 2}), ("a", 1)])
    other = OrderedDict([("a", 1), ("b", {"x": 2, "y": 1})])
    assert encode(one) == encode(other)


def test_another_process_writes_the_same_bytes() -> None:
    payload = {f"key{n}": {f"in{m}": m for m in range(5)} for n in range(20)}
    code = f"import sys; from trueup.integrations.webhooks.delivery import encode; sys.stdout.buffer.write(encode({payload!r}))"
    for seed in ("1", "2"):
        ended = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        assert ended.stdout == encode(payload)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        {1, 2},
        frozenset("ab"),
        b"bytes",
        object(),
        "\ud800",
        nested(100_000),
        {"a": 1, 2: 3},
    ],
    ids=["nan", "inf", "set", "frozenset", "bytes", "object", "surrogate", "deep", "keys"],
)
def test_what_has_no_stable_form_in_json_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArguments, match=r"^payload: "):
        encode({"value": value})


def test_a_payload_is_a_mapping() -> None:
    for payload in ([1], "text", None):
        with pytest.raises(InvalidArguments, match="a mapping is needed"):
            encode(payload)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/hooks",
        "//example.com",
        "ftp://example.com",
        "file:///etc/passwd",
        "gopher://example.com",
        "http://",
        "http:///hooks",
        "https://example.com:0/",
        "https://example.com:70000/",
        "https://example.com:secretport/",
        "https://user:secret@example.com/",
        "https://secret@example.com/",
        "https://good.example\\@secret.example/",
        "https://exa mple.com/",
        "https://example.com/\r\nHost: evil",
        "https://example.com/\0",
        "\nhttps://example.com/",
        "https://[::1/",
        "https://" + "a" * 70_000,
        None,
        7,
    ],
)
def test_a_url_that_cannot_be_delivered_to_is_refused_without_being_quoted(url: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Webhook(url)
    assert "secret" not in str(refused.value).replace("secret.example", "")
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", "one\r\nX-B: two"),
        ("X-A", "one\n"),
        ("X-A", "nul\0"),
        ("X-A", " blank"),
        ("X-A", "ü"),
        ("X-A", 7),
        ("X-A\r\nX-B", "v"),
        ("X A", "v"),
        ("", "v"),
        ("Host", "evil.example"),
        ("content-length", "0"),
        ("Transfer-Encoding", "chunked"),
        ("Idempotency-Key", "mine"),
        ("Webhook-Signature", "v1,mine"),
    ],
)
def test_a_header_that_cannot_be_sent_or_is_not_theirs_to_set_is_refused(name: Any, value: Any) -> None:
    with pytest.raises(ConfigError, match="header"):
        Webhook(PUBLIC, headers={name: value})
    hook = Webhook(PUBLIC)
    with pytest.raises(ConfigError, match="header"):
        asyncio.run(hook.deliver({}, key="k", headers={name: value}))


@pytest.mark.parametrize("key", ["", "x" * 1001, "ü" * 300, "\ud800", None, 7])
def test_a_key_that_cannot_be_sent_is_refused(key: Any) -> None:
    with pytest.raises(ConfigError, match="key="):
        asyncio.run(Webhook(PUBLIC).deliver({}, key=key))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), min_size=2, max_size=2))
def test_keys_stay_different_and_fit_into_a_header(keys: list[str]) -> None:
    one, other = (header_of(key) for key in keys)
    assert (one == other) == (keys[0] == keys[1])
    assert all("!" <= character <= "~" for character in one)


@given(st.text(max_size=60), st.text(max_size=60), st.booleans())
def test_no_retry_after_is_too_strange_to_be_read(value: str, now: str, dated: bool) -> None:
    headers = [
        (b"retry-after", value.encode("utf-8", "replace")),
        *([(b"date", now.encode("utf-8", "replace"))] * dated),
    ]
    after = retry_after(httpx.Headers(headers))
    assert after is None or MIN_POSTPONEMENT <= after <= MAX_POSTPONEMENT


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": "0s"},
        {"timeout": 10},
        {"timeout": "-1s"},
        {"max_response": "64KB"},
        {"max_response": -1},
        {"max_response": True},
        {"max_response": "17MiB"},
        {"max_response": None},
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any) -> None:
    with pytest.raises(ConfigError):
        Webhook(PUBLIC, **options)


def test_exceptions_for_addresses_make_no_sense_with_a_client_of_ones_own() -> None:
    client = answering(lambda _: httpx.Response(200))
    with pytest.raises(ConfigError, match="client="):
        Webhook(PUBLIC, client=client, allow=["10.0.0.0/8"])
    asyncio.run(client.aclose())


@pytest.mark.asyncio
async def test_a_client_of_ones_own_is_used_and_left_open() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200 if len(seen) == 1 else 500, text="made up")

    async with answering(answer) as client:
        async with Webhook("http://127.0.0.1/hooks", client=client) as hook:
            assert (await hook.deliver({"a": 1}, key="k")).body_excerpt == "made up"
            with pytest.raises(DeliveryFailed, match="made up"):
                await hook.deliver({"a": 1}, key="k")
        assert not client.is_closed
    assert [(request.content, request.headers["idempotency-key"]) for request in seen] == [(b'{"a":1}', "k")] * 2


def test_a_webhook_shows_neither_path_nor_query() -> None:
    assert repr(Webhook("https://example.com:8443/T0/B0/token?sig=1")) == "<Webhook https://example.com:8443>"


def test_without_httpx_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['httpx'] = None; import trueup.integrations.webhooks"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert 'ConfigError: webhooks need httpx: pip install "trueup[webhooks]"' in ended.stderr
