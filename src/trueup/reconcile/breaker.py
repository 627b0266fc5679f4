"""When to stop trying for a while: failures of the same kind, one after the other, are a fault of something they all need.

Each process counts its own; the pause is written to the reconciler's row and holds for the whole fleet. After it, one row at
a time is tried until one works. Rows that fail while the breaker is open or opens do not spend an attempt.
"""

from __future__ import annotations

from datetime import timedelta

LONGEST_PAUSE = timedelta(minutes=10)


class Breaker:
    def __init__(self, pause_after: int | None, pause_for: timedelta) -> None:
        self._pause_after = pause_after
        self._pause_for = pause_for
        self._kind: str | None = None
        self._count = 0
        self.probing = False  # one row at a time, until one works

    def failed(self, kind: str) -> bool:
        """Note a failure. True: the reconciler should rest now."""
        if self._pause_after is None:
            return False
        self._count = self._count + 1 if kind == self._kind else 1
        self._kind = kind
        return self.probing or self._count >= self._pause_after

    def worked(self) -> bool:
        """Note a row that worked. True: that ends a pause."""
        was, self.probing = self.probing, False
        self._kind, self._count = None, 0
        return was

    def opened(self) -> None:
        self.probing = True
        self._kind, self._count = None, 0

    def pause(self, pauses: int) -> timedelta:
        """How long to rest, after this many rests in a row already."""
        doubled: timedelta = self._pause_for * (1 << min(pauses, 16))
        return min(doubled, max(LONGEST_PAUSE, self._pause_for))
