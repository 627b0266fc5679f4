"""Cron schedules in a time zone.

Clock changes follow the rule of Debian's cron (`dst="debian"`):

- A schedule at fixed times is due when its zone's clocks first show that time, or first jump over it. A skipped time
  is due once, right after the gap (several in one gap are one tick), and a time that is shown twice is due the first time.
- A schedule with a star in the minute or the hour follows real time: it is due whenever the clocks show a matching time,
  so not in a gap, and twice in a fold.

With `dst="literal"` all schedules follow the second rule. Debian's cron takes a change of more than three hours for a
correction of the clock; the changes of a tz database are never that, so here there is no such limit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

from cronsim import CronSim

from trueup.errors import ConfigError
from trueup.schedules.fields import clean, never_comes, parse_fields, split_fields
from trueup.schedules.offsets import EARLIEST, LAST_YEAR, MICROSECOND, first_showing, reached, stretches
from trueup.schedules.when import When, in_utc
from trueup.schedules.zones import zone

# 29 February falls on one given weekday every 28 years, but every 40 around a century's end that is no leap year.
MAX_WAIT = timedelta(days=41 * 366)

_DAY = timedelta(days=1)
_LAST_DAY = date(9998, 12, 31)
# An expression that matches at all does so within MAX_WAIT of any reading.
_ANY_READING = datetime.combine(date(2000, 1, 1), time())


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """The readings of the clock that match, in no zone yet: whole seconds of days that exist in the calendar."""

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


Dst: TypeAlias = Literal["debian", "literal"]

GIVEN_UP_AFTER = timedelta(days=36525)  # a hundred years without a tick: a time that is always in a gap
# Fixed, so that the day of the declaration does not decide what is accepted.
_TRIED_FROM = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cron(When):
    """Ticks at the times a cron expression matches on the clocks of a zone. Equal when written the same way.

    There are ticks from 1800 to 9998; earlier times count as its beginning.
    Raises ConfigError for an expression that is wrong (naming the field), that never comes, or for an unknown zone.
    """

    expr: str
    tz: str = "UTC"
    dst: Dst = "debian"
    _expression: Expression = field(init=False, repr=False, compare=False)
    _zone: ZoneInfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.dst not in get_args(Dst):
            raise ConfigError(f'dst={self.dst!r}: it is "debian" or "literal"')
        expression = Expression.parse(self.expr)
        object.__setattr__(self, "expr", expression.text)
        object.__setattr__(self, "_expression", expression)
        object.__setattr__(self, "_zone", zone(self.tz))
        if self.next_after(_TRIED_FROM) is None:
            raise ConfigError(
                f"cron expression {self.expr!r} never matches in {self.tz}: the clocks always skip its time"
            )

    def __reduce__(self) -> tuple[type[Cron], tuple[str, str, Dst]]:
        # A zone that was read from a file cannot be pickled.
        return Cron, (self.expr, self.tz, self.dst)

    @property
    def fixed(self) -> bool:
        """Whether skipped and repeated times have exactly one tick: neither wildcard nor literal."""
        return self.dst == "debian" and not self._expression.wildcard

    @property
    def expression(self) -> Expression:
        return self._expression

    @property
    def zone(self) -> ZoneInfo:
        return self._zone

    def next_after(self, t: datetime) -> datetime | None:
        t = max(in_utc(t, "t"), EARLIEST)
        if t.year > LAST_YEAR:
            return None
        return self._next_fixed(t) if self.fixed else self._next_shown(t)

    def describe(self) -> str:
        """The expression in English, for people."""
        return self._expression.describe()

    def _next_fixed(self, t: datetime) -> datetime | None:
        # All readings up to the furthest one have had their tick, also those that the clocks show a second time.
        reading = self._expression.first(reached(self._zone, t) + MICROSECOND)
        return reading and first_showing(self._zone, reading)

    def _next_shown(self, t: datetime) -> datetime | None:
        searched_from: datetime | None = None
        match: datetime | None = None
        for stretch in stretches(self._zone, t):
            begin = max(stretch.begin, t + MICROSECOND)
            if begin - t > GIVEN_UP_AFTER:
                return None
            reading = stretch.reading(begin)
            # A match that is still ahead stays valid, unless clocks went back to before the start of the search.
            if searched_from is None or match is None or not searched_from <= reading <= match:
                searched_from, match = reading, self._expression.first(reading)
            if match is None:
                return None
            due = match.replace(tzinfo=UTC) - stretch.offset
            if due < stretch.end:
                return due
        return None
