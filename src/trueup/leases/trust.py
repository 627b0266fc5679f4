"""How long a process may believe that it still has its lease.

The database decides who holds what; a process only keeps a deadline that is surely earlier. It is counted from *before*
the claim or renewal was sent, on a clock that cannot be set and that runs on while the machine sleeps, and it is shorter
than the lease by a margin. Past the deadline the process treats the lease as lost: it cancels what runs under it and
finishes nothing, even if the database might still accept it.

Whoever has seen the deadline pass may have acted on it (a claim given up, a finish dropped), so a renewal that is confirmed
after that does not bring the trust back: such a claim would be renewed for ever and worked on by nobody.
"""

from __future__ import annotations

import threading
from datetime import timedelta

MARGIN = 0.15  # of the lease: time to notice, cancel and let a slow statement end before anybody else may begin


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
