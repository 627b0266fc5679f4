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
