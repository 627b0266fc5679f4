from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from apps.servers.valkey import Valkey
from tests.apps.pulse.office import Office
from trueup.testing.clock import ManualClock


@pytest.fixture
def redis() -> Iterator[Valkey]:
    """A server that may be stopped."""
    with Valkey() as server:
        yield server


@pytest_asyncio.fixture
async def office(database_url: str, clock: ManualClock, redis: Valkey) -> AsyncIterator[Office]:
    office = Office(database_url, clock, redis)
    await office.begin()
    yield office
    await office.end()
