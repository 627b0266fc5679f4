"""What the tests of publishing share: a stream, a Nats on it, and what a real server has stored."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from nats.aio.client import Client

from apps.servers.nats import NatsServer
from trueup import App, Retry
from trueup.integrations.nats import Nats, Stream

QUICK = Retry(max_attempts=5, first="1s", factor=1)
ORDERS = Stream("ORDERS", subjects=["orders.>"], duplicate_window="10m")


class Stored(NamedTuple):
    subject: str
    headers: dict[str, str]
    data: bytes

    @property
    def id(self) -> str:
        return self.headers["Nats-Msg-Id"]


def nats_for(app: App, broker: NatsServer, **options: Any) -> Nats:
    return Nats(app, **{"servers": broker.url, "stream": ORDERS, "retry": QUICK, **options})


@asynccontextmanager
async def asking(broker: NatsServer, **login: str) -> AsyncIterator[Any]:
    """A function that asks the server's JetStream: `await ask("STREAM.INFO.ORDERS")`."""
    client = Client()
    await client.connect(broker.url, **login)

    async def ask(what: str, **body: Any) -> dict[str, Any]:
        answer = await client.request(f"$JS.API.{what}", json.dumps(body).encode() if body else b"", timeout=5)
        said: dict[str, Any] = json.loads(answer.data)
        assert "error" not in said, said
        return said

    try:
        yield ask
    finally:
        await client.close()


async def config_of(broker: NatsServer, stream: str = "ORDERS") -> dict[str, Any]:
    async with asking(broker) as ask:
        config: dict[str, Any] = (await ask(f"STREAM.INFO.{stream}"))["config"]
        return config


async def stored(broker: NatsServer, stream: str = "ORDERS", **login: str) -> list[Stored]:
    """Every message in the stream, in order."""
    async with asking(broker, **login) as ask:
        state = (await ask(f"STREAM.INFO.{stream}"))["state"]
        sequence = range(max(1, state["first_seq"]), state["last_seq"] + 1)
        return [_stored((await ask(f"STREAM.MSG.GET.{stream}", seq=seq))["message"]) for seq in sequence]


def _stored(message: dict[str, Any]) -> Stored:
    lines = base64.b64decode(message.get("hdrs", "")).decode().split("\r\n")[1:-2]
    headers = dict(line.split(": ", 1) for line in lines)
    return Stored(message["subject"], headers, base64.b64decode(message.get("data", "")))


def tasks_of_nats() -> list[str]:
    """What runs of the client, and of trueup's use of it, on this loop."""
    codes = {task: getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks()}
    return [str(task) for task, code in codes.items() if code is not None and "/nats/" in code.co_filename]
