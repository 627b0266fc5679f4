"""A cron expression as a set of wall-clock readings, walked from one to the next. Nothing here knows about time zones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from cronsim import CronSim

from trueup.schedules.fields import clean, never_comes, parse_fields, split_fields

# 29 February falls on one given weekday every 28 years, but every 40 around a century's end that is no leap year.
MAX_WAIT = timedelta(days=41 * 366)

_DAY = timedelta(days=1)
_LAST_DAY = date(9998, 12, 31)
# An expression that matches at all does so within MAX_WAIT of any reading.
_ANY_READING = datetime.combine(date(2000, 1, 1), time())


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """The readings that match: whole seconds of days that exist in the calendar."""

    text: str  # as it was written, with single blanks
    wildcard: bool  # whether there is a star in the minute or the hour
    hours: Sequence[int]
    minutes: Sequence[int]
    seconds: Sequence[int]
    _days: CronSim

    @classmethod
    def parse(cls, written: str) -> Expression:
        """Raises ConfigError that names the field and the invalid value."""
        text = clean(written)
        fields = split_fields(text)
        parsed = parse_fields(text, fields)
        wildcard = "*" in fields["minute"] or "*" in fields["hour"]
        hours, minutes, seconds = map(sorted, (parsed.hours, parsed.minutes, parsed.seconds))
        expression = cls(text, wildcard, hours, minutes, seconds, parsed)
        if expression.first(_ANY_READING) is None:
            raise never_comes(text, fields)
        return expression

    def first(self, reading: datetime) -> datetime | None:
        """The first match that is not before `reading`; None when none comes within MAX_WAIT."""
        if reading.microsecond:
            reading = reading.replace(microsecond=0) + timedelta(seconds=1)
        day = reading.date()
        matches = day.month in self._days.months and self._days.match_day(day)
        if matches and (found := self._time_from(reading.hour, reading.minute, reading.second)):
            return datetime.combine(day, found)
        following = self._day_after(day)
        if following is None:
            return None
        return datetime.combine(following, time(self.hours[0], self.minutes[0], self.seconds[0]))

    def describe(self) -> str:
        """The expression in English, for people."""
        return self._days.explain()

    def _day_after(self, day: date) -> date | None:
        last = min(day, _LAST_DAY - MAX_WAIT) + MAX_WAIT
        while day < last:
            day += _DAY
            if day.month not in self._days.months:
                day = (day.replace(day=28) + 4 * _DAY).replace(day=1) - _DAY  # the last of this month
            elif self._days.match_day(day):
                return day
        return None

    def _time_from(self, hour: int, minute: int, second: int) -> time | None:
        for match in self.hours[bisect_left(self.hours, hour) :]:
            if match > hour:
                return time(match, self.minutes[0], self.seconds[0])
            if later := self._minute_from(minute, second):
                return time(match, *later)
        return None

    def _minute_from(self, minute: int, second: int) -> tuple[int, int] | None:
        for match in self.minutes[bisect_left(self.minutes, minute) :]:
            if match > minute:
                return match, self.seconds[0]
            at = bisect_left(self.seconds, second)
            if at < len(self.seconds):
                return match, self.seconds[at]
        return None
