"""Spreads out the runs of ticks that are due at the same moment."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b

_BYTES = 8


def delay(schedule: str, due_at: datetime, jitter: timedelta) -> timedelta:
    """The delay of the run after `due_at`: at least zero, less than `jitter`.

    Drawn from the schedule's name and the tick, so every planner draws the same, and a tick that is planned again keeps it.
    The tick itself, and its lateness, are not moved.
    """
    digest = blake2b(f"{schedule}\0{due_at.timestamp()}".encode(), digest_size=_BYTES).digest()
    microseconds = jitter // timedelta.resolution * int.from_bytes(digest) >> 8 * _BYTES
    return timedelta(microseconds=microseconds)
