"""Where to look for jobs next: the claimer's mailbox.

A notification, a job that ended, an outcome that was written or a rescue says here what may have become claimable, and that wakes the
claimer. A hint only saves time: polling finds everything without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple


class Taken(NamedTuple):
    look: bool  # at all lanes
    heard: set[str]  # lanes that have work
    freed: set[str]  # lanes of which jobs have ended here


class Hints:
    def __init__(self, poll_every: timedelta) -> None:
        self._poll_every = poll_every
        self.changed = asyncio.Event()
        self.waiting: dict[str, None] = {}  # lanes known to have jobs that can be claimed; those asked last come last
        self.low_water = 0  # with this few jobs waiting in hand it is time to claim again
        self._look = True
        self._heard: set[str] = set()
        self._freed: set[str] = set()

    def look(self) -> None:
        """Something may have become due, in whatever lane."""
        self._look = True
        self.changed.set()

    def look_after(self, delay: timedelta) -> None:
        """Something becomes due in a while."""
        if delay < self._poll_every:  # beyond that, polling is soon enough
            asyncio.get_running_loop().call_later(delay.total_seconds() + 0.001, self.look)

    def hear(self, lane: str, delay: timedelta = timedelta()) -> None:
        """A lane has work, now or in a while."""
        if delay > timedelta():
            self.look_after(delay)
        else:
            self._heard.add(lane)
            self.changed.set()

    def free(self, lanes: Iterable[str]) -> None:
        """Jobs of these lanes have ended here, so there may be room for others."""
        self._freed.update(lanes)
        self.changed.set()

    def room(self) -> None:
        """A runner looked for a job, and little or nothing is left in hand; or outcomes that took room are written."""
        if self.waiting:
            self.changed.set()

    def take(self) -> Taken:
        taken = Taken(self._look, self._heard, self._freed)
        self._look, self._heard, self._freed = False, set(), set()
        return taken
