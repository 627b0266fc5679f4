"""A receiver of webhooks that lies about what it has received. What it has written down itself is the witness."""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

from tests.crash.fleet import PATIENT
from tests.integrations.sink import Answer, Exchange, Sink, raw, says
from trueup import App, Job
from trueup.integrations.webhooks import Webhook, delivery_job

VARIABLE = "RECEIVER"
KIND = "notify"
TIMEOUT = "1s"


async def takes_it_and_resets(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthan")
    exchange.reset()


async def hangs_up(exchange: Exchange) -> None:
    exchange.reset()


async def is_slow(exchange: Exchange) -> None:
    await asyncio.sleep(1.5)  # longer than the sender waits
    await says(200)(exchange)


LIES: Mapping[str, Answer] = {
    "takes it": says(200),
    "takes it, and resets the connection": takes_it_and_resets,
    "has it, and answers 500": says(500, b"out of order"),
    "has it, and answers later than the sender waits": is_slow,
    "has it, and answers garbage": raw(b"\x16\x03\x01 what?\r\n\r\n"),
    "has it, and asks for it again later": says(503, Retry_After="1"),
    "has it, and hangs up": hangs_up,
}


class Receiver:
    """It answers from entering its `with` block until leaving it. `told` counts its answers by name."""

    def __init__(self, rng: random.Random) -> None:
        self.told: Counter[str] = Counter(dict.fromkeys(LIES, 0))
        self._rng = rng
        self._sink = Sink(self._answer)
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._do(self._sink.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._sink.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return self._sink.url

    @property
    def received(self) -> list[tuple[str, bytes]]:
        """The idempotency key and the body of each message, whatever it was told about it."""
        return [(each.headers["idempotency-key"], each.body) for each in list(self._sink.received)]

    async def _answer(self, exchange: Exchange) -> None:
        lie = self._rng.choices(list(LIES), [len(LIES), *[1] * (len(LIES) - 1)])[0]  # every other one is taken
        self.told[lie] += 1
        await LIES[lie](exchange)

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


def declare(app: App, url: str | None = None) -> Job[..., Any]:
    webhook = Webhook(url or os.environ[VARIABLE], allow=["127.0.0.1"], timeout=TIMEOUT)
    return delivery_job(app, webhook, name=KIND, retry=PATIENT)


def event_of(body: bytes) -> int:
    return int(json.loads(body)["event"])
