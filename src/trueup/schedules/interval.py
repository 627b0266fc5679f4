"""Schedules at a fixed interval of real time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from trueup.durations import Duration, duration_of, format_duration
from trueup.errors import ConfigError
from trueup.options import wrong
from trueup.schedules.when import When, in_utc

MIN_INTERVAL = timedelta(seconds=1)  # as cron: each tick is a row and a job
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, init=False)
class Every(When):
    """Ticks at `anchor` plus any whole number of intervals, before the anchor as well as after it.

    The anchor is the Unix epoch unless one is given, so all instances of all releases agree on the ticks, a restart moves
    none of them, and intervals that divide a day fall on round times of UTC. Real time is counted: `Every("24h")` moves by
    an hour on the wall clock when daylight saving begins, which `Cron` does not. Raises ConfigError for less than a second.
    """

    interval: timedelta
    anchor: datetime

    def __init__(self, interval: Duration, anchor: datetime | None = None) -> None:
        parsed = duration_of("interval", interval)
        if parsed < MIN_INTERVAL:
            raise ConfigError(
                f"every {format_duration(parsed)} is too often; the minimum is {format_duration(MIN_INTERVAL)}"
            )
        if anchor is not None and not isinstance(anchor, datetime):
            raise wrong("anchor", anchor, "an aware datetime")
        object.__setattr__(self, "interval", parsed)
        object.__setattr__(self, "anchor", EPOCH if anchor is None else in_utc(anchor, "anchor"))

    def next_after(self, t: datetime) -> datetime | None:
        passed = (in_utc(t, "t") - self.anchor) // self.interval
        try:
            return self.anchor + (passed + 1) * self.interval
        except OverflowError:
            return None

    def describe(self) -> str:
        """The interval in words, for people."""
        phase = "" if self.anchor == EPOCH else f", counted from {self.anchor.isoformat()}"
        return f"Every {format_duration(self.interval)}{phase}"
