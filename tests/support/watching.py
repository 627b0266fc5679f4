"""Waiting for events of an App, with one timeout for all tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from trueup import App
from trueup.clock import elapsed
from trueup.events import Event

TIMEOUT = 15.0  # seconds; what is waited for takes milliseconds, on a machine that may be busy
PAUSE = 0.005

E = TypeVar("E", bound=Event)


class Watched:
    """Every event of an App from here on."""

    def __init__(self, app: App) -> None:
        self.events: list[Event] = []
        app.events.subscribe(self.events.append)

    def of(self, cls: type[E], **facts: Any) -> list[E]:
        """Those seen so far, of this class and with these facts."""
        return [
            event
            for event in list(self.events)
            if isinstance(event, cls) and all(getattr(event, name) == value for name, value in facts.items())
        ]

    async def seen(self, cls: type[E], *, count: int = 1, **facts: Any) -> list[E]:
        """Return once so many were seen. Raises TimeoutError, saying what was seen instead."""
        try:
            await until(lambda: len(self.of(cls, **facts)) >= count)
        except TimeoutError:
            latest = "\n".join(map(repr, self.events[-20:]))
            raise TimeoutError(
                f"{count} x {cls.name} {facts} not within {TIMEOUT:g} s; the latest were\n{latest}"
            ) from None
        return self.of(cls, **facts)


async def until(condition: Callable[[], object], timeout: float = TIMEOUT) -> None:
    """Return as soon as the condition is true. Raises TimeoutError when it stays false."""
    deadline = elapsed() + timeout
    while not condition():
        if elapsed() > deadline:
            raise TimeoutError("the condition stayed false")
        await asyncio.sleep(PAUSE)


async def until_beside(condition: Callable[[], object], timeout: float = 2 * TIMEOUT) -> None:
    """As `until`, for a condition that blocks, such as a question to the database: it is looked at in a thread."""
    async with asyncio.timeout(timeout):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(10 * PAUSE)
