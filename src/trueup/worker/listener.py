"""Turns notifications into wake-ups. Without them everything still happens, a poll later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from trueup.clock import elapsed
from trueup.events import Events, ListenRestored, ListenUnavailable
from trueup.store.connect import RETRYABLE
from trueup.store.listen import Ear
from trueup.worker.service import Service

TRY_AGAIN = 60.0  # seconds until a pooler is asked once more whether it lets notifications through


class Listener(Service):
    name = "listener"

    def __init__(
        self,
        ear: Ear,
        events: Events,
        *,
        database_time: Callable[[], float],
        on_work: Callable[[str, float], None],
        on_stop: Callable[[], None],
        on_state: Callable[[bool], None],
    ) -> None:
        super().__init__(events)
        self._ear = ear
        self._database_time = database_time
        self._on_work = on_work
        self._on_stop = on_stop
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
            self._lose(str(error).strip())
            raise
        finally:
            await self._ear.close()

    async def stop(self) -> None:
        self._stopping = True
        await self._ear.close()
        with suppress(asyncio.CancelledError):
            await self.kill() if self._task is not None and not self._task.done() else await super().stop()

    async def kill(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    def _hear(self, payload: str) -> None:
        if payload == "stop":
            self._on_stop()
            return
        lane, _, moment = payload.rpartition(" ")
        try:
            run_at = float(moment)
        except ValueError:
            return
        self._on_work(lane, max(0.0, run_at - self._database_time()))

    def _gain(self) -> None:
        self._on_state(True)
        if self._lost_at is not None:
            self._lost_at = None
            self.events.emit(ListenRestored())

    def _lose(self, reason: str) -> None:
        self._on_state(False)
        if self._lost_at is None and not self._stopping:
            self._lost_at = elapsed()
            self.events.emit(ListenUnavailable(reason))
