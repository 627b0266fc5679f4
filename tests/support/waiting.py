"""Waiting for a condition instead of sleeping for it."""

from __future__ import annotations

import time
from collections.abc import Callable

PAUSE = 0.01  # short beside what is waited for, long beside the cost of asking


def wait_until(condition: Callable[[], object], what: str, *, timeout: float = 10, pause: float = PAUSE) -> None:
    """Return as soon as the condition is true. Raises TimeoutError, naming what was waited for, when it stays false."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout} s in vain until {what}")
        time.sleep(pause)


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
