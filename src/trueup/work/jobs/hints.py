"""Hints for the claimer: which lanes may have jobs to claim.

The listener, the runners, the finisher and the rescuer leave hints here, and a hint wakes the claimer. A hint only saves time:
polling finds every job without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple


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
