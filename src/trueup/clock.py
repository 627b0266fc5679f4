"""Time as trueup sees it.

The database's clock decides everything that is stored; `Clock.now()` is what statements get as `now`, and it is None
in production, which makes them ask PostgreSQL. Tests pass a time. The process itself only measures durations, with a
monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import Protocol

deadline: ContextVar[float | None] = ContextVar("trueup_deadline", default=None)
"""When the time of the handler that runs in this context is up, by `elapsed`; None without a timeout."""


class Clock(Protocol):
    def now(self) -> datetime | None:
        """The time that statements take as now; None leaves it to the database."""
        ...

    def elapsed(self) -> float:
        """Seconds since some fixed moment, for deadlines within this process."""
        ...


class DatabaseClock:
    """The clock of production: moments come from PostgreSQL."""

    def now(self) -> datetime | None:
        return None

    def elapsed(self) -> float:
        return elapsed()


# Unlike CLOCK_MONOTONIC, CLOCK_BOOTTIME goes on while the machine is suspended: a laptop or VM that slept past its lease must know it.
elapsed: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
