"""When to stop trying for a while: failures of the same kind, one after the other, are a fault of something they all need. So are
failures of any kind, refusals (`GiveUp`) included, of different rows one after the other without one that works, where
`pause_on="any"` says that rows do not come in bad runs of their own.

Each process counts its own; the pause is written to the reconciler's row and holds for the whole fleet. After it, one row at
a time is tried until one works. Rows that fail while the breaker is open or opens do not spend an attempt, and those that did
in the streak before get it back.

A row that failed in a streak is suspect once another one has worked: then the fault was its own, or is over. What it does next
tells nothing about others, so it is not counted, and it spends its attempts like any row. Otherwise a handful of rows that can
never succeed would keep all others waiting, for ever.

With `pause_by=` there is one breaker per key. Only rows of a key whose breaker is open wait, and only that key is probed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

MAX_PAUSE = timedelta(minutes=10)
MAX_SUSPECTS = 10_000  # the oldest are forgotten: at worst they make it rest once more
MAX_KEYS = 1_000  # breakers open at a time, per reconciler; beyond that it is no fault of single keys, and the reconciler rests
MAX_EVERYBODY = timedelta(days=1)  # what a receiver can ask for with Retry-After


class Breaker:
    def __init__(self, pause_after: int | None, pause_for: timedelta, *, any_kind: bool = False) -> None:
        self._pause_after = pause_after
        self._any_kind = any_kind
        self._pause_for = pause_for
        self._kind: str | None = None
        self._failed: dict[str, None] = {}  # keys, of this kind, one after the other
        self._suspects: dict[str, None] = {}
        self._in_a_row: dict[str, None] = {}  # keys that failed or were refused, for whatever reason, since one worked
        self._streak = 0
        self.probing = False  # one row at a time, until one works
        self.opened_at = 0.0
        self.spent: list[Any] = []  # rows of the streak, whose attempts are given back should it open
        self.opening = False  # being written down

    @property
    def streak(self) -> int:
        """How many have failed one after the other, for the same reason."""
        return self._streak

    @property
    def others(self) -> bool:
        """Whether it is not one row alone that fails: that would be the row's own fault."""
        return len(self._failed) >= min(2, self._pause_after or 2)

    def counts(self, key: str) -> bool:
        """Whether a failure of this row tells something about others."""
        return self._pause_after is not None and key not in self._suspects

    def failed(self, key: str, kind: str) -> bool:
        """Note a failure that counts. True: the reconciler should rest now."""
        if self._pause_after is None:
            return False
        if kind != self._kind and not self.probing:
            self._failed.clear()
            self._streak = 0
        self._kind = kind
        self._streak += 1
        self._failed[key] = None
        return self.probing or self.refused(key) or (self._streak >= self._pause_after and self.others)

    def refused(self, key: str) -> bool:
        """Note a row that will not be tried again, for a reason of its own as it seems. True: it should rest now."""
        if self._pause_after is None or not self._any_kind:
            return False
        self._in_a_row[key] = None
        return self.probing or len(self._in_a_row) >= max(self._pause_after, 2)

    def worked(self, key: str) -> bool:
        """Note a row that worked. True: that ends a pause."""
        self._suspects.pop(key, None)
        self._failed.pop(key, None)
        return self.close()

    def close(self) -> bool:
        """A row has worked, here or in another process. True: that ends a pause."""
        was, self.probing = self.probing, False
        if was:
            self._suspects |= self._failed
            for key in list(self._suspects)[:-MAX_SUSPECTS]:
                del self._suspects[key]
        self._failed.clear()
        self._in_a_row.clear()
        self._kind, self._streak = None, 0
        return was

    def open(self, now: float = 0.0) -> None:
        """It rests now; afterwards, one row at a time."""
        self.probing, self.opened_at = True, now
        self._in_a_row.clear()
        self._kind, self._streak = None, 0

    def pause(self, pauses: int) -> timedelta:
        """How long to rest, after this many rests in a row already."""
        if self._pause_for >= MAX_PAUSE:
            return self._pause_for
        return min(self._pause_for * (1 << min(pauses, 16)), MAX_PAUSE)
