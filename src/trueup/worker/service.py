"""The shape of everything that loops: `run_once` does one pass and is what tests call; the loop around it is here, once.

A pass that fails because the database is away is repeated with growing, jittered pauses; any other error is an event, and
the loop goes on at its usual pace. `wake` cuts the pause short. `stop` lets a pass under way end.
"""

from __future__ import annotations

import asyncio
import random

from trueup.dsn import mask
from trueup.events import Events, ServiceFailed
from trueup.jobs.failure import type_name
from trueup.store.connect import RETRYABLE

LONGEST_PAUSE = 5.0  # seconds between tries while the database is away


class Service:
    """Subclasses say what one pass does and how long to pause after it."""

    name = "service"

    def __init__(self, events: Events) -> None:
        self.events = events
        self._wake = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def run_once(self) -> float:
        """One pass. Returns the seconds to pause before the next one."""
        raise NotImplementedError

    def wake(self) -> None:
        self._wake.set()

    def start(self) -> None:
        """Does nothing when it runs already."""
        if self._task is None:
            self._stopping = False
            self._task = asyncio.create_task(self._loop(), name=f"trueup {self.name}")

    async def stop(self) -> None:
        """Returns when the loop has ended. May be called twice, and before start."""
        self._stopping = True
        self._wake.set()
        task = self._task
        if task is not None:
            await asyncio.wait({task})
            self._task = None

    async def kill(self) -> None:
        """End the loop without waiting for its pass."""
        if self._task is not None:
            self._task.cancel()
        await self.stop()

    async def _loop(self) -> None:
        failures = 0
        while not self._stopping:
            self._wake.clear()
            try:
                pause = await self.run_once()
                failures = 0
            except RETRYABLE:
                failures += 1
                pause = min(LONGEST_PAUSE, 0.05 * 2**failures) * random.uniform(0.5, 1)  # noqa: S311 - spreads retries
                self._wake.clear()  # whoever wakes us cannot bring the database back
            except Exception as error:
                pause = 1.0
                self.events.emit(ServiceFailed(self.name, type_name(error), mask(str(error))))
            if not self._stopping and pause > 0:
                await self._sleep(pause)
            elif pause <= 0:
                await asyncio.sleep(0)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return


def jittered(seconds: float) -> float:
    """Up to a tenth more or less, so that a fleet started together does not act together."""
    return seconds * random.uniform(0.9, 1.1)  # noqa: S311
