"""One circuit breaker per key (`pause_by=`): the keys whose breaker is open, and how long their rows wait.

The pauses of the fleet are in the table `reconciler_pauses`, which a sweep reads with its gate. If the key is a column, rows of an open
key are not claimed. If it is a function, or if the breaker opened after the claim, the rows rest until the pause is over. Neither
spends an attempt. After the pause each process tries one row of the key at a time, until one succeeds. A row that has been tried lets
all others go first: if its fault is its own, it must not keep them waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from trueup.reconcile.breaker import MAX_KEYS, Breaker
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.reconciler import Reconciler
from trueup.store.rows.reconcilers import KeyPause
from trueup.store.rows.rows import Rows
from trueup.work.rows.held import RowInHand

MAX_KEY = 200  # characters
# For which a row that was tried rests, so that the others of its key are claimed before it.
LET_OTHERS_GO = timedelta(seconds=1)


def breaker_of(reconciler: Reconciler) -> Breaker:
    return Breaker(reconciler.pause_after, reconciler.pause_for, any_kind=reconciler.pause_on == "any")


@dataclass(slots=True)
class Probing:
    """Whose turn it is among the rows of a key whose breaker is open: each is tried once before one is tried again."""

    probe: RowInHand | None = None
    tried: set[str] = field(default_factory=set)  # keys of rows
    passed: set[str] = field(default_factory=set)  # of these, the ones that let others go first since the last probe

    @property
    def under_way(self) -> bool:
        return self.probe is not None and self.probe.state != "gone"

    def begin(self, held: RowInHand) -> bool:
        """Make this row the probe. False: it was tried already, and others go first."""
        key = held.row.key
        if key in self.tried and key not in self.passed:
            self.passed.add(key)
            return False
        if key in self.tried:  # no other row has come
            self.tried.clear()
        self.passed.clear()
        self.tried.add(key)
        self.probe = held
        return True


class Keyed:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._reconciler = rows.reconciler
        self._breakers: dict[str, Breaker] = {}
        self._until: dict[str, float] = {}  # on the clock's monotonic time
        self._probing: dict[str, Probing] = {}

    def key(self, held: RowInHand) -> str:
        if held.pause_key is None:
            held.pause_key = self._key(held.row)
        return held.pause_key

    def _key(self, row: ClaimedRow) -> str:
        by = self._reconciler.pause_by
        try:
            value = row.values.get(by) if isinstance(by, str) else by(self._reconciler.handler.shape.make(row.values))  # type: ignore[misc]
            return "" if value is None else str(value)[:MAX_KEY].replace("\0", "")
        except KeyboardInterrupt:
            raise
        except BaseException:  # a row that does not fit fails by itself when it is handled
            return ""

    def of(self, held: RowInHand) -> Breaker:
        return self._breaker(self.key(held))

    def _breaker(self, key: str) -> Breaker:
        breaker = self._breakers.pop(key, None) or breaker_of(self._reconciler)
        self._breakers[key] = breaker  # the most recently used key is last
        if len(self._breakers) > 2 * MAX_KEYS:
            del self._breakers[next(iter(self._breakers))]
        return breaker

    def heed(self, pauses: Sequence[KeyPause]) -> None:
        """Follow the fleet's record: keys on it rest or are probed, and all other keys work."""
        now, known = self._rows.clock.elapsed(), {pause.key for pause in pauses}
        for key, rests_for, _ in pauses:
            self._breaker(key).probing = True
            self._until[key] = now + rests_for
        for key in [key for key in self._until if key not in known and not self._breaker(key).opening]:
            del self._until[key]
            self._probing.pop(key, None)
            self._breaker(key).close()
        self._rows.paused = tuple(key for key in self._until if self._waits(key, now))

    def opened(self, key: str, pause: timedelta) -> None:
        until = self._rows.clock.elapsed() + pause.total_seconds()
        self._until[key] = max(until, self._until.get(key, 0.0))
        self._rows.paused = (*self._rows.paused, key)

    def closed(self, key: str) -> None:
        self._until.pop(key, None)
        self._probing.pop(key, None)
        self._rows.paused = tuple(other for other in self._rows.paused if other != key)

    def held_up(self, held: RowInHand) -> timedelta | None:
        """How long this row must wait; None when its handler may begin. While a key is probed, its other rows wait for the result."""
        key = self.key(held)
        now = self._rows.clock.elapsed()
        if key not in self._until or held.row.spent:
            return None
        if (left := self._until[key] - now) > 0:
            return timedelta(seconds=left)
        probing = self._probing.setdefault(key, Probing())
        if probing.under_way:
            return self._reconciler.pause_for
        return None if probing.begin(held) else LET_OTHERS_GO

    def _waits(self, key: str, now: float) -> bool:
        probing = self._probing.get(key)
        return self._until[key] > now or (probing is not None and probing.under_way)
