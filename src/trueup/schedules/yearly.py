"""One occurrence a year, at a time of day on the clocks of a zone: birthdays, renewals, tax days."""

from __future__ import annotations

import calendar
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

from trueup.errors import ConfigError
from trueup.schedules.offsets import EARLIEST, LAST_YEAR, first_showing
from trueup.schedules.when import When, in_utc
from trueup.schedules.zones import zone

LeapDay: TypeAlias = Literal["feb28", "mar1", "skip"]

_LEAP_YEAR = 2000
_MAX_WAIT = 9  # years: from the end of 1896 to 29 February 1904, and the year in which the search begins


@dataclass(frozen=True, slots=True)
class Yearly(When):
    """A yearly schedule; `yearly` makes it."""

    month: int
    day: int
    at: time
    tz: str
    leap_day: LeapDay
    _zone: ZoneInfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_zone", zone(self.tz))

    def __reduce__(self) -> tuple[type[Yearly], tuple[int, int, time, str, LeapDay]]:
        # A zone that was read from a file cannot be pickled.
        return Yearly, (self.month, self.day, self.at, self.tz, self.leap_day)

    def occurrence(self, year: int) -> datetime | None:
        """The moment in UTC at which the zone's clocks first show that time of that year's day, or first jump over it.

        So a time in a gap comes right after it, a repeated time comes the first time, and a day that a zone left out
        (30 December 2011 in Pacific/Apia) is not lost. None for 29 February in other years with `leap_day="skip"`, and for
        years the calendar does not have.
        """
        if not EARLIEST.year <= year <= LAST_YEAR:
            return None
        day = self._day_of(year)
        return None if day is None else first_showing(self._zone, datetime.combine(day, self.at))

    def next_after(self, t: datetime) -> datetime | None:
        t = in_utc(t, "t")
        # The year on the zone's clocks may be one behind that of UTC.
        first = max(t.year - 1, EARLIEST.year)
        for year in range(first, first + 1 + _MAX_WAIT):
            occurrence = self.occurrence(year)
            if occurrence is not None and occurrence > t:
                return occurrence
        return None

    def _day_of(self, year: int) -> date | None:
        if (self.month, self.day) != (2, 29) or calendar.isleap(year):
            return date(year, self.month, self.day)
        match self.leap_day:
            case "feb28":
                return date(year, 2, 28)
            case "mar1":
                return date(year, 3, 1)
            case "skip":
                return None


def yearly(month: int, day: int, at: time | str, tz: str, leap_day: LeapDay = "feb28") -> Yearly:
    """Every year on that day at that time (`"09:00"` or a `time`) on the clocks of `tz`.

    29 February is kept on 28 February or 1 March in other years, or left out, as `leap_day` says. Raises ConfigError for a day
    that no year has, an invalid time, or an unknown zone.
    """
    try:
        date(_LEAP_YEAR, month, day)
    except (TypeError, ValueError):
        raise ConfigError(f"yearly: month={month!r}, day={day!r} is a day that does not exist in any year") from None
    if leap_day not in get_args(LeapDay):
        raise ConfigError(f'yearly: leap_day={leap_day!r}: it is "feb28", "mar1" or "skip"')
    return Yearly(month, day, _time_of_day(at), tz, leap_day)


def _time_of_day(at: time | str) -> time:
    try:
        found = at if isinstance(at, time) else time.fromisoformat(at)
    except (TypeError, ValueError):
        raise ConfigError(f'yearly: at={at!r} is not a time of day; write it like "09:00"') from None
    if found.tzinfo is not None:
        raise ConfigError(f"yearly: at={at!r} has its own time zone; give that as tz=")
    return found.replace(fold=0)
