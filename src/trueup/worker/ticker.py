"""Fires ticks. Every worker plans; the planning lock lets one act at a time, and the ledger's key makes a tick fire once.

It sleeps until the next tick of anything, by the database's reckoning, or until it hears that a schedule was changed. A
little jitter lets the first of a fleet do the work and the others find it done.
"""

from __future__ import annotations

import random

from trueup.events import Events, ScheduleUnreadable, TicksDecided
from trueup.store.schedules import Planned, Schedules
from trueup.worker.service import Service

LONGEST = 10.0  # seconds between looks when nothing is due sooner; changes are heard of, this is for when they are not
SPREAD = 0.03  # seconds


class Ticker(Service):
    name = "ticker"

    def __init__(self, schedules: Schedules, events: Events) -> None:
        super().__init__(events)
        self._schedules = schedules
        self._unreadable: set[str] = set()

    async def run_once(self) -> float:
        next_in = await self._schedules.next_in()
        if next_in is not None and next_in <= 0:
            planned = await self.plan()
            if planned.more:
                return 0.0
            if not planned.held:
                return SPREAD  # another planner is at it: see whether it left something
            next_in = await self._schedules.next_in()
        pause = LONGEST if next_in is None else min(max(next_in, 0.0), LONGEST)
        return pause + random.uniform(0.001, SPREAD)  # noqa: S311

    async def plan(self) -> Planned:
        """One pass of planning."""
        planned = await self._schedules.plan(self._unreadable)
        for name, error in planned.unreadable:
            self._unreadable.add(name)
            self.events.emit(ScheduleUnreadable(name, error))
        if planned.fired or planned.skipped:
            self.events.emit(TicksDecided(planned.fired, planned.skipped))
        return planned
