"""Hints for the claimer: which lanes may have jobs to claim, and which to leave alone for a while.

The listener, the runners, the finisher and the rescuer leave hints here, and a hint wakes the claimer. A hint only saves time:
polling finds every job without it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import NamedTuple

from trueup.clock import elapsed
from trueup.work.service import jittered


class TakenHints(NamedTuple):
    look: bool  # whether to look at all lanes
    heard: set[str]  # lanes that have work
    freed: set[str]  # lanes of which jobs have ended here


class Hints:
    def __init__(self, poll_every: timedelta) -> None:
        self._poll_every = poll_every
        self.changed = asyncio.Event()
        self.waiting: dict[str, None] = {}  # lanes known to have due jobs; the lane of the latest claim is last
        self.low_water = 0  # with this few jobs waiting in hand it is time to claim again
        self._look = True
        self._heard: set[str] = set()
        self._freed: set[str] = set()

    def look(self) -> None:
        """A job may have become due in any lane."""
        self._look = True
        self.changed.set()

    def look_after(self, delay: timedelta) -> None:
        """A job becomes due after this delay."""
        if delay < self._poll_every:  # beyond that, polling is soon enough
            asyncio.get_running_loop().call_later(delay.total_seconds() + 0.001, self.look)

    def hear(self, lane: str, delay: timedelta = timedelta()) -> None:
        """A lane has a due job, now or after a delay."""
        if delay > timedelta():
            self.look_after(delay)
        else:
            self._heard.add(lane)
            self.changed.set()

    def free(self, lanes: Iterable[str]) -> None:
        """Jobs of these lanes have ended here, so their limits may have room."""
        self._freed.update(lanes)
        self.changed.set()

    def room(self) -> None:
        """There is room for more jobs: a runner found few or none in hand, or outcomes that took room are written."""
        if self.waiting:
            self.changed.set()

    def take(self) -> TakenHints:
        taken = TakenHints(self._look, self._heard, self._freed)
        self._look, self._heard, self._freed = False, set(), set()
        return taken


class Rests:
    """Lanes that are not claimed from for a while: their jobs could not be claimed, or are not due yet."""

    def __init__(self, longest: float, elapsed: Callable[[], float] = elapsed) -> None:
        self._longest = longest
        self._elapsed = elapsed
        self._until: dict[str, float] = {}
        self._pause: dict[str, float] = {}

    def rest(self, lane: str, shortest: float) -> None:
        """The lane's due jobs could not be claimed: let it rest twice as long as the last time, and at least this long."""
        pause = self._pause[lane] = min(max(2 * self._pause.get(lane, 0.0), shortest), max(self._longest, shortest))
        self._until[lane] = self._elapsed() + jittered(pause)

    def wait(self, lane: str, seconds: float) -> None:
        """Let the lane rest for exactly this long: a job can be claimed then."""
        self.end(lane)
        self._until[lane] = self._elapsed() + seconds

    def end(self, lane: str) -> None:
        self._until.pop(lane, None)
        self._pause.pop(lane, None)

    def backing_off(self, lane: str) -> bool:
        """Whether the lane rests because its due jobs could not be claimed. Once its rest is over, it is treated like any other."""
        return lane in self._pause and lane in self._until

    def over(self) -> list[str]:
        """Take out the lanes whose rest is over."""
        now = self._elapsed()
        over = [lane for lane, until in self._until.items() if until <= now]
        for lane in over:
            del self._until[lane]
        return over

    def next_in(self) -> float:
        """Seconds until the next rest is over; infinite when no lane rests."""
        return max(min(self._until.values(), default=math.inf) - self._elapsed(), 0.0)
