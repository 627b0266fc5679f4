"""When a sweeper looks for rows: `due` is when its next whole sweep begins. Before that it may wake for rows that are due again.

The end of each pass chooses the moment of the next one. A row that comes to rest meanwhile, and is due earlier, brings that moment
forward. Before the first gate was read, no pass is due.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from trueup.clock import elapsed
from trueup.store.rows.reconcilers import Gate
from trueup.store.rows.rows import Rows
from trueup.work.rows.pace import first_after, swept_elsewhere
from trueup.work.service import jittered

# Bounds, in seconds, of the time between looks for rows that are due again, which is a tenth of `every`.
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
        self._asked_to_sweep = False  # because the breaker of a key has closed
        self._swept_at: float | None = None  # when this worker's last whole sweep ended
        self._failures = 0  # sweeps in a row that ended with an error

    def begin_pass(self) -> None:
        """Call this before the gate is read: rows that come to rest from now on may be missing in it."""
        self._wakes_at = float("inf")

    def begin_sweep(self, gate: Gate, begun: float) -> bool:
        """Returns whether the sweep that begins is a whole one."""
        if self.due is None:
            self.due = begun + first_after(self._reconciler.every, self._reconciler.run_at_start, gate)
        asked, self._asked_to_sweep = self._asked_to_sweep, False
        if begun >= self.due and not asked and (later := self._swept_elsewhere(gate)) is not None:
            self.due = begun + later
        return begun >= self.due

    def _swept_elsewhere(self, gate: Gate) -> float | None:
        """Seconds until this worker's turn, if another worker has just swept. On a clock that is moved by hand there is no wait."""
        if self._rows.clock.now() is not None or (self._reconciler.run_at_start and self._swept_at is None):
            return None
        own_ago = None if self._swept_at is None else elapsed() - self._swept_at
        return swept_elsewhere(self._reconciler.every, gate, own_ago)

    def swept(self) -> None:
        """A whole sweep has ended."""
        self._swept_at = elapsed()

    def end_sweep(self, begun: float, *, complete: bool) -> None:
        """A sweep has ended. `complete`: it was a whole one, and nothing cut it short."""
        self._failures = 0
        if complete and not self._asked_to_sweep:
            # If this one took longer than `every`, the next one follows at once: it takes the rows that became due meanwhile.
            self.due = max(elapsed(), begun + jittered(self._every))

    def after_failure(self) -> float:
        """Seconds until the next sweep after one that ended with an error; each time longer."""
        self._failures += 1
        return min(2.0 ** min(self._failures - 1, 20), max(self._every, MIN_PAUSES[1]))

    async def pause(self, gate: Gate | None, begun: float) -> float:
        """Seconds until the next pass. `gate` is the one that the last sweep read, if the sweep claimed no row."""
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
        """A row that was claimed here rests now: wake when it is due, even if its sweep is over."""
        pause = max(delay.total_seconds(), self._soonest)
        if elapsed() + pause < self._wakes_at:
            self._wakes_at = elapsed() + pause
            asyncio.get_running_loop().call_later(pause, self._wake.set)

    def sweep_soon(self) -> None:
        """The breaker of a key has closed: sweep at once for the rows that waited for it."""
        if self.due is not None and not self._stop.is_set():
            self._asked_to_sweep = True  # even during a sweep, which has passed over rows of this key
            self.due = min(self.due, elapsed())
            self._wake.set()
