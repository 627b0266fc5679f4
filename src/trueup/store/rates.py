"""Rate limits that calls share across the fleet: `await app.rate("provider", "1/s")`.

A row per rate limit says when the next call may start; taking a slot is one statement, and slots are evenly spaced. A process
that is late for its slot (a busy loop, a suspended machine) takes another one: otherwise its call would start together with the
next one. A process that dies has only wasted its slot.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from trueup.clock import elapsed
from trueup.durations import Duration, Rate, duration_of
from trueup.errors import ConfigError, RateExceeded
from trueup.jobs.names import checked_name
from trueup.store.db.blocking import SyncPool
from trueup.store.db.load import Statements
from trueup.store.db.pool import Pool
from trueup.store.db.steps import Ask, Steps, drive, drive_sync

MAX_WAIT = timedelta(hours=1)
LATE = 0.05  # seconds, or a tenth of the spacing if that is longer: a call that is later than this takes another slot


class Rates:
    def __init__(self, statements: Statements, pool: Pool, sync_pool: SyncPool) -> None:
        self._statements = statements
        self._clock = statements.clock
        self._pool = pool
        self._sync_pool = sync_pool

    async def wait(self, name: str, rate: str | Rate, wait: Duration) -> None:
        """Return when the next call may begin. Raises RateExceeded when that is not within `wait`."""
        rate, until = _checked(name, rate), elapsed() + _seconds(name, wait)
        while True:
            async with self._pool.use() as connection:
                seconds = await drive(self._take(name, rate, until), connection)
            begins = elapsed() + seconds
            await asyncio.sleep(seconds)
            if _in_time(begins, rate):
                return

    def wait_sync(self, name: str, rate: str | Rate, wait: Duration) -> None:
        rate, until = _checked(name, rate), elapsed() + _seconds(name, wait)
        while True:
            with self._sync_pool.use() as connection:
                seconds = drive_sync(self._take(name, rate, until), connection)
            begins = elapsed() + seconds
            time.sleep(seconds)
            if _in_time(begins, rate):
                return

    def _take(self, name: str, rate: Rate, until: float) -> Steps[float]:
        spacing, left = rate.spacing.total_seconds(), max(until - elapsed(), 0.0)
        params = {"now": self._clock.now(), "name": name, "spacing": spacing}
        limits = {"wait": left, "max_wait": MAX_WAIT.total_seconds()}
        rows = yield Ask(self._statements["rates/take"], {**params, **limits}, often=True)
        if rows:
            return float(rows[0][0])
        rows = yield Ask(self._statements["rates/ahead"], {"now": self._clock.now(), "name": name})
        raise RateExceeded(name, str(rate), timedelta(seconds=max(rows[0][0] if rows else 0.0, 0.001)))


def _in_time(begins: float, rate: Rate) -> bool:
    return elapsed() - begins <= max(LATE, rate.spacing.total_seconds() / 10)


def _checked(name: str, rate: str | Rate) -> Rate:
    checked_name("rate", name)
    parsed = Rate.parse(rate)
    if parsed.burst > 1:
        raise ConfigError(f"rate {name!r}: calls are evenly spaced; only the rate= of jobs has a burst")
    return parsed


def _seconds(name: str, wait: Duration) -> float:
    parsed = duration_of("rate: wait", wait)
    if parsed > MAX_WAIT:
        raise ConfigError(f"rate {name!r}: wait={wait!r}: the maximum is an hour; postpone the job or row instead")
    return parsed.total_seconds()
