"""When a birthday's message is due. Pure: dates, zones and rules in, moments out."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from trueup import ConfigError
from trueup.schedules import yearly
from trueup.schedules.yearly import LeapDay, Yearly
from trueup.schedules.zones import tz_version

LAST_YEAR = 9000  # a year beyond it is a slip
SAME_DAY = timedelta(days=1)  # on some clock: a birthday that is longer past is not congratulated any more


@dataclass(frozen=True)
class Rules:
    """At this time on the user's own clocks; born on 29 February, on the day before, the day after, or not at all in other years."""

    at: str = "09:00"
    leap_day: LeapDay = "feb28"

    def birthday(self, born: date, timezone: str) -> Yearly:
        """Raises ConfigError for a zone that does not exist."""
        return yearly(born.month, born.day, self.at, timezone, self.leap_day)

    @property
    def version(self) -> str:
        """Whatever decides when messages are due, besides the user: what was planned by another version is planned anew."""
        return f"at {self.at}, {self.leap_day}, tzdata {tz_version()}"


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


def planned_anew(
    birthday: Yearly, year: int, now: datetime, *, taken: Collection[int], corrected: bool = False
) -> Planned:
    """The message of `year`, which is not being sent yet, by other clocks, other rules or a `corrected` date.

    It keeps its year, and is due at once if the new clocks are past it: no move loses a message. There may be an earlier one
    still to come, in a year that has none (`taken` are those that have): a user who was entered with the wrong zone, and for
    whom it was too late today by that. A date that was corrected to one that has passed is next year's.
    """
    kept = planned_for(birthday, year)
    if kept is not None and corrected and has_passed(kept, now):
        kept = None
    first = first_after(birthday, now, without=taken)
    return first if kept is None or first.year < kept.year else kept


def has_passed(planned: Planned, now: datetime) -> bool:
    return now - planned.due_at > SAME_DAY


def following(birthday: Yearly, year: int) -> Planned:
    """The message after that of `year`."""
    return next(_messages(birthday, year + 1))


def _messages(birthday: Yearly, from_year: int) -> Iterator[Planned]:
    for year in range(from_year, LAST_YEAR):
        planned = planned_for(birthday, year)
        if planned is not None:
            yield planned
    raise ConfigError(f"messages are planned up to {LAST_YEAR}")
