"""A clock that tests move: statements get its moment as `now`, deadlines in the process follow it too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


class ManualClock:
    def __init__(self, now: datetime = NOON) -> None:
        self._now = now
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._now

    def elapsed(self) -> float:
        return self._elapsed

    def advance(self, **duration: float) -> None:
        """`clock.advance(minutes=5)`"""
        step = timedelta(**duration)
        self._now += step
        self._elapsed += step.total_seconds()
