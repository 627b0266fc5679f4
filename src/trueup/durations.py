"""Durations and rates as people write them: "10m", "1h30m", "500ms", "PT15M" and "50/s", "1000/m"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from trueup.errors import ConfigError
from trueup.options import naming, shown

Duration: TypeAlias = timedelta | str

# 100 years: more is a mistake, and dates computed with it could leave Python's calendar.
MAX_DURATION = timedelta(days=36525)

_UNITS = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
    "us": timedelta(microseconds=1),
}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
# Largest unit first and each at most once, so that "30m1h" and "1m1m" are refused rather than guessed at.
_DURATION = re.compile("".join(rf"(?:({_NUMBER}){unit})?" for unit in _UNITS))
# ISO 8601, with days of 24 hours. Years and months have no fixed length.
_ISO_NUMBER = r"[0-9]+(?:[.,][0-9]+)?"
_ISO = re.compile(
    rf"P(?=[0-9T])(?:({_ISO_NUMBER})W)?(?:({_ISO_NUMBER})D)?"
    rf"(?:T(?=[0-9])(?:({_ISO_NUMBER})H)?(?:({_ISO_NUMBER})M)?(?:({_ISO_NUMBER})S)?)?"
)
_ISO_CALENDAR = re.compile(rf"P{_ISO_NUMBER}[YM].*")
_BARE_NUMBER = re.compile(rf"[+-]?{_NUMBER}")
_DURATION_EXAMPLE = 'write it like "10m", "1h30m" or "500ms"'

_RATE = re.compile(r"([0-9]{1,9})/(.+)")
_RATE_EXAMPLE = 'write it like "50/s", "1000/m" or "100/10s"'


def parse_duration(value: object) -> timedelta:
    """The duration meant by a `timedelta` or a text such as "1h30m" or ISO 8601's "PT1H30M", to the nearest microsecond.

    Takes any object, because settings come from files and the environment; anything but a duration between
    zero and MAX_DURATION raises ConfigError. A bare number is refused: its unit would be a guess.
    """
    if isinstance(value, timedelta):
        return _in_range(value, format_duration(value))
    if isinstance(value, int | float) or (isinstance(value, str) and _BARE_NUMBER.fullmatch(value)):
        raise ConfigError(f"{shown(value)} has no unit; {_DURATION_EXAMPLE}")
    match = (_DURATION.fullmatch(value) or _ISO.fullmatch(value)) if isinstance(value, str) and value else None
    if match is None:
        if isinstance(value, str) and _ISO_CALENDAR.fullmatch(value):
            raise ConfigError(f"{shown(value)} has years or months, whose length varies; give weeks, days or hours")
        raise ConfigError(f"{shown(value)} is not a duration; {_DURATION_EXAMPLE}")
    try:
        parts = [
            unit * float(number.replace(",", "."))
            for unit, number in zip(_UNITS.values(), match.groups(), strict=False)
            if number
        ]
        return _in_range(sum(parts, timedelta()), match[0])
    except OverflowError:
        raise ConfigError(_too_long(match[0])) from None


def duration_of(option: str, value: object) -> timedelta:
    """The duration that an option is given; an error names the option, too."""
    with naming(option):
        return parse_duration(value)


def _in_range(duration: timedelta, written: str) -> timedelta:
    if duration < timedelta():
        raise ConfigError(f"{written!r} is negative; {_DURATION_EXAMPLE}")
    if duration > MAX_DURATION:
        raise ConfigError(_too_long(written))
    return duration


def _too_long(written: str) -> str:
    return f"{shown(written)} is more than 100 years; {_DURATION_EXAMPLE}"


def format_duration(duration: timedelta) -> str:
    """The short form that `parse_duration` reads back as the same duration: "1h30m", "500ms", "0s".

    Weeks are written as days. A negative duration is shown with a leading minus, which does not parse.
    """
    if duration < timedelta():
        return f"-{format_duration(-duration)}"
    written = ""
    for unit, size in _UNITS.items():
        if unit == "w":
            continue
        count, duration = divmod(duration, size)
        if count:
            written += f"{count}{unit}"
    return written or "0s"


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` in each `per`, evenly spaced; after a quiet time up to `burst` may start at once.

    Raises ConfigError unless 1 <= burst <= count and `per` leaves at least a microsecond for each.
    """

    count: int
    per: timedelta
    burst: int = 1

    def __post_init__(self) -> None:
        for name in ("count", "burst"):
            if isinstance(getattr(self, name), bool) or not isinstance(getattr(self, name), int):
                raise ConfigError(f"Rate({name}={shown(getattr(self, name))}): a whole number is needed")
        if not isinstance(self.per, timedelta):
            raise ConfigError(f"Rate(per={shown(self.per)}): a timedelta is needed, or {_RATE_EXAMPLE}")
        duration_of("Rate: per", self.per)
        if self.count < 1 or self.per <= timedelta():
            raise ConfigError(f"the rate {self} allows no start (count={self.count}); {_RATE_EXAMPLE}")
        if self.count > self.per // timedelta.resolution:
            raise ConfigError(
                f"the rate {self} is faster than one per microsecond (count={self.count}); {_RATE_EXAMPLE}"
            )
        if not 1 <= self.burst <= self.count:
            raise ConfigError(f"burst={self.burst} does not fit the rate; it must be from 1 to {self.count}")

    @classmethod
    def parse(cls, value: object) -> Rate:
        """The rate meant by a text such as "50/s" or "100/10s"; a Rate is returned as it is. Raises ConfigError."""
        if isinstance(value, Rate):
            return value
        match = _RATE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ConfigError(f"{shown(value)} is not a rate; {_RATE_EXAMPLE}")
        count, per = match.groups()
        try:
            return cls(int(count), _UNITS[per] if per in _UNITS else parse_duration(per))
        except ConfigError as error:
            raise ConfigError(f"{shown(value)} is not a rate: {error}") from None

    @property
    def spacing(self) -> timedelta:
        """The time between two of them when they come evenly."""
        # Rounded up: three a second at 333,333 µs apart would be a little more than three a second.
        return -(-self.per // self.count)

    def __str__(self) -> str:
        """As `parse` reads it ("50/s"), with the burst added for people when there is one."""
        per = format_duration(self.per)
        unit = per[1:] if per[1:] in _UNITS else per
        return f"{self.count}/{unit}" + (f" (burst {self.burst})" if self.burst > 1 else "")
