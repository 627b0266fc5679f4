"""When a birthday's message is due. Pure: dates, zones and rules in, moments out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from trueup.schedules import yearly
from trueup.schedules.yearly import LeapDay, Yearly


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


def first_after(birthday: Yearly, moment: datetime, *, from_year: int | None = None) -> Planned:
    """The next message that is still to come; not for a year before `from_year`."""
    year = max(moment.year - 1, from_year or 0)  # on the user's clocks it may still be last year
    while True:
        planned = planned_for(birthday, year)
        if planned is not None and planned.due_at > moment:
            return planned
        year += 1


def following(birthday: Yearly, year: int) -> Planned:
    """The message after that of `year`."""
    while (planned := planned_for(birthday, year + 1)) is None:
        year += 1
    return planned
