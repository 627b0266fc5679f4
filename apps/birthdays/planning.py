"""When a birthday's message is due. Pure: dates, zones and rules in, moments out."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, datetime

from trueup import ConfigError
from trueup.schedules import yearly
from trueup.schedules.yearly import LeapDay, Yearly

LAST_YEAR = 9000  # a year beyond it is a slip


@dataclass(frozen=True)
class Rules:
    """At this time on the user's own clocks; born on 29 February, on the day before, the day after, or not at all in other years."""

    at: str = "09:00"
    leap_day: LeapDay = "feb28"

    def birthday(self, born: date, timezone: str) -> Yearly:
        """Raises ConfigError for a zone that does not exist."""
        return yearly(born.month, born.day, self.at, timezone, self.leap_day)


@dataclass(frozen=True)
class Planned:
    year: int
    due_at: datetime


def planned_for(birthday: Yearly, year: int) -> Planned | None:
    """The message of that year; None when there is none (29 February, left out)."""
    due_at = birthday.occurrence(year)
    return None if due_at is None else Planned(year, due_at)


def first_after(birthday: Yearly, moment: datetime, *, without: Collection[int] = ()) -> Planned:
    """The next message that is still to come, leaving out these years."""
    from_last_year = _messages(birthday, moment.year - 1)  # on the user's clocks it may still be last year
    return next(planned for planned in from_last_year if planned.due_at > moment and planned.year not in without)


def following(birthday: Yearly, year: int) -> Planned:
    """The message after that of `year`."""
    return next(_messages(birthday, year + 1))


def _messages(birthday: Yearly, from_year: int) -> Iterator[Planned]:
    for year in range(from_year, LAST_YEAR):
        planned = planned_for(birthday, year)
        if planned is not None:
            yield planned
    raise ConfigError(f"nobody plans for {LAST_YEAR}")
