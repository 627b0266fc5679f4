"""The pace: how many jobs per second end on this worker. From it follows how many jobs the claimer claims in advance."""

from __future__ import annotations

from collections.abc import Callable

from trueup.clock import elapsed

AHEAD_FOR = 0.1  # seconds of work to have in hand beyond what runs
MIN_INTERVAL = 0.002  # seconds between two measurements; a shorter time says nothing
MEMORY = 0.5  # weight of the latest measurement when it is the higher one
FALLS_IN = 0.2  # seconds in which a pace that is no longer reached falls by half


class Pace:
    """Jobs per second, as a moving average over the claims."""

    def __init__(self, elapsed: Callable[[], float] = elapsed) -> None:
        self._elapsed = elapsed
        self.per_second = 0.0
        self._at = elapsed()
        self._count = 0

    def measure(self, count: int) -> None:
        """`count` is how many jobs have ended since the start."""
        now = self._elapsed()
        passed = now - self._at
        if passed < MIN_INTERVAL:
            return
        latest = (count - self._count) / passed
        falls = 1 - 0.5 ** (passed / FALLS_IN)
        weight = MEMORY if latest > self.per_second else falls
        self.per_second += weight * (latest - self.per_second)
        self._at, self._count = now, count

    def ahead(self, most: int) -> int:
        """How many jobs to have in hand beyond those that run."""
        wanted = int(self.per_second * AHEAD_FOR)
        return min(most, wanted) if wanted > 1 else 0
