"""The circuit breaker's rule: when a reconciler stops trying for a while.

Several failures of the same kind in a row mean that something fails that all rows need. With `pause_on="any"`, so do failures of any
kind (refusals by `GiveUp` included) of different rows in a row: the user says that bad rows do not come in runs.

Each process counts its own failures; the pause is written to the reconciler's row and holds for the whole fleet. After it, one row at
a time is tried until one succeeds. Rows that fail while the breaker is open or opening spend no attempt, and rows of the streak before
get theirs back.

A row that failed in a streak is a suspect once another row has succeeded: the fault was its own, or is over. Its next failure says
nothing about other rows, so it is not counted and spends an attempt as usual. Otherwise a few rows that can never succeed would keep
all others waiting for ever.

An outcome that the database refuses counts like a failure of its handler, in a streak of its own: that one ends when an outcome is
written, whatever handlers return meanwhile. A row that is refused beside others that are written is a suspect at once, and one that has failed
before opens nothing (`Judge.of_refusal`).

With `pause_by=` there is one breaker per key. Only rows of a key whose breaker is open wait, and only that key is probed.
"""

from __future__ import annotations

from datetime import timedelta

from trueup.reconcile.claimed import ClaimedRow

MAX_PAUSE = timedelta(minutes=10)
MAX_SUSPECTS = 10_000  # the oldest are forgotten, which at worst opens the breaker once more
MAX_KEYS = 1_000  # breakers open at a time, per reconciler; beyond that it is no fault of single keys, and the reconciler rests
MAX_EVERYBODY = timedelta(days=1)  # the longest pause that a receiver can ask for with Retry-After


class Breaker:
    def __init__(self, pause_after: int | None, pause_for: timedelta, *, any_kind: bool = False) -> None:
        self._pause_after = pause_after
        self._any_kind = any_kind
        self._pause_for = pause_for
        self._kind: str | None = None
        self._failed: dict[str, None] = {}  # keys of rows that failed for this reason in a row
        self._suspects: dict[str, None] = {}
        self._in_a_row: dict[str, None] = {}  # keys that failed or were refused since the last success
        self._streak = 0
        # Rows whose outcomes were refused since one was written, and the reason, which they share.
        self._unwritten: dict[str, ClaimedRow] = {}
        self._refusal: str | None = None
        self.probing = False  # one row at a time, until one succeeds
        self.opened_at = 0.0
        self.spent: list[ClaimedRow] = []  # rows of the streak, whose attempts are given back if it opens
        self.opening = False  # the pause is being written

    @property
    def streak(self) -> int:
        """How many rows in a row have failed for the same reason."""
        return self._streak

    @property
    def others(self) -> bool:
        """Whether several rows fail. If only one does, the fault is its own."""
        return len(self._failed) >= min(2, self._pause_after or 2)

    def counts(self, key: str) -> bool:
        """Whether a failure of this row says something about others."""
        return self._pause_after is not None and key not in self._suspects

    def failed(self, key: str, kind: str) -> bool:
        """Note a failure that counts. True: the breaker should open now."""
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
        """Note a row that its handler gave up. True: the breaker should open now."""
        if self._pause_after is None or not self._any_kind:
            return False
        self._in_a_row[key] = None
        return self.probing or len(self._in_a_row) >= max(self._pause_after, 2)

    def unwritten(self, row: ClaimedRow, kind: str) -> bool:
        """Note a row that counts, and whose outcome was refused. True: the breaker should open now, and the row spends no attempt."""
        if kind != self._refusal and not self._any_kind:
            self._unwritten.clear()
        self._refusal = kind
        if self.probing or len({*self._unwritten, row.key}) >= max(self._pause_after or 0, 2):
            self._failed[row.key] = None
            return True
        self._unwritten[row.key] = row
        return False

    @property
    def several_unwritten(self) -> bool:
        return len(self._unwritten) > 1

    def suspect(self, key: str) -> None:
        """Note a row that was refused beside others that were written: the fault is its own."""
        if self._pause_after is not None:
            self._suspects[key] = None
            self._forget_oldest()

    def returned(self) -> None:
        """Note that a handler returned an outcome: this ends a streak of failures. A pause ends when an outcome is written."""
        if not self.probing:
            self._end_streak()

    def written(self, key: str) -> bool:
        """Note a row whose outcome was written. True: this ends a pause."""
        self._suspects.pop(key, None)
        self._unwritten.clear()
        return self.probing and self.worked(key)

    def worked(self, key: str) -> bool:
        """Note a row that succeeded. True: this ends a pause."""
        self._suspects.pop(key, None)
        self._failed.pop(key, None)
        return self.close()

    def close(self) -> bool:
        """A row has succeeded, here or in another process. True: this ends a pause."""
        was, self.probing = self.probing, False
        if was:
            self._suspects |= self._failed
            self._forget_oldest()
        self._end_streak()
        self._unwritten.clear()
        return was

    def _forget_oldest(self) -> None:
        while len(self._suspects) > MAX_SUSPECTS:
            del self._suspects[next(iter(self._suspects))]

    def _end_streak(self) -> None:
        self._failed.clear()
        self._in_a_row.clear()
        self._kind, self._streak = None, 0

    def open(self, now: float = 0.0) -> list[ClaimedRow]:
        """The pause begins. After it, one row at a time is tried. Returns the rows whose attempts are to be given back."""
        spent = [*self.spent, *self._unwritten.values()]
        self._failed |= dict.fromkeys(self._unwritten)
        self.spent = []
        self._unwritten.clear()
        self.probing, self.opened_at = True, now
        self._in_a_row.clear()
        self._kind, self._streak = None, 0
        return spent

    def pause(self, pauses: int) -> timedelta:
        """The length of the next pause, after this many pauses in a row."""
        if self._pause_for >= MAX_PAUSE:
            return self._pause_for
        return min(self._pause_for * (1 << min(pauses, 16)), MAX_PAUSE)
