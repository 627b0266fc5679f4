from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
import pytest_asyncio

from tests.apps.addresses.desk import Desk, Node
from trueup import App
from trueup.testing.clock import ManualClock


@pytest.fixture
def node() -> Iterator[Node]:
    with Node() as node:
        yield node


@pytest_asyncio.fixture
async def open_desk(still: App, clock: ManualClock) -> AsyncIterator[Callable[..., Awaitable[Desk]]]:
    """A desk with these variables in its environment."""
    opened: list[Desk] = []

    async def open_desk(**variables: str) -> Desk:
        desk = Desk(still, clock, **variables)
        opened.append(desk)
        await desk.begin()
        return desk

    yield open_desk
    for desk in opened:
        await desk.end()


@pytest_asyncio.fixture
async def desk(open_desk: Callable[..., Awaitable[Desk]], node: Node) -> Desk:
    """With a node of its own, for ethereum."""
    return await open_desk(RECONCILIATION_PROVIDERS=f"ethereum={node.url}")
