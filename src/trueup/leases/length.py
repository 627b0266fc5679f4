"""For how long one run of a schedule may hold its lease."""

from __future__ import annotations

from datetime import timedelta

MIN_LEASE = timedelta(seconds=1)


def longest_hold(interval: timedelta) -> timedelta:
    """A little less than the time to the next tick: 15 min → 14 min, a day → 23 h; and a second at least.

    So a run that goes on for too long is over before the next one wants the lease. A 24th is taken off, and a minute at
    least; of short intervals, where a minute is much, a tenth.
    """
    spare = max(interval / 24, min(timedelta(minutes=1), interval / 10))
    return max(interval - spare, MIN_LEASE)
