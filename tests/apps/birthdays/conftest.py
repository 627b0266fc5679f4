from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest_asyncio

from tests.apps.birthdays.desk import Desk, Receiver
from trueup import App
from trueup.testing.clock import ManualClock


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


@pytest_asyncio.fixture
async def open_desk(
    still: App, clock: ManualClock, receiver: Receiver
) -> AsyncIterator[Callable[..., Awaitable[Desk]]]:
    """A desk with these variables in its environment."""
    opened: list[Desk] = []

    async def open_desk(**variables: str) -> Desk:
        desk = Desk(still, clock, receiver, **variables)
        opened.append(desk)
        await desk.begin()
        return desk

    yield open_desk
    for desk in opened:
        await desk.end()


@pytest_asyncio.fixture
async def desk(open_desk: Callable[..., Awaitable[Desk]]) -> Desk:
    return await open_desk()
