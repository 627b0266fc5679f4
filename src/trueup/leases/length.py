"""For how long one run of a schedule may hold its lease."""

from __future__ import annotations

from datetime import timedelta

MIN_LEASE = timedelta(seconds=1)


def longest_hold(interval: timedelta) -> timedelta:
    """A little less than the time to the next tick: 15 min → 14 min, a day → 23 h; and a second at least.

    So a run that takes too long ends before the next one needs the lease. It is shortened by a 24th, at least by a minute;
    short intervals, for which a minute is much, by a tenth.
    """
    spare = max(interval / 24, min(timedelta(minutes=1), interval / 10))
    return max(interval - spare, MIN_LEASE)
