"""Cron by brute force: walk through real time and look at the clock on the wall.

Written from the rule in words and sharing nothing with `trueup.schedules` but the zone it is given. All it asks of the zone
is what its clocks show at a moment of UTC.

The rule, from Debian's crontab(5): when clocks are moved forward, jobs that would have run in the time that was skipped are run
soon after the change; when they are moved back, jobs in the repeated time are not run again. Only jobs at a particular time
are affected; those with a star in the hour or the minute run by the new time at once.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache

DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WARM_UP = timedelta(days=2)  # long enough to have seen the first pass of any fold: the longest lasted 23 hours


class Oracle:
    def __init__(self, expr: str, zone: tzinfo, dst: str = "debian") -> None:
        parts = expr.upper().split()
        self.second, self.minute, self.hour, self.day, self.month, self.weekday = (
            parts if len(parts) == 6 else ["0", *parts]
        )
        self.step = timedelta(seconds=1) if len(parts) == 6 else timedelta(minutes=1)
        self.zone = zone
        self.days: dict[date, bool] = {}
        self.at_fixed_times = dst == "debian" and "*" not in self.minute and "*" not in self.hour

    def ticks(self, start: datetime, end: datetime) -> list[datetime]:
        """The ticks after `start` up to and including `end`."""
        return [tick for tick in self._scan(start - WARM_UP, end) if start < tick]

    def next_after(self, t: datetime, within: timedelta) -> datetime | None:
        return next(iter(self.ticks(t, t + within)), None)

    def _scan(self, start: datetime, end: datetime) -> Iterator[datetime]:
        moment = start.replace(second=0, microsecond=0)
        before: datetime | None = None
        seen: set[datetime] = set()
        while moment <= end:
            shown = self.clock(moment)
            step = (
                timedelta(seconds=1) if shown.second else self.step
            )  # odd offsets: clocks turn their minute at another time
            if not self.at_fixed_times:
                if self.matches(shown):
                    yield moment
            elif self.jumped_over_a_match(before, shown, step) or (self.matches(shown) and shown not in seen):
                yield moment
            seen.add(shown)
            before = shown
            moment += step

    def clock(self, moment: datetime) -> datetime:
        return moment.astimezone(self.zone).replace(tzinfo=None, fold=0)

    def jumped_over_a_match(self, before: datetime | None, shown: datetime, step: timedelta) -> bool:
        if before is None:
            return False
        skipped = before + step
        while skipped < shown:
            if self.matches(skipped):
                return True
            skipped += step
        return False

    def matches(self, shown: datetime) -> bool:
        return (
            in_field(self.second, shown.second, 59)
            and in_field(self.minute, shown.minute, 59)
            and in_field(self.hour, shown.hour, 23)
            and in_field(self.month, shown.month, 12, first=1, names=MONTHS)
            and self.matches_day(shown.date())
        )

    def matches_day(self, day: date) -> bool:
        if day not in self.days:
            self.days[day] = self.is_day(day)
        return self.days[day]

    def is_day(self, day: date) -> bool:
        by_date = any(is_date(term, day) for term in self.day.split(","))
        by_weekday = any(is_weekday(term, day) for term in self.weekday.split(","))
        both = "*" in self.day or "*" in self.weekday
        return by_date and by_weekday if both else by_date or by_weekday


def is_date(term: str, day: date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    if term == "L":
        return day.day == last
    if term == "LW":
        weekdays = [number for number in range(1, last + 1) if date(day.year, day.month, number).weekday() < 5]
        return day.day == weekdays[-1]
    return in_field(term, day.day, 31, first=1)


def is_weekday(term: str, day: date) -> bool:
    number = day.isoweekday() % 7
    last = calendar.monthrange(day.year, day.month)[1]
    if term.endswith("L"):
        return int(term[:-1]) % 7 == number and day.day > last - 7
    if "#" in term:
        wanted, nth = term.split("#")
        return value(wanted, DAYS) % 7 == number and (day.day - 1) // 7 + 1 == int(nth)
    return in_field(term, number, 7, names=DAYS) or (number == 0 and in_field(term, 7, 7, names=DAYS))


@cache
def in_field(field: str, number: int, last: int, first: int = 0, names: tuple[str, ...] = ()) -> bool:
    return any(in_term(term, number, last, first, names) for term in field.split(","))


def in_term(term: str, number: int, last: int, first: int, names: tuple[str, ...]) -> bool:
    span, _, step = term.partition("/")
    low, _, high = span.partition("-")
    if span == "*":
        begin, end = first, last
    else:
        begin = value(low, names)
        end = value(high, names) if high else (last if step else begin)
    return begin <= number <= end and (number - begin) % int(step or 1) == 0


def value(written: str, names: tuple[str, ...]) -> int:
    return names.index(written) if written in names else int(written)


def clock_changes(zone: tzinfo, first_year: int, last_year: int) -> list[datetime]:
    """The first whole minute after each change of the zone's clocks."""
    found = []
    moment = datetime(first_year, 1, 1, tzinfo=UTC)
    while moment.year <= last_year:
        following = moment + timedelta(days=3)
        if moment.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            found.append(narrowed(zone, moment, following))
        moment = following
    return found


def narrowed(zone: tzinfo, before: datetime, after: datetime) -> datetime:
    while after - before > timedelta(minutes=1):
        middle = before + (after - before) / 2
        middle = middle.replace(second=0, microsecond=0)
        if middle.astimezone(zone).utcoffset() == before.astimezone(zone).utcoffset():
            before = middle
        else:
            after = middle
    return after
