"""A cron expression as a set of wall-clock readings.

cronsim reads the fields and knows the days (`L`, `LW`, `#`, and how the two day fields combine). What it lets through or gets
wrong is settled before it sees the text; `docs/decisions/` has the list. Nothing here knows about time zones.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from cronsim import CronSim, CronSimError

from trueup.errors import ConfigError

LONGEST = 1_000  # characters; every field written out as a list needs fewer
# 29 February falls on one given weekday every 28 years, but every 40 around a century's end that is no leap year.
LONGEST_WAIT = timedelta(days=41 * 366)

_FIELDS = {  # name: (how many values, how they are written)
    "second": (60, "0-59"),
    "minute": (60, "0-59"),
    "hour": (24, "0-23"),
    "day-of-month": (31, "1-31, L or LW"),
    "month": (12, "1-12 or JAN-DEC"),
    "day-of-week": (8, "0-7 or SUN-SAT (0 and 7 are Sunday), 5L, or FRI#1 to FRI#5"),
}
_SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_DAYS = "SUN MON TUE WED THU FRI SAT"
_MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"
_NAMES = {name: at for at, name in enumerate(_DAYS.split())} | {name: at for at, name in enumerate(_MONTHS.split(), 1)}
_VALUE = r"(?:[0-9]{1,2}|[A-Z]{3})"
_STEPPED = re.compile(rf"(?P<of>\*|(?P<first>{_VALUE})(?:-(?P<last>{_VALUE}))?)(?:/(?P<step>[0-9]{{1,3}}))?")
_SPECIAL = re.compile(rf"L|LW|[0-7]L|{_VALUE}#[0-9]")
_DAY = timedelta(days=1)
_LAST_DAY = date(9998, 12, 31)
_ANY_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)  # cronsim wants a moment to start from; it is never asked for the next
_ANY_READING = _ANY_MOMENT.replace(tzinfo=None)


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
        """Raises ConfigError naming the field and the value that cannot be."""
        text = _text(written)
        fields = _fields(text)
        parsed = _parse(text, fields)
        wildcard = "*" in fields["minute"] or "*" in fields["hour"]
        hours, minutes, seconds = map(sorted, (parsed.hours, parsed.minutes, parsed.seconds))
        expression = cls(text, wildcard, hours, minutes, seconds, parsed)
        if expression.first(_ANY_READING) is None:
            raise _never_comes(text, fields)
        return expression

    def first(self, reading: datetime) -> datetime | None:
        """The first match that is not before `reading`; None when none comes within LONGEST_WAIT."""
        if reading.microsecond:
            reading = reading.replace(microsecond=0) + timedelta(seconds=1)
        day = reading.date()
        if self._matches(day) and (found := self._time_from(reading.hour, reading.minute, reading.second)):
            return datetime.combine(day, found)
        following = self._day_after(day)
        if following is None:
            return None
        return datetime.combine(following, time(self.hours[0], self.minutes[0], self.seconds[0]))

    def describe(self) -> str:
        """The expression in English, for people."""
        return self._days.explain()

    def _matches(self, day: date) -> bool:
        return day.month in self._days.months and self._days.match_day(day)

    def _day_after(self, day: date) -> date | None:
        last = min(day, _LAST_DAY - LONGEST_WAIT) + LONGEST_WAIT
        while day < last:
            day += _DAY
            if day.month not in self._days.months:
                day = _last_of_month(day)
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


def _text(written: str) -> str:
    if not isinstance(written, str):
        raise ConfigError(f'a cron expression is a text such as "30 2 * * *", not {type(written).__name__}')
    if len(written) > LONGEST:
        raise ConfigError(f"a cron expression of {len(written)} characters is too long; the most is {LONGEST}")
    # Before anything is made upper case: there are letters outside ASCII whose upper case is a plain S or I.
    if not written.isascii() or not written.replace("\t", " ").isprintable():
        raise ConfigError(f"cron expression {written!r}: only printable ASCII characters and blanks may be in it")
    return " ".join(written.split())


def _fields(text: str) -> dict[str, str]:
    """The text of each of the six fields, in upper case."""
    expanded = _SHORTHANDS.get(text.lower(), text)
    if expanded.startswith("@"):
        raise ConfigError(f"cron expression {text!r}: {_why_not(text.lower())}")
    parts = expanded.upper().split(" ")
    if len(parts) == 5:
        parts.insert(0, "0")
    if len(parts) != len(_FIELDS) or not text:
        count = len(text.split())
        raise ConfigError(
            f"cron expression {text!r} has {count} field{'' if count == 1 else 's'}; it takes 5 (minute hour day-of-month"
            " month day-of-week), or 6 with the second first; there is no field for the year"
        )
    return dict(zip(_FIELDS, parts, strict=True))


def _why_not(shorthand: str) -> str:
    if shorthand == "@reboot":
        return "there is no such moment for a fleet; enqueue a job when your service starts"
    if shorthand.startswith("@every"):
        return 'that is an interval; use Every("5m")'
    return f"the shorthands are {', '.join(_SHORTHANDS)}"


def _parse(text: str, fields: dict[str, str]) -> CronSim:
    terms = [(name, term) for name, field in fields.items() for term in field.split(",")]
    for name, term in terms:
        if fault := _misshapen(name, term):
            raise _refusal(text, fields, name, term, fault)
    try:
        return CronSim(" ".join(map(_settled, fields.values())), _ANY_MOMENT)
    except CronSimError:
        # It names the field in prose only, and not the term, so each is tried alone.
        for name, term in terms:
            if not _readable(name, term):
                raise _refusal(text, fields, name, term, _unreadable(name, term)) from None
        raise _never_comes(text, fields) from None


def _misshapen(name: str, term: str) -> str | None:
    """What is wrong with a term that cronsim might accept all the same, or None."""
    stepped = _STEPPED.fullmatch(term)
    if not stepped:
        return None if _SPECIAL.fullmatch(term) else _unreadable(name, term)
    size, _ = _FIELDS[name]
    if stepped["step"] and not 1 <= int(stepped["step"]) <= size:
        # "*/90" in the minutes would mean once an hour, which nobody who writes it has in mind.
        return f"has a step of {int(stepped['step'])}; it takes 1 to {size}"
    return None


def _unreadable(name: str, term: str) -> str:
    stepped = _STEPPED.fullmatch(term)
    if stepped and stepped["last"] and _readable(name, stepped["first"]) and _readable(name, stepped["last"]):
        return "runs backwards" + ("; at the end of a range Sunday is 7" if name == "day-of-week" else "")
    _, allowed = _FIELDS[name]
    return f"is not valid; it takes {allowed}, * for all, ranges (1-5), lists (1,3) and steps (*/2)"


def _readable(name: str, term: str) -> bool:
    try:
        CronSim(" ".join(term if field == name else "*" for field in _FIELDS), _ANY_MOMENT)
    except CronSimError:
        return False
    return True


def _settled(field: str) -> str:
    """The field in the words in which cronsim takes it as it is meant."""
    # It looks for a star at the beginning only, so "5,*" would not be taken for a wildcard, although "*,5" is.
    terms = sorted(field.split(","), key=lambda term: not term.startswith("*"))
    return ",".join(map(_settled_term, terms))


def _settled_term(term: str) -> str:
    # It takes a range of one value with a step ("5-5/10") for one that is open at its end ("5/10").
    stepped = _STEPPED.fullmatch(term)
    one_value = stepped and stepped["last"] and _value(stepped["first"]) == _value(stepped["last"])
    return stepped["first"] if stepped and one_value else term


def _value(written: str) -> int | str:
    return int(written) if written.isdigit() else _NAMES.get(written, written)


def _refusal(text: str, fields: dict[str, str], name: str, term: str, fault: str) -> ConfigError:
    where = f"{name} {fields[name]!r}" + ("" if term == fields[name] else f": {term!r}")
    return ConfigError(f"cron expression {text!r}: {where} {fault}")


def _never_comes(text: str, fields: dict[str, str]) -> ConfigError:
    days = ", ".join(f"{name} {fields[name]!r}" for name in ("day-of-month", "month", "day-of-week"))
    return ConfigError(f"cron expression {text!r} never comes: no day has {days}")


def _last_of_month(day: date) -> date:
    return (day.replace(day=28) + 4 * _DAY).replace(day=1) - _DAY
