from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from apps.servers.nats import NatsServer
from apps.servers.seaweed import Seaweed
from tests.apps.wallpapers.studio import Studio, emptied
from trueup import App
from trueup.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """It begins now: the storage says by its own clock when an object was written."""
    return ManualClock(datetime.now(UTC))


@pytest.fixture(scope="session")
def shared_seaweed() -> Iterator[Seaweed]:
    """One for all tests: it takes a second to start, and much memory."""
    with Seaweed("wallpapers") as seaweed:
        yield seaweed


@pytest.fixture(scope="session")
def shared_nats() -> Iterator[NatsServer]:
    with NatsServer() as nats:
        yield nats


@pytest_asyncio.fixture
async def servers(shared_seaweed: Seaweed, shared_nats: NatsServer) -> AsyncIterator[tuple[Seaweed, NatsServer]]:
    """Up and empty. A test that stops one starts it again."""
    yield shared_seaweed, shared_nats
    await emptied(shared_seaweed, shared_nats)


@pytest.fixture
def seaweed(servers: tuple[Seaweed, NatsServer]) -> Seaweed:
    return servers[0]


@pytest.fixture
def nats(servers: tuple[Seaweed, NatsServer]) -> NatsServer:
    return servers[1]


@pytest_asyncio.fixture
async def open_studio(
    still: App, clock: ManualClock, seaweed: Seaweed, nats: NatsServer
) -> AsyncIterator[Callable[..., Awaitable[Studio]]]:
    """A studio with these variables in its environment."""
    opened: list[Studio] = []

    async def open_studio(**variables: str) -> Studio:
        studio = Studio(still, clock, seaweed, nats, **variables)
        opened.append(studio)
        await studio.begin()
        return studio

    yield open_studio
    for studio in opened:
        await studio.end()


@pytest_asyncio.fixture
async def studio(open_studio: Callable[..., Awaitable[Studio]]) -> Studio:
    return await open_studio()
