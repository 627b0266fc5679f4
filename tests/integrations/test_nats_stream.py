"""The stream on a real server: created, left alone, or changed as little as possible."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from nats.js.api import StreamConfig

from apps.servers.nats import NatsServer
from tests.integrations.broker import asking, config_of, nats_for, stored
from trueup import App, ConfigError, Retry
from trueup.durations import parse_duration
from trueup.events import DuplicateWindowShort
from trueup.integrations.nats import NatsUnavailable, Stream
from trueup.integrations.nats.stream import longest_gap
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

MINUTE = 60 * 10**9
NUMBERS = count()


@pytest.fixture
def broker() -> Iterator[NatsServer]:
    with NatsServer() as broker:
        yield broker


ONLY_PUBLISH = """
authorization { users = [
  { user: admin, password: p }
  { user: publisher, password: p, permissions { publish: "orders.>" } }
] }
"""


def orders(*subjects: str, window: str = "10m", **options: Any) -> Stream:
    return Stream("ORDERS", list(subjects) or ["orders.>"], window, **options)


async def ensure(app: App, broker: NatsServer, stream: Stream, *, update: bool = False) -> None:
    """As another process would, with a Nats of its own."""
    async with nats_for(app, broker, stream=stream, name=f"publish{next(NUMBERS)}") as nats:
        await nats.ensure_stream(update=update)


async def test_it_is_created_once_as_it_was_asked_for(
    still: App, broker: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trueup.nats")
    stream = orders(config=StreamConfig(max_msgs=1_000, description="what was ordered"))
    for _ in range(2):
        await ensure(still, broker, stream)
    config = await config_of(broker)
    assert config["subjects"] == ["orders.>"]
    assert (config["duplicate_window"], config["max_msgs"]) == (10 * MINUTE, 1_000)
    assert caplog.messages.count("NATS stream created") == 1
    assert "NATS stream updated" not in caplog.messages


async def test_many_processes_may_create_it_at_once(still: App, broker: NatsServer) -> None:
    alike = [ensure(still, broker, orders()) for _ in range(10)]
    longer = [ensure(still, broker, orders(window="20m")) for _ in range(10)]
    await asyncio.gather(*alike, *longer)
    await ensure(still, broker, orders(window="20m"))
    assert (await config_of(broker))["duplicate_window"] == 20 * MINUTE


async def test_its_window_grows_and_never_shrinks(
    still: App, broker: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trueup.nats")
    async with asking(broker) as ask:
        made = await ask("STREAM.CREATE.ORDERS", name="ORDERS", subjects=["orders.>"], metadata={"of": "somebody"})
    await ensure(still, broker, orders(window="10m"))
    await ensure(still, broker, orders(window="5m"))
    assert await config_of(broker) == made["config"] | {"duplicate_window": 10 * MINUTE}
    assert caplog.messages.count("NATS stream updated") == 1


@pytest.mark.parametrize(
    ("window", "warned"),
    [
        (None, True),
        ("100ms", True),
        ("60s", True),
        ("61s", False),
        ("10m", False),
    ],  # None: the server's own two minutes
)
async def test_a_stream_that_forgets_ids_too_soon_is_said_once_per_connection(
    window: str | None, warned: bool, still: App, broker: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream is another one's, and `ensure_stream` is never called."""
    retry = Retry(max_attempts=3, first="1s", cap="10m" if window is None else "10s")
    made = {} if window is None else {"duplicate_window": parse_duration(window) // timedelta(microseconds=1) * 1_000}
    async with asking(broker) as ask:
        await ask("STREAM.CREATE.ORDERS", name="ORDERS", subjects=["orders.>"], **made)
    async with nats_for(still, broker, stream=Stream("ORDERS", ["orders.>"]), retry=retry) as nats:
        gap = longest_gap(retry, still.settings, timedelta(seconds=5))
        assert gap == timedelta(seconds=650 if window is None else 60)
        noticed: list[Any] = []
        still.events.subscribe(noticed.append, DuplicateWindowShort)
        for n in range(3):
            assert (await nats.send("orders.paid", n, message_id=str(n)))["seq"] == n + 1
        assert len(noticed) == (1 if warned else 0)
        if warned:
            window_s = 120.0 if window is None else parse_duration(window).total_seconds()
            assert noticed == [DuplicateWindowShort("ORDERS", window_s, gap.total_seconds())]
            assert [
                record.levelname for record in caplog.records if "duplicate window too short" in record.message
            ] == ["WARNING"]
        await nats.ensure_stream()
        await nats.aclose()
        noticed.clear()
        await nats.send("orders.paid", 4, message_id="4")
        assert noticed == [], "ensure_stream has lengthened it"


async def test_a_stream_that_may_not_be_looked_at_takes_messages_all_the_same(still: App) -> None:
    with NatsServer(ONLY_PUBLISH) as broker:
        async with asking(broker, user="admin", password="p") as ask:
            await ask("STREAM.CREATE.ORDERS", name="ORDERS", subjects=["orders.>"])
        login = {"user": "publisher", "password": "p"}
        async with nats_for(still, broker, connect=login) as nats:
            assert (await nats.send("orders.paid", 1, message_id="1"))["seq"] == 1
            assert (await nats.send("orders.paid", 2, message_id="2"))["seq"] == 2


async def test_subjects_are_added_when_that_is_asked_for(still: App, worker: ManualWorker, broker: NatsServer) -> None:
    async with asking(broker) as ask:
        await ask("STREAM.CREATE.ORDERS", name="ORDERS", subjects=["invoices.>", "orders.paid"])
    with pytest.raises(ConfigError, match=re.escape("it accepts invoices.>, orders.paid, but not orders.>")):
        await ensure(still, broker, orders())
    assert (await config_of(broker))["subjects"] == ["invoices.>", "orders.paid"]
    await ensure(still, broker, orders(), update=True)
    assert (await config_of(broker))["subjects"] == ["invoices.>", "orders.>"]
    async with nats_for(still, broker) as nats:
        await nats.publish.enqueue("orders.sent", 1)
        await worker.run_pending()
    assert [message.subject for message in await stored(broker)] == ["orders.sent"]


async def test_what_the_server_does_not_allow_is_said_in_its_words(still: App, broker: NatsServer) -> None:
    with pytest.raises(ConfigError, match="stream ORDERS: duplicates window can not be larger then max age"):
        await ensure(still, broker, orders(config=StreamConfig(max_age=60)))
    async with asking(broker) as ask:
        await ask("STREAM.CREATE.OTHER", name="OTHER", subjects=["orders.>"])
    with pytest.raises(ConfigError, match="stream ORDERS: subjects overlap with an existing stream"):
        await ensure(still, broker, orders())


async def test_a_stream_without_acks_is_refused(still: App, broker: NatsServer) -> None:
    async with asking(broker) as ask:
        await ask("STREAM.CREATE.ORDERS", name="ORDERS", subjects=["orders.>"], no_ack=True)
    with pytest.raises(ConfigError, match="publishers never learn whether a message was stored"):
        await ensure(still, broker, orders())


async def test_a_server_without_jetstream_says_so(still: App) -> None:
    with NatsServer(jetstream=False) as broker, pytest.raises(NatsUnavailable, match="has no JetStream"):
        await ensure(still, broker, orders())


async def test_a_server_that_is_away_says_so(still: App, broker: NatsServer) -> None:
    broker.kill()
    with pytest.raises(NatsUnavailable, match=re.escape(f"{broker.url} cannot be reached: [Errno")):
        await ensure(still, broker, orders())
