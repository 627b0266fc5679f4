"""What can be published and what cannot, and what a stream and a server may be called: without any server."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nats.js.api import StorageType, StreamConfig

from trueup import App, ConfigError, InvalidArguments, Retry
from trueup.integrations.nats import Nats, Stream
from trueup.integrations.nats.message import body_of, id_of, size_of
from trueup.integrations.nats.servers import parse_servers
from trueup.integrations.nats.stream import longest_gap
from trueup.integrations.nats.subjects import covers
from trueup.jobs.job import ClaimedJob

URL = "nats://127.0.0.1:4222"


def nats_on(app: App, subjects: Iterable[str] = ("orders.>",), **options: Any) -> Nats:
    return Nats(app, URL, stream=Stream("ORDERS", subjects=list(subjects)), **options)


# -- subjects ----------------------------------------------------------------------------------------------------------

TOKEN = st.sampled_from(["a", "b", "c"])
SUBJECT = st.lists(TOKEN, min_size=1, max_size=4).map(".".join)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    tokens = draw(st.lists(TOKEN | st.just("*"), max_size=3))
    return ".".join([*tokens, draw(TOKEN | st.sampled_from(["*", ">"]))])


def means(pattern: str, subject: str) -> bool:
    """The same by a regular expression."""
    words = {"*": "[^.]+", ">": ".+"}
    return bool(re.fullmatch(r"\.".join(words.get(token, token) for token in pattern.split(".")), subject))


@given(patterns(), SUBJECT)
@example("a.>", "a")
@example("a.*", "a.b.c")
def test_a_pattern_covers_the_subjects_it_stands_for(pattern: str, subject: str) -> None:
    assert covers(pattern, subject) == means(pattern, subject)


@given(patterns(), patterns(), SUBJECT)
def test_a_pattern_that_covers_another_covers_every_subject_of_it(pattern: str, other: str, subject: str) -> None:
    if covers(pattern, other) and covers(other, subject):
        assert covers(pattern, subject)


@pytest.mark.parametrize(
    ("pattern", "other"), [("a.*", "a.>"), ("a.b", "a.*"), ("a.b.>", "a.>"), ("*", ">"), ("a.>", "*.b"), ("a", "b")]
)
def test_a_narrower_pattern_does_not_cover_a_wider_one(pattern: str, other: str) -> None:
    assert not covers(pattern, other)


# -- what is enqueued --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("", "an empty token"),
        ("orders.", "an empty token"),
        (".orders", "an empty token"),
        ("orders..paid", "an empty token"),
        ("orders.pa id", "a space or a control character"),
        ("orders.pa\u00a0id", "a space or a control character"),
        ("orders.paid\r\nPUB x 0", "a space or a control character"),
        ("orders.*", "a wildcard"),
        ("orders.>", "a wildcard"),
        ("orders." + "x" * 1_000, "longer than 1000 bytes"),
        ("orders", "is none of stream ORDERS, which takes orders.>"),
        ("invoices.paid", "is none of stream ORDERS, which takes orders.>"),
        ("$JS.API.STREAM.DELETE.ORDERS", "is none of stream ORDERS"),
        (17, "valid string"),
    ],
)
def test_a_subject_that_cannot_be_published_to_is_refused_when_it_is_enqueued(subject: Any, why: str) -> None:
    with pytest.raises(InvalidArguments, match=re.escape(why)) as raised:
        nats_on(App()).publish.call(subject, {})
    assert str(raised.value).startswith("publish: subject: ")


@pytest.mark.parametrize(
    ("message_id", "why"),
    [
        ("", "1 to 500 characters"),
        ("x" * 501, "1 to 500 characters"),
        ("a\r\nNats-Rollup: all", "control character"),
        ("a\0b", "control character"),
        (" a", "leading and trailing spaces"),
        ("a\t", "control character"),
        (7, "valid string"),
    ],
)
def test_an_id_that_would_not_arrive_as_it_is_is_refused(message_id: Any, why: str) -> None:
    with pytest.raises(InvalidArguments, match=re.escape(why)):
        nats_on(App()).publish.call("orders.paid", {}, message_id=message_id)


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"X-Kind": "a\r\nNats-Msg-Id: b"}, "X-Kind: a line break"),
        ({"X-Kind": "a\nb"}, "X-Kind: a line break"),
        ({"X-Kind": " a"}, "X-Kind: leading and trailing spaces"),
        ({"X-Kind\r\nY": "a"}, "is not the name of a header"),
        ({"X Kind": "a"}, "is not the name of a header"),
        ({"": "a"}, "is not the name of a header"),
        ({"Nats-Msg-Id": "a"}, "Nats-Msg-Id: headers that begin with Nats-"),
        ({"nats-rollup": "all"}, "nats-rollup: headers that begin with Nats-"),
        ({"X-Kind": 7}, "valid string"),
        (["X-Kind"], "valid dictionary"),
    ],
)
def test_headers_that_would_say_something_else_are_refused(headers: Any, why: str) -> None:
    with pytest.raises(InvalidArguments, match=re.escape(why)):
        nats_on(App()).publish.call("orders.paid", {}, headers=headers)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"raw", "data: JSON cannot hold bytes"),
        ({"n": float("nan")}, "publish.data.n: nan"),
        ({"text": "a\0b"}, "publish.data.text"),
        ({"text": "\ud800"}, "publish.data.text"),
        ({"of": object()}, "publish.data.of"),
        ("x" * (1 << 20), "over the limit"),
    ],
)
def test_data_that_is_not_json_is_refused(data: Any, why: str) -> None:
    with pytest.raises(InvalidArguments, match=re.escape(why)):
        nats_on(App()).publish.call("orders.paid", data)


def test_an_error_with_braces_in_it_is_said_as_it_is() -> None:
    with pytest.raises(InvalidArguments, match=re.escape("'orders.{fault} {}'")):
        nats_on(App()).publish.call("orders.{fault} {}", {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(alphabet=st.characters(exclude_categories=["Cs"])), JSON, max_size=5))
def test_the_bytes_do_not_depend_on_the_order_of_keys(data: dict[str, Any]) -> None:
    try:
        body = body_of(data)
    except UnicodeEncodeError:
        return  # a lone surrogate, which is refused when it is enqueued
    assert body_of(dict(reversed(data.items()))) == body


def claimed(job_id: int, enqueued_at: datetime, attempt: int = 1) -> ClaimedJob:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return ClaimedJob(
        uuid4(), job_id, "publish", "default", "default", "", "{}", attempt, 4, 0, attempt, now, enqueued_at, now, now
    )


def test_the_id_of_a_job_is_the_same_at_each_attempt_and_another_in_another_database() -> None:
    enqueued_at = datetime(2026, 3, 1, 12, 0, 0, 250, tzinfo=UTC)
    elsewhere = enqueued_at.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert id_of(claimed(7, enqueued_at)) == "publish:7@20260301T120000.000250Z"
    assert id_of(claimed(7, enqueued_at)) == id_of(claimed(7, elsewhere, attempt=2))
    assert id_of(claimed(7, enqueued_at)) != id_of(claimed(7, enqueued_at + timedelta(seconds=1)))


def test_headers_count_towards_the_size() -> None:
    assert size_of({"A": "ü"}, b"123") == len("NATS/1.0\r\nA: ü\r\n\r\n123".encode())


# -- the stream --------------------------------------------------------------------------------------------------------

SLOW = Retry(max_attempts=3, first="10m", factor=1, cap="1h")


def test_the_longest_gap_is_that_of_a_crash_during_the_longest_delay() -> None:
    settings = App(lease_for="30s", rescue_every="10s").settings
    five = timedelta(seconds=5)
    assert longest_gap(Retry(first="1s", factor=2, cap="30s"), settings, five) == timedelta(seconds=30 + 10 + 30 + 10)
    assert longest_gap(SLOW, settings, five) == timedelta(minutes=10, seconds=50), "a cap that is never reached"


def test_a_window_not_longer_than_the_longest_gap_is_refused_and_both_are_named() -> None:
    app = App(lease_for="30s", rescue_every="10s")
    with pytest.raises(ConfigError, match=r"stream ORDERS: duplicate_window=10m50s must be longer than 10m50s"):
        Nats(app, URL, stream=Stream("ORDERS", ["orders.>"], "10m50s"), retry=SLOW)
    Nats(app, URL, stream=Stream("ORDERS", ["orders.>"], "10m51s"), retry=SLOW)


def test_without_a_window_it_is_as_long_as_the_retries_need() -> None:
    app = App(lease_for="30s", rescue_every="10s")
    five = timedelta(seconds=5)
    stream = Stream("ORDERS", ["orders.>"])
    assert stream.window(SLOW, app.settings, five) == timedelta(minutes=11, seconds=50)
    assert stream.window(Retry(max_attempts=1, first="0s"), app.settings, five) == timedelta(minutes=2)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"name": "OR DERS"}, "stream 'OR DERS': a name without blanks"),
        ({"name": "or.ders"}, "a name without blanks"),
        ({"name": ""}, "a name without blanks"),
        ({"name": None}, "a name without blanks"),
        ({"subjects": "orders.>"}, "stream ORDERS: subjects='orders.>': a list is needed"),
        ({"subjects": []}, "a list is needed"),
        ({"subjects": ["a.>.b"]}, "> can only be the last token"),
        ({"subjects": ["a..b"]}, "an empty token"),
        ({"subjects": ["a b"]}, "a space"),
        ({"subjects": [7]}, "7 is not text"),
        ({"duplicate_window": "soon"}, "stream ORDERS: 'soon' is not a duration"),
        ({"duplicate_window": 3600}, "has no unit"),
        ({"config": StreamConfig(name="OTHER")}, "name is not for config="),
        ({"config": StreamConfig(no_ack=True)}, "no_ack is not for config="),
    ],
)
def test_a_stream_that_cannot_be_is_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        Stream(**{"name": "ORDERS", "subjects": ["orders.>"], **arguments})


def test_a_new_stream_is_what_was_asked_for() -> None:
    stream = Stream("ORDERS", ["orders.>"], config=StreamConfig(storage=StorageType.MEMORY, max_msgs=7))
    wanted = stream.created(timedelta(minutes=3))
    named = ("name", "subjects", "duplicate_window", "storage", "max_msgs", "no_ack")
    assert {name: wanted[name] for name in named} == {
        "name": "ORDERS",
        "subjects": ["orders.>"],
        "duplicate_window": 180 * 10**9,
        "storage": "memory",
        "max_msgs": 7,
        "no_ack": False,
    }


HOUR = 3600 * 10**9
FOUND = {"name": "ORDERS", "subjects": ["orders.>"], "duplicate_window": HOUR, "of a later server": {"x": 1}}


@pytest.mark.parametrize(
    ("found", "update", "changes"),
    [
        ({}, False, {}),
        ({"subjects": [">"]}, False, {}),
        ({"subjects": ["orders.>", "invoices.>"]}, True, {}),
        ({"duplicate_window": 2 * HOUR}, False, {}),
        ({"duplicate_window": HOUR // 2}, False, {"duplicate_window": HOUR}),
        ({"subjects": ["invoices.>"]}, True, {"subjects": ["invoices.>", "orders.>"]}),
        ({"subjects": ["orders.paid", "invoices.>"]}, True, {"subjects": ["invoices.>", "orders.>"]}),
    ],
)
def test_a_stream_that_is_there_is_changed_no_more_than_is_needed(
    found: dict[str, Any], update: bool, changes: dict[str, Any]
) -> None:
    there = FOUND | found
    wanted = Stream("ORDERS", ["orders.>"]).adjusted(there, timedelta(hours=1), update=update)
    assert wanted == there | changes


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({"subjects": ["orders.*", "invoices.>"]}, "it accepts orders.*, invoices.>, but not orders.>"),
        ({"subjects": None}, "it accepts nothing, but not orders.>"),
        ({"no_ack": True}, "no_ack"),
        ({"mirror": {"name": "OTHER"}}, "it is a mirror or sealed"),
        ({"sealed": True}, "it is a mirror or sealed"),
    ],
)
def test_a_stream_that_cannot_serve_is_refused(found: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        Stream("ORDERS", ["orders.>"]).adjusted(FOUND | found, timedelta(hours=1), update=False)


# -- servers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("urls", "addresses", "login"),
    [
        ("nats://a:4222", ["nats://a:4222"], {}),
        ("tls://a", ["tls://a"], {}),
        ("nats://[::1]:4222/", ["nats://[::1]:4222"], {}),
        ("nats://sesame@a:4222", ["nats://a:4222"], {"token": "sesame"}),
        ("nats://u:p%40ss%3A@a:1", ["nats://a:1"], {"user": "u", "password": "p@ss:"}),
        (
            "nats://u:p@a:1,tls://u:p@b:2,nats://c",
            ["nats://a:1", "tls://b:2", "nats://c"],
            {"user": "u", "password": "p"},
        ),
        (["nats://a:1", "nats://b:2"], ["nats://a:1", "nats://b:2"], {}),
    ],
)
def test_logins_are_taken_out_of_urls(urls: Any, addresses: list[str], login: dict[str, str]) -> None:
    servers = parse_servers(urls, None)
    assert (list(servers.addresses), servers.options) == (addresses, login)
    assert not [secret for secret in login.values() if secret in repr(servers) and len(secret) > 1]


SECRET = "hunter2"


@pytest.mark.parametrize(
    "urls",
    [
        "",
        [],
        None,
        7,
        [7],
        "127.0.0.1:4222",
        f"redis://u:{SECRET}@a",
        f"nats://u:{SECRET}@",
        f"nats://u:{SECRET}@a:99999",
        f"nats://u:{SECRET}@a:0",
        f"nats://u:{SECRET}@a:port",
        f"nats://u:{SECRET} x@a",
        f"nats://u:{SECRET}@x@a",
        f"nats://u:{SECRET}/x@a",
        f"nats://u:{SECRET}#x@a",
        f"nats://u:{SECRET}?x@a",
        f"nats://u:{SECRET}@a\n",
        f"nats://u:{SECRET}@[::1",
        f"nats://u:{SECRET}@a,nats://u:other@b",
        f"ws://u:{SECRET}@a",
    ],
)
def test_what_is_no_url_of_nats_is_refused_and_not_quoted(urls: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_servers(urls, None)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("connect", "why"),
    [
        ({"allow_reconnect": True}, "connect={'allow_reconnect': …}: it takes"),
        ({"tokn": SECRET}, "connect={'tokn': …}"),
        ({"token": SECRET}, "and connect= sets another one"),
    ],
)
def test_options_that_are_not_about_logging_in_are_refused(connect: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)) as raised:
        parse_servers("nats://u:p@a", connect)
    assert SECRET not in str(raised.value)


def test_logging_in_with_nkeys_needs_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trueup.integrations.nats.servers.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install nkeys") as raised:
        parse_servers("nats://a", {"nkeys_seed_str": SECRET})
    assert SECRET not in str(raised.value)


def test_a_nats_shows_its_servers_and_nothing_secret() -> None:
    nats = Nats(App(), f"nats://u:{SECRET}@a:4222", stream=Stream("ORDERS", ["orders.>"]))
    assert repr(nats) == "<Nats nats://a:4222 stream='ORDERS'>"


def test_a_timeout_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="leaves no time"):
        nats_on(App(), timeout="0s")


def test_two_on_one_app_need_two_names() -> None:
    app = App()
    nats_on(app)
    with pytest.raises(ConfigError, match="publish"):
        nats_on(app)
    assert nats_on(app, name="publish_more", queue="events").publish.queue == "events"
