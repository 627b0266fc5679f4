"""The interface of every kind of schedule, and the two kinds that need no calendar; `cron.py` has the third."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from trueup.durations import Duration, duration_of, format_duration
from trueup.errors import ConfigError
from trueup.options import wrong

MIN_INTERVAL = timedelta(seconds=1)  # as cron: each tick is a row and a job
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class When(ABC):
    """An unchanging rule that says at which moments ticks are due."""

    __slots__ = ()

    @abstractmethod
    def next_after(self, t: datetime) -> datetime | None:
        """The first tick strictly after `t`, as an aware datetime in UTC; None when there is no other.

        The answer is the same for all moments from one tick up to the next. A `t` without a time zone is a ConfigError.
        """

    def between(self, start: datetime, end: datetime, limit: int | None = None) -> Iterator[datetime]:
        """The ticks after `start` up to and including `end`, oldest first, at most `limit` of them.

        Ticks are computed lazily, so a long span costs nothing until it is walked.
        """
        end = in_utc(end, "end")
        tick = self.next_after(start)
        found = 0
        while tick is not None and tick <= end and found != limit:
            yield tick
            found += 1
            tick = self.next_after(tick)


def in_utc(moment: datetime, name: str) -> datetime:
    """The same moment in UTC. Raises ConfigError, naming it, when it has no time zone."""
    if moment.tzinfo is UTC:
        return moment
    if moment.utcoffset() is None:
        raise ConfigError(f"{name}={moment.isoformat()} has no time zone; give an aware datetime")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ConfigError(f"{name}={moment.isoformat()} is outside the calendar when taken in UTC") from None


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


@dataclass(frozen=True, slots=True)
class Once(When):
    """One tick at `at`, and never another."""

    at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", in_utc(self.at, "at"))

    def next_after(self, t: datetime) -> datetime | None:
        return self.at if self.at > in_utc(t, "t") else None

    def describe(self) -> str:
        """The moment in words, for people."""
        return f"Once at {self.at.isoformat()}"
