"""What goes on beside a sweeper's loop: short tasks of its own, and a signal for what waits until something has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Changes:
    """A row has left the hand, its outcome is written, a pause is on record: what waits for any of it looks again."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def note(self) -> None:
        self._changed.set()

    async def until(self, ready: Callable[[], bool]) -> None:
        """Until this holds; it is asked again whenever something has changed."""
        while not ready():
            self._changed.clear()
            await self._changed.wait()


class Beside:
    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=f"trueup beside {self._name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def ended(self) -> None:
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
