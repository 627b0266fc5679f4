"""Turns notifications into wake-ups. Without them everything still happens, a poll later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trueup.clock import elapsed
from trueup.events import Events, ListenRestored, ListenUnavailable
from trueup.store.connect import RETRYABLE
from trueup.store.listen import Ear
from trueup.texts import describe
from trueup.worker.service import Service

TRY_AGAIN = 60.0  # seconds until a pooler is asked once more whether it lets notifications through


class Listener(Service):
    name = "listener"

    def __init__(
        self,
        ear: Ear,
        events: Events,
        *,
        on_work: Callable[[str, float], None],
        on_stop: Callable[[], None],
        on_schedules: Callable[[], None],
        on_reconcilers: Callable[[], None],
        on_state: Callable[[bool], None],
    ) -> None:
        super().__init__(events)
        self._ear = ear
        self._on_work = on_work
        self._on_stop = on_stop
        self._on_schedules = on_schedules
        self._on_reconcilers = on_reconcilers
        self._on_state = on_state
        self._lost_at: float | None = None

    async def run_once(self) -> float:
        """Listen until the connection breaks. Raises then, so that the service's pauses apply."""
        try:
            if not await self._ear.open():
                self._lose("no notification arrived: a pooler in transaction mode, perhaps")
                return TRY_AGAIN
            self._gain()
            async for payload in self._ear.heard():
                self._hear(payload)
            raise ConnectionError("the listening connection ended")
        except RETRYABLE as error:
            self._lose(describe(error))
            raise
        finally:
            await self._ear.close()

    async def stop(self) -> None:
        """Listening only ends when its connection does; one that is just being made is cut as soon as it is there."""
        self._stop.set()
        self._wake.set()
        while self._task is not None and not self._task.done():
            self._ear.cut()
            await asyncio.wait({self._task}, timeout=0.02)
        await super().stop()

    async def kill(self) -> None:
        await self.stop()

    def _hear(self, payload: str) -> None:
        if payload == "stop":
            self._on_stop()
            return
        if payload == "schedules":
            self._on_schedules()
            return
        if payload == "reconcilers":
            self._on_reconcilers()
            return
        lane, _, seconds = payload.rpartition(" ")
        try:
            self._on_work(lane, float(seconds))
        except ValueError:
            return

    def _gain(self) -> None:
        self._on_state(True)
        if self._lost_at is not None:
            self._lost_at = None
            self.events.emit(ListenRestored())

    def _lose(self, reason: str) -> None:
        self._on_state(False)
        if self._lost_at is None and not self._stop.is_set():
            self._lost_at = elapsed()
            self.events.emit(ListenUnavailable(reason))
