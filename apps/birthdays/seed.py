"""Made-up users all over the world, for trying things out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

ZONES = (
    "Pacific/Kiritimati Pacific/Apia Pacific/Auckland Australia/Sydney Australia/Adelaide Asia/Tokyo Asia/Seoul Asia/Shanghai"
    " Asia/Singapore Asia/Bangkok Asia/Dhaka Asia/Kathmandu Asia/Kolkata Asia/Karachi Asia/Tehran Asia/Dubai Africa/Nairobi"
    " Europe/Istanbul Europe/Kyiv Europe/Athens Africa/Cairo Africa/Johannesburg Europe/Berlin Europe/Paris Africa/Lagos"
    " Europe/London Europe/Lisbon Atlantic/Reykjavik Atlantic/Azores America/Sao_Paulo America/Argentina/Buenos_Aires"
    " America/St_Johns America/Halifax America/New_York America/Bogota America/Chicago America/Denver America/Los_Angeles"
    " America/Anchorage Pacific/Honolulu"
).split()

FIRST = "Ada Grace Alan Edsger Barbara Donald Radia Leslie Frances John Katherine Claude Hedy Dennis Annie Ken Mary Niklaus".split()
LAST = "Lovelace Hopper Turing Dijkstra Liskov Knuth Perlman Lamport Allen Backus Johnson Shannon Lamarr Ritchie O'Neill".split()


@dataclass(frozen=True)
class Made:
    first_name: str
    last_name: str
    born: date
    timezone: str


def made_up(count: int, around: datetime, *, days: float, seed: int = 0) -> Iterator[Made]:
    """Users whose next birthdays fall within so many days after that moment, the zones taking turns."""
    chance = random.Random(seed)  # noqa: S311 - made-up people
    for number in range(count):
        timezone = ZONES[number % len(ZONES)]
        there = around.astimezone(ZoneInfo(timezone)) + timedelta(days=chance.random() * days)
        yield Made(chance.choice(FIRST), chance.choice(LAST), _born(there.date(), chance), timezone)


def _born(day: date, chance: random.Random) -> date:
    year = chance.randrange(1950, 2006)
    return day.replace(year=year - year % 4 if (day.month, day.day) == (2, 29) else year)
