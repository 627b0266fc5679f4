"""How long a process may trust that it still has its lease.

The database decides which process holds a lease; a process only keeps a deadline that is certainly earlier. It is counted
from *before* the claim or renewal was sent, on a clock that cannot be set and that continues while the machine sleeps, and it
is shorter than the lease by a margin. Past the deadline the process treats the lease as lost: it cancels the handlers that run
under it and finishes nothing, even if the database might still accept it.

Code that has seen the deadline pass may have acted on it (given up a claim, dropped a finish). So a renewal that is confirmed
after that does not restore the trust: such a claim would be renewed forever without any handler working on it.
"""

from __future__ import annotations

import threading
from datetime import timedelta

MIN_LEASE = timedelta(seconds=1)
MARGIN = 0.15  # of the lease: time to notice, cancel and let a slow statement end before another process can take over


class Trust:
    """Written by the renewing thread, read by the event loop and by handlers' threads. Once seen as passed it stays so."""

    def __init__(self, lease_for: timedelta, sent_at: float) -> None:
        self._lasts = lease_for.total_seconds() * (1 - MARGIN)
        self._until = sent_at + self._lasts
        self._lock = threading.Lock()

    def renewed(self, sent_at: float) -> None:
        """A renewal sent at that moment was confirmed. Changes nothing when the trust has been seen to be over."""
        with self._lock:
            if self._until != float("-inf"):
                self._until = max(self._until, sent_at + self._lasts)

    def left(self, now: float) -> float:
        """Seconds of trust left; not positive when there is none."""
        left = self._until - now
        if left > 0:
            return left
        with self._lock:
            left = self._until - now
            if left <= 0:
                self._until = float("-inf")
            return left

    def end(self) -> None:
        """The database said that the lease is gone."""
        with self._lock:
            self._until = float("-inf")


def longest_hold(interval: timedelta) -> timedelta:
    """A little less than the time to the next tick: 15 min → 14 min, a day → 23 h; and a second at least.

    So a run that takes too long ends before the next one needs the lease. It is shortened by a 24th, at least by a minute;
    short intervals, for which a minute is much, by a tenth.
    """
    spare = max(interval / 24, min(timedelta(minutes=1), interval / 10))
    return max(interval - spare, MIN_LEASE)
