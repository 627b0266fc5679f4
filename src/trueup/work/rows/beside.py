"""Tasks that run beside a sweeper's loop, and the signal that wakes what waits for one of their results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Changes:
    """A signal: a row has left the hand, its outcome is written, or a pause is on record. Waiting code then checks its condition."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def note(self) -> None:
        self._changed.set()

    async def until(self, ready: Callable[[], bool]) -> None:
        """Wait until this condition holds; it is checked again after every change."""
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
