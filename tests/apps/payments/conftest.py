from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from apps.chain.anvil import Anvil
from tests.apps.payments.desk import CHAIN, Desk
from tests.apps.payments.fleet import MODULE, NAME, tables
from tests.apps.payments.relay import Relay, relay_to
from tests.apps.processes import Town, town
from trueup import App
from trueup.testing.clock import ManualClock


@pytest.fixture
def anvil(clock: ManualClock) -> Iterator[Anvil]:
    """A chain that begins at the clock's time."""
    with Anvil("--no-mining", "--timestamp", str(int(clock.now().timestamp()))) as anvil:
        yield anvil


@pytest.fixture
def relay(anvil: Anvil) -> Iterator[Relay]:
    with relay_to(anvil) as relay:
        yield relay


@pytest.fixture
def live() -> Iterator[Anvil]:
    """A chain on the world's clock, for real processes."""
    with Anvil() as anvil:
        yield anvil


@pytest.fixture
def live_relay(live: Anvil) -> Iterator[Relay]:
    with relay_to(live) as relay:
        yield relay


@pytest.fixture
def place(database_url: str, live: Anvil, tmp_path: Path) -> Iterator[Town]:
    """Replicas that look five times a second, and whose leases are short."""
    environment = {
        "TRUEUP_DATABASE_URL": database_url,
        "PAYMENT_REQUEST_CHAINS": f"{CHAIN}={live.url}",
        f"{NAME}POLL_INTERVAL_SECONDS": "0.2",
        f"{NAME}LEASE_SECONDS": "2",
    }
    with town(MODULE, environment, tmp_path) as place:
        yield place


@pytest.fixture
def database(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    asyncio.run(tables(database_url))
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest_asyncio.fixture
async def open_desk(still: App, clock: ManualClock, anvil: Anvil) -> AsyncIterator[Callable[..., Awaitable[Desk]]]:
    """A desk with these variables in its environment."""
    opened: list[Desk] = []

    async def open_desk(node: str | None = None, **variables: str) -> Desk:
        desk = Desk(still, clock, anvil, node, **variables)
        opened.append(desk)
        await desk.begin()
        return desk

    yield open_desk
    for desk in opened:
        await desk.end()


@pytest_asyncio.fixture
async def desk(open_desk: Callable[..., Awaitable[Desk]]) -> Desk:
    return await open_desk()
