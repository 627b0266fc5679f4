"""What is in the stream, as a consumer would find it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import nats
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError

STREAM = "WALLPAPERS"


async def messages(url: str) -> list[tuple[str, dict[str, Any]]]:
    """Message id and body of each, in order; empty when there is no stream."""
    async with connected(url) as stream:
        try:
            state = (await stream.stream_info(STREAM)).state
        except NotFoundError:
            return []
        sequences = range(state.first_seq, state.last_seq + 1) if state.messages else ()
        found = [await stream.get_msg(STREAM, sequence) for sequence in sequences]
    return [((each.headers or {})["Nats-Msg-Id"], json.loads(each.data or b"")) for each in found]


async def drop(url: str) -> None:
    """So that the next test finds none."""
    async with connected(url) as stream:
        with suppress(NotFoundError):
            await stream.delete_stream(STREAM)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(url, allow_reconnect=False)
    try:
        yield client.jetstream()
    finally:
        await client.close()


def messages_sync(url: str) -> list[tuple[str, dict[str, Any]]]:
    return asyncio.run(messages(url))
