"""Turns notifications into wake-ups. Without notifications, polling finds the same work a little later.

Channels have no rights: every role that may connect can send any payload, as often as it likes. So a payload is parsed strictly,
wakes up at most what polling would wake up anyway, and is ignored if it is none of ours.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import NamedTuple

from trueup.clock import elapsed
from trueup.events import Events, ListenRestored, ListenUnavailable, NotificationIgnored
from trueup.jobs.limits import LANE_PREFIX
from trueup.jobs.registry import Registry
from trueup.store.db.connect import RETRYABLE
from trueup.store.db.listen import NotifyConnection
from trueup.texts import clean, describe
from trueup.work.housekeeping import Housekeeping
from trueup.work.jobs.services import JobServices
from trueup.work.rows.services import RowServices
from trueup.work.service import Service

# "lane seconds", as the statements write it: `extract(epoch …)` is a plain decimal number. Twelve digits are 30,000 years.
_WORK = re.compile(r"(.{1,500}) ([0-9]{1,12}(?:\.[0-9]{1,12})?)", re.ASCII | re.DOTALL)
MAX_SHOWN = 100  # characters of an ignored payload
SLOT = 0.002  # seconds; wake-ups within the same slot share a timer, so that many notifications do not make many timers
MAX_AHEAD = 600.0  # seconds; polling finds what is due later than that
TRY_AGAIN = 60.0  # seconds until a pooler is asked once more whether it lets notifications through
MAX_SLOTS = 1_000  # before past slots are dropped


class Work(NamedTuple):
    lane: str
    seconds: float


def parse_work(payload: str) -> Work | None:
    """The lane that has work and the delay until then; None if the payload says something else."""
    found = _WORK.fullmatch(payload)
    return None if found is None else Work(found[1], float(found[2]))


class Listener(Service):
    name = "listener"

    def __init__(
        self,
        notify_connection: NotifyConnection,
        events: Events,
        wakes: Wakes,
    ) -> None:
        super().__init__(events)
        self._connection = notify_connection
        self._wakes = wakes
        self._lost_at: float | None = None
        self._slots: set[int] = set()
        self._by_word = {"stop": wakes.stop, "schedules": wakes.schedules, "reconcilers": wakes.reconcilers}

    async def run_once(self) -> float:
        """Listen until the connection breaks. Raises then, so that the service's pauses apply."""
        try:
            if not await self._connection.open():
                self._lose("no notification arrived; perhaps the connection goes through a pooler in transaction mode")
                return TRY_AGAIN
            self._gain()
            async for payload in self._connection.heard():
                self._hear(payload)
            raise ConnectionError("the listening connection ended")
        except RETRYABLE as error:
            self._lose(describe(error))
            raise
        finally:
            await self._connection.close()

    async def stop(self) -> None:
        """Listening only ends when its connection does; one that is just being made is cut as soon as it is there."""
        self._stop.set()
        self._wake.set()
        while self._task is not None and not self._task.done():
            self._connection.cut()
            await asyncio.wait({self._task}, timeout=0.02)
        await super().stop()

    async def kill(self) -> None:
        await self.stop()

    def _hear(self, payload: str) -> None:
        wake = self._by_word.get(payload)
        if wake is not None:
            wake()
        elif (work := parse_work(payload)) is None:
            self.events.emit(NotificationIgnored(clean(payload, MAX_SHOWN)))
        elif work.seconds == 0:
            self._wakes.work(work.lane, 0)
        elif work.seconds <= MAX_AHEAD:
            self._hear_of_delayed(work)

    def _hear_of_delayed(self, work: Work) -> None:
        now = asyncio.get_running_loop().time()
        slot = ceil((now + work.seconds) / SLOT)
        if slot in self._slots:
            return
        if len(self._slots) >= MAX_SLOTS:
            self._slots = {slot for slot in self._slots if slot * SLOT > now}
        self._slots.add(slot)
        self._wakes.work(work.lane, slot * SLOT - now)

    def _gain(self) -> None:
        self._wakes.listening(True)
        if self._lost_at is not None:
            self._lost_at = None
            self.events.emit(ListenRestored())

    def _lose(self, reason: str) -> None:
        self._wakes.listening(False)
        if self._lost_at is None and not self._stop.is_set():
            self._lost_at = elapsed()
            self.events.emit(ListenUnavailable(reason))


@dataclass(frozen=True, slots=True)
class Wakes:
    """What each notification wakes in a worker."""

    jobs: JobServices
    housekeeping: Housekeeping
    rows: RowServices
    registry: Registry
    queues: Collection[str]

    def work(self, lane: str, seconds: float) -> None:
        if self._serves(lane):
            self.jobs.hints.hear(lane, timedelta(seconds=seconds))
        if lane.startswith(LANE_PREFIX):
            self.housekeeping.declarer.hear(lane)

    def _serves(self, lane: str) -> bool:
        own = lane.startswith(LANE_PREFIX) and self.registry.get(lane.removeprefix(LANE_PREFIX)) is not None
        return own or lane in self.queues

    def stop(self) -> None:
        self.housekeeping.stopper.wake()

    def schedules(self) -> None:
        self.housekeeping.ticker.wake()
        self.housekeeping.declarer.hurry()

    def reconcilers(self) -> None:
        self.rows.wake()

    def listening(self, listening: bool) -> None:
        self.jobs.claimer.listening = listening
        if listening:
            self.jobs.hints.look()  # a notification may have been missed meanwhile
            self.housekeeping.ticker.wake()
            self.housekeeping.stopper.wake()
