"""Made-up users all over the world, for trying things out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

# fmt: off
ZONES = [
    "Pacific/Kiritimati", "Pacific/Apia", "Pacific/Auckland", "Australia/Sydney", "Australia/Adelaide", "Asia/Tokyo",
    "Asia/Seoul", "Asia/Shanghai", "Asia/Singapore", "Asia/Bangkok", "Asia/Dhaka", "Asia/Kathmandu", "Asia/Kolkata",
    "Asia/Karachi", "Asia/Tehran", "Asia/Dubai", "Africa/Nairobi", "Europe/Istanbul", "Europe/Kyiv", "Europe/Athens",
    "Africa/Cairo", "Africa/Johannesburg", "Europe/Berlin", "Europe/Paris", "Africa/Lagos", "Europe/London",
    "Europe/Lisbon", "Atlantic/Reykjavik", "Atlantic/Azores", "America/Sao_Paulo", "America/Argentina/Buenos_Aires",
    "America/St_Johns", "America/Halifax", "America/New_York", "America/Bogota", "America/Chicago", "America/Denver",
    "America/Los_Angeles", "America/Anchorage", "Pacific/Honolulu",
]
FIRST = [
    "Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Radia", "Leslie", "Frances", "John", "Katherine", "Margaret",
    "Hedy", "Dennis", "Annie", "Ken", "Mary", "Niklaus",
]
LAST = [
    "Lovelace", "Hopper", "Turing", "Dijkstra", "Liskov", "Knuth", "Perlman", "Lamport", "Allen", "Backus", "Johnson",
    "Shannon", "Lamarr", "Ritchie", "O'Neill",
]
# fmt: on


@dataclass(frozen=True)
class Made:
    first_name: str
    last_name: str
    born: date
    timezone: str


def made_up(count: int, around: datetime, *, days: float, at: time = time(9), seed: int = 0) -> Iterator[Made]:
    """Users whose next birthdays begin, at that time on their own clocks, within this many days after that moment, or else as
    soon as can be; the zones take turns."""
    chance = random.Random(seed)  # noqa: S311 - made-up people
    for number in range(count):
        timezone = ZONES[number % len(ZONES)]
        day = chance.choice(mornings(timezone, around, days=days, at=at))
        yield Made(chance.choice(FIRST), chance.choice(LAST), born_on(day, chance.randrange(1950, 2006)), timezone)


def mornings(timezone: str, around: datetime, *, days: float, at: time = time(9)) -> list[date]:
    """The days whose `at` comes there within this many days after that moment; at least the next one."""
    there = ZoneInfo(timezone)
    until = around + timedelta(days=days)
    day = around.astimezone(there).date()
    while datetime.combine(day, at, there) <= around:
        day += timedelta(days=1)
    found = [day]
    while datetime.combine(day := day + timedelta(days=1), at, there) <= until:
        found.append(day)
    return found


def born_on(day: date, year: int) -> date:
    """That day in that year, or in the leap year before it."""
    return day.replace(year=year - year % 4 if (day.month, day.day) == (2, 29) else year)
