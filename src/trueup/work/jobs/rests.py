"""Lanes that a worker does not claim from for a while: their jobs could not be claimed, or are not due yet."""

from __future__ import annotations

import math
from collections.abc import Callable

from trueup.clock import elapsed
from trueup.work.service import jittered


class Rests:
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
