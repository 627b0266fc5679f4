"""Waiting for a condition instead of sleeping for it."""

from __future__ import annotations

import time
from collections.abc import Callable

PAUSE = 0.01  # seconds between two questions: short beside what is waited for
COST = 10  # times as long as the last question took, at least: a condition that connects to the database costs milliseconds
MAX_PAUSE = 0.1


def wait_until(condition: Callable[[], object], what: str, *, timeout: float = 10, pause: float = PAUSE) -> None:
    """Return as soon as the condition is true. Raises TimeoutError, naming what was waited for, when it stays false."""
    deadline = time.monotonic() + timeout
    while True:
        asked = time.monotonic()
        if condition():
            return
        answered = time.monotonic()
        if answered > deadline:
            raise TimeoutError(f"waited {timeout} s in vain until {what}")
        time.sleep(max(pause, min(COST * (answered - asked), MAX_PAUSE)))


def wait_drained(left: Callable[[], int], what: str, *, stall: float, most: float, pause: float = 0.2) -> None:
    """Return as soon as nothing is left. How long that takes depends on the machine, so what counts is that it goes on.

    Raises TimeoutError when less was never left for `stall` seconds, or after `most` seconds in all.
    """
    began = at = time.monotonic()
    least = left()
    while least:
        time.sleep(pause)
        now, remaining = time.monotonic(), left()
        if remaining < least:
            least, at = remaining, now
        elif now - at > stall or now - began > most:
            raise TimeoutError(f"{what}: {remaining} are left after {now - began:.0f} s, for {now - at:.0f} s no fewer")
