"""Fires ticks. Every worker plans; the planning lock lets one act at a time, and the ledger's key makes a tick fire once.

It sleeps until the next tick of anything, by the database's reckoning, or until it hears that a schedule was changed. A
little jitter lets the first of a fleet do the work and the others find it done.
"""

from __future__ import annotations

import random
from datetime import datetime

from trueup.clock import elapsed
from trueup.events import Events, ScheduleAhead, ScheduleChanged, ScheduleUnreadable, TicksDecided
from trueup.store.schedules import Planned, Schedules, Unreadable
from trueup.worker.service import Service

LONGEST = 10.0  # seconds between looks when nothing is due sooner; changes are heard of, this is for when they are not
LOOK_AHEAD_EVERY = 60.0  # seconds between looks for schedules that a clock which was ahead has moved too far
SPREAD = 0.03  # seconds
AGAIN = 0.1  # seconds until the next look while somebody is changing what is due; they say so when they are done


class Ticker(Service):
    name = "ticker"

    def __init__(self, schedules: Schedules, events: Events) -> None:
        super().__init__(events)
        self._schedules = schedules
        self._unreadable: dict[str, Unreadable] = {}
        self._ahead: set[tuple[str, datetime]] = set()
        self._looked_ahead_at: float | None = None

    async def run_once(self) -> float:
        await self._look_ahead()
        next_in = await self._next_in()
        if next_in is not None and next_in <= 0:
            planned = await self.plan()
            if planned.more:
                return 0.0
            if not planned.held:
                return SPREAD  # another planner is at it: see whether it left something
            next_in = await self._next_in()
            if next_in is not None and next_in <= 0 and not planned.fired and not planned.skipped:
                return AGAIN
        pause = LONGEST if next_in is None else min(max(next_in, 0.0), LONGEST)
        return pause + random.uniform(0.001, SPREAD)  # noqa: S311

    async def _look_ahead(self) -> None:
        """Say once which schedules wait for a moment that their rule does not name."""
        now = elapsed()
        if self._looked_ahead_at is not None and now - self._looked_ahead_at < LOOK_AHEAD_EVERY:
            return
        found = await self._schedules.ahead()
        self._looked_ahead_at = now
        for name, until, seconds in found:
            if (name, until) not in self._ahead:
                self.events.emit(ScheduleAhead(name, until.isoformat(), round(seconds, 1)))
        self._ahead = {(name, until) for name, until, _ in found}

    async def _next_in(self) -> float | None:
        return await self._schedules.next_in(self._unreadable.values())

    async def plan(self) -> Planned:
        """One pass of planning."""
        planned = await self._schedules.plan(self._unreadable.values())
        for found in planned.unreadable:
            self._unreadable[found.name] = found
            self.events.emit(ScheduleUnreadable(found.name, found.error))
        for name in planned.paused:
            self.events.emit(ScheduleChanged(name, "paused: its runs keep dying"))
        for name in planned.finished:
            self.events.emit(ScheduleChanged(name, "finished"))
        if planned.fired or planned.skipped:
            self.events.emit(TicksDecided(planned.fired, planned.skipped))
        return planned
