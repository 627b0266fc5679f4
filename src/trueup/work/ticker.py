"""Fires ticks. Every worker plans; the planning lock lets one act at a time, and the ledger's key makes a tick fire once.

It sleeps until the next tick of any schedule, by the database's clock, or until a notification says that a schedule has changed. A
little jitter lets the first worker of a fleet do the work and the others find it done.

A pass plans all due ticks in one transaction. When PostgreSQL refuses it, the schedules are planned in smaller and smaller groups, until
the culprit is alone. The reason is recorded for the whole fleet, and the culprit is tried again, alone and after all other schedules,
with growing pauses.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from datetime import datetime

from trueup.clock import elapsed
from trueup.events import Events, ScheduleAhead, ScheduleChanged, ScheduleRefused, ScheduleUnreadable, TicksDecided
from trueup.store.db.connect import is_away, may_pass
from trueup.store.planning import FIRST_PAUSE, MAX_PAUSE, Noted, Planned, PlanRefused, Refused, UnreadableSchedule
from trueup.store.schedules import Schedules
from trueup.texts import describe
from trueup.work.service import Service

MAX_WAIT = 10.0  # seconds between looks when no tick is due sooner, in case a notification was lost
LOOK_AHEAD_EVERY = 60.0  # seconds between looks for schedules that a clock that was ahead has moved too far
SPREAD = 0.03  # seconds
AGAIN = 0.1  # seconds until the next look while another transaction changes what is due; its commit notifies us
# The parts that a refused pass is divided into; more find a culprit in fewer steps, each of which may take until a timeout.
GROUPS = 8
SEARCH_FOR = 5.0  # seconds of looking for culprits in one pass


class Ticker(Service):
    name = "ticker"

    def __init__(self, schedules: Schedules, events: Events) -> None:
        super().__init__(events)
        self._schedules = schedules
        self._unreadable: dict[str, UnreadableSchedule] = {}
        # Refused schedules whose refusal could not be recorded, and until when to pass over them.
        self._aside: dict[str, tuple[UnreadableSchedule, float]] = {}
        self._answered = False  # the server has asked to repeat the last pass
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
                return SPREAD  # another planner is planning: look soon whether it left ticks
            next_in = await self._next_in()
            if next_in is not None and next_in <= 0 and not planned.fired and not planned.skipped:
                return AGAIN
        ends = [until - elapsed() for _, until in self._aside.values()]
        pause = max(0.0, min([MAX_WAIT, *ends] if next_in is None else [MAX_WAIT, next_in, *ends]))
        return pause + random.uniform(0.001, SPREAD)  # noqa: S311

    async def _look_ahead(self) -> None:
        """Report once which schedules wait for a moment that is not in their rule."""
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
        return await self._schedules.next_in(self._left_out())

    def _left_out(self) -> list[UnreadableSchedule]:
        now = elapsed()
        self._aside = {name: each for name, each in self._aside.items() if each[1] > now}
        return [*self._unreadable.values(), *(each for each, _ in self._aside.values())]

    async def plan(self) -> Planned:
        """Plan once, and try schedules again that were refused earlier."""
        try:
            planned = await self._schedules.plan(self._left_out())
        except PlanRefused as refusal:
            if is_away(refusal.error) and not self._answered:  # said twice, it may be about one schedule
                self._answered = True
                raise refusal.error from None
            planned = await self._search(refusal)
        else:
            await self._report(planned)
        self._answered = False
        if planned.held and not planned.more:
            await self._try_again()
        return planned

    async def _search(self, refusal: PlanRefused) -> Planned:
        """Plan the schedules of a pass that was refused in ever smaller groups. What is refused alone is noted.

        Raises the error when nothing could be planned in all that time: it is the server, then, that refuses.
        """
        until = elapsed() + SEARCH_FOR
        groups = deque(_divided(refusal.versions))
        refused: list[Refused] = []
        total = Planned()
        while groups and elapsed() < until:
            group = groups.popleft()
            try:
                planned = await self._schedules.plan(self._left_out(), list(group))
            except PlanRefused as again:
                refusal = again
                if len(group) > 1:
                    groups.extend(_divided(group))
                else:
                    refused += [Refused(name, version, describe(again.error)) for name, version in group.items()]
                continue
            if not planned.held:
                total = Planned(held=False)
                break
            await self._report(planned)
            total = total.plus(planned)
        await self._note(refused)
        if groups and total.held and not (total.fired or total.skipped):
            raise refusal.error
        return total.plus(Planned(more=bool(groups)))

    async def _try_again(self) -> None:
        """Plan schedules that were refused earlier, each alone."""
        for name in await self._schedules.refused_due(self._left_out()):
            try:
                await self._report(await self._schedules.plan(self._left_out(), [name]))
            except PlanRefused as refusal:
                error = describe(refusal.error)
                await self._note([Refused(name, version, error) for name, version in refusal.versions.items()])

    async def _note(self, refused: Sequence[Refused]) -> None:
        """Record the refused schedules for the fleet. If even that is refused, only this process passes them over."""
        if not refused:
            return
        try:
            noted = await self._schedules.note_refused(refused)
        except Exception as error:
            if is_away(error):
                raise
            pause = (FIRST_PAUSE if may_pass(error) else MAX_PAUSE).total_seconds()  # a full disk refuses everything
            noted = [Noted(each, 1, pause) for each in refused]
            for each in refused:
                self._aside[each.name] = UnreadableSchedule(each.name, each.version, each.error), elapsed() + pause
        for note in noted:
            self.events.emit(ScheduleRefused(note.refused.name, note.refused.error, note.refusals, note.pause))

    async def _report(self, planned: Planned) -> None:
        await self._note(planned.refused)
        for found in planned.unreadable:
            self._unreadable[found.name] = found
            self.events.emit(ScheduleUnreadable(found.name, found.error))
        for name in planned.paused:
            self.events.emit(ScheduleChanged(name, "paused: its runs keep dying"))
        for name in planned.finished:
            self.events.emit(ScheduleChanged(name, "finished"))
        if planned.fired or planned.skipped:
            self.events.emit(TicksDecided(planned.fired, planned.skipped))


def _divided(versions: dict[str, int]) -> list[dict[str, int]]:
    """Schedules in groups of about equal size, the first ones first."""
    each = list(versions.items())
    size = -(-len(each) // GROUPS)
    return [dict(each[at : at + size]) for at in range(0, len(each), size)]
