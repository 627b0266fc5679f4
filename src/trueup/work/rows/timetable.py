"""When a sweeper looks: `due` is when its next whole sweep begins, and it may wake before that for rows whose time has come again.

Between two passes it waits until a moment that the last one has chosen. While a pass is under way that moment is not known yet: it
is the first at which a row is due that came to rest during it, and the end of the pass chooses the earlier one. A row that comes to
rest with an earlier moment cuts the wait short. Before the first gate was read, nothing is due.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from trueup.clock import elapsed
from trueup.store.rows.reconcilers import Gate
from trueup.store.rows.rows import Rows
from trueup.work.rows.pace import first_after, swept_elsewhere
from trueup.work.service import jittered

# Seconds between two looks for rows that are due again: a tenth of `every`, within these.
MIN_PAUSES = (0.05, 1.0)


class Timetable:
    def __init__(self, rows: Rows, wake: asyncio.Event, stop: asyncio.Event) -> None:
        """`wake` ends the pause between two passes, `stop` is the end of them."""
        self._rows = rows
        self._reconciler = rows.reconciler
        self._every = rows.reconciler.every.total_seconds()
        self._wake = wake
        self._stop = stop
        self.due: float | None = None
        self._wakes_at = float("-inf")
        self._asked_to_sweep = False  # because a key works again
        self._swept_at: float | None = None  # when this one's last whole sweep ended
        self._failures = 0  # sweeps in a row that an error has ended

    def begin_pass(self) -> None:
        """Before the gate is read: what comes to rest from here on may not be in it."""
        self._wakes_at = float("inf")

    def begin_sweep(self, gate: Gate, begun: float) -> bool:
        """Whether it is a whole one."""
        if self.due is None:
            self.due = begun + first_after(self._reconciler.every, self._reconciler.run_at_start, gate)
        asked, self._asked_to_sweep = self._asked_to_sweep, False
        if begun >= self.due and not asked and (later := self._swept_elsewhere(gate)) is not None:
            self.due = begun + later
        return begun >= self.due

    def _swept_elsewhere(self, gate: Gate) -> float | None:
        """Seconds until this one's turn, when another worker has just swept. On a clock that is moved by hand there is no wait."""
        if self._rows.clock.now() is not None or (self._reconciler.run_at_start and self._swept_at is None):
            return None
        own_ago = None if self._swept_at is None else elapsed() - self._swept_at
        return swept_elsewhere(self._reconciler.every, gate, own_ago)

    def swept(self) -> None:
        """A whole sweep has ended."""
        self._swept_at = elapsed()

    def end_sweep(self, begun: float, *, complete: bool) -> None:
        """`complete`: it was a whole one, and nothing cut it short."""
        self._failures = 0
        if complete and not self._asked_to_sweep:
            # At once after one that took longer: it has left alone what became due since it began.
            self.due = max(elapsed(), begun + jittered(self._every))

    def after_failure(self) -> float:
        """Seconds until the next try: longer after each sweep that an error has ended."""
        self._failures += 1
        return min(2.0 ** min(self._failures - 1, 20), max(self._every, MIN_PAUSES[1]))

    async def pause(self, gate: Gate | None, begun: float) -> float:
        """Seconds until the next pass. `gate`: what was known when the sweep began, if nothing was claimed since."""
        assert self.due is not None
        next_in = gate.next_due_in if gate is not None else await self._rows.next_due_in()
        if gate is not None and next_in is not None:
            next_in -= elapsed() - begun
        now = elapsed()
        wakes_at = self.due if next_in is None else min(self.due, now + max(next_in, self._soonest))
        self._wakes_at = min(self._wakes_at, wakes_at)
        return max(0.0, self._wakes_at - now)

    @property
    def _soonest(self) -> float:
        return min(max(self._every / 10, MIN_PAUSES[0]), MIN_PAUSES[1])

    def due_again(self, delay: timedelta) -> None:
        """A row that was claimed here rests now: it is to be looked at then, also when no sweep waits for it any more."""
        pause = max(delay.total_seconds(), self._soonest)
        if elapsed() + pause < self._wakes_at:
            self._wakes_at = elapsed() + pause
            asyncio.get_running_loop().call_later(pause, self._wake.set)

    def sweep_soon(self) -> None:
        """Rows that waited for their key are looked for at once, not when the next sweep is due."""
        if self.due is not None and not self._stop.is_set():
            self._asked_to_sweep = True  # also while one is under way: it has passed over rows of this key
            self.due = min(self.due, elapsed())
            self._wake.set()
