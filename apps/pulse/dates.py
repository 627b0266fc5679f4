"""When the next report is due, which reminder a checkpoint gets, and whose morning it is. Pure."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum

from trueup import ConfigError
from trueup.schedules.zones import zone


class Frequency(StrEnum):
    DAILY = "DAILY"
    WEEKLY = "WEEKLY"
    BIWEEKLY = "BIWEEKLY"
    MONTHLY = "MONTHLY"


DAYS = {Frequency.DAILY: 1, Frequency.WEEKLY: 7, Frequency.BIWEEKLY: 14}


def following(frequency: Frequency, due_at: datetime, anchor_day: int) -> datetime:
    """The next time after that one. Monthly: on the anchor day, or the last one of a month that has no such day."""
    if frequency is not Frequency.MONTHLY:
        return due_at + timedelta(days=DAYS[frequency])
    year, month = (due_at.year + 1, 1) if due_at.month == 12 else (due_at.year, due_at.month + 1)
    return due_at.replace(year=year, month=month, day=min(anchor_day, monthrange(year, month)[1]))


def since(frequency: Frequency, due_at: datetime) -> datetime:
    """From when on a report is about, that is due then."""
    if frequency is not Frequency.MONTHLY:
        return due_at - timedelta(days=DAYS[frequency])
    year, month = (due_at.year - 1, 12) if due_at.month == 1 else (due_at.year, due_at.month - 1)
    return due_at.replace(year=year, month=month, day=min(due_at.day, monthrange(year, month)[1]))


def next_run(frequency: Frequency, due_at: datetime, anchor_day: int, now: datetime) -> tuple[datetime, int]:
    """The first time that is still to come, and how many before it were missed: one report makes up for all of them."""
    missed = 0
    if frequency is not Frequency.MONTHLY:
        step = timedelta(days=DAYS[frequency])
        missed = max(0, (now - due_at) // step)
        return due_at + (missed + 1) * step, missed
    due_at = following(frequency, due_at, anchor_day)
    while due_at <= now:
        due_at, missed = following(frequency, due_at, anchor_day), missed + 1
    return due_at, missed


class Reminder(StrEnum):
    THREE_DAYS = "THREE_DAYS"
    ONE_DAY = "ONE_DAY"
    DAY_OF = "DAY_OF"


# How many days are left, at least and at most. Two days before, the reminder for three is late, and better than none.
REMINDED = {Reminder.THREE_DAYS: (2, 3), Reminder.ONE_DAY: (1, 1), Reminder.DAY_OF: (0, 0)}


def reminder(due_on: date, today: date) -> Reminder | None:
    left = (due_on - today).days
    return next((kind for kind, (least, most) in REMINDED.items() if least <= left <= most), None)


@dataclass(frozen=True)
class Clock:
    """What the clocks of a zone show."""

    timezone: str
    day: date
    hour: int


def clocks(timezones: Iterable[str], now: datetime) -> tuple[list[Clock], list[str]]:
    """What each zone's clocks show, and which of them are no zones.

    An hour that the clocks skip has come when they show a later one; one that they show twice comes on one and the same day.
    """
    shown, unknown = [], []
    for name in timezones:
        try:
            there = now.astimezone(zone(name))
        except (ConfigError, OverflowError):
            unknown.append(name)
        else:
            shown.append(Clock(name, there.date(), there.hour))
    return shown, unknown
