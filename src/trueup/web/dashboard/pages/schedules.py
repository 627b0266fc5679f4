"""Schedules: next ticks on a timeline, past ticks with how late they were, and skips with their reasons."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from trueup.errors import ConfigError
from trueup.schedules import spec as specs
from trueup.schedules.policy import SchedulePolicy
from trueup.web.dashboard import charts
from trueup.web.dashboard.visit import Visit

AHEAD = timedelta(hours=24)
STEP = timedelta(minutes=1)  # for which ticks that were found are kept; a schedule has at most 60 in it
MAX_DRAWN = 100  # ticks on a line: more would be a block
MAX_LINES = 50  # schedules with a line: each costs some milliseconds
MAX_SHOWN = 500  # schedules
SHOWN = 60  # past ticks
LATE = timedelta(seconds=60)  # where a schedule's policy cannot be read


async def schedules(visit: Visit) -> dict[str, Any]:
    found = await visit.source.shared("schedules", visit.app.schedules.list)
    order = {"active": 0, "paused": 1}
    found = sorted(found, key=lambda each: (order.get(each["state"], 2), each["name"]))
    until = visit.now + AHEAD
    # Ticks are found by arithmetic, which must not hold up other pages.
    lines = await asyncio.to_thread(lambda: [_ahead(each, visit.now, until) for each in found[:MAX_LINES]])
    shown = found[:MAX_SHOWN]
    return {
        "schedules": [
            {**each, "line": line} for each, line in zip(shown, [*lines, *[None] * len(shown)], strict=False)
        ],
        "hidden": len(found) - len(shown),
        "axis": charts.axis(visit.now, until, 5),
    }


async def schedule(visit: Visit) -> dict[str, Any]:
    name = visit.part("name")
    found = await visit.source.shared(("schedule", name), lambda: visit.app.schedules.show(name, SHOWN))
    grace = _grace(found["policy"])
    ticks = [_tick(each, grace) for each in found["ticks"]]
    upcoming = _next(found, visit.now, visit.now + timedelta(days=366), 8)
    late = [tick["late_s"] for tick in reversed(ticks) if tick["late_s"] is not None]
    begins = [tick["due_at"] for tick in reversed(ticks) if tick["late_s"] is not None]
    year = None
    with suppress(ConfigError):  # of a newer release: the page says so beside its rule
        year = await visit.source.shared(
            ("year", name, visit.now.year), lambda: visit.app.schedules.preview(name, visit.now.year), 600.0
        )
    return {
        "schedule": found,
        "title": name,
        "ticks": ticks,
        "upcoming": upcoming,
        "line": charts.timeline(
            f"Ticks of {name} in the next 24 hours",
            visit.now,
            visit.now + AHEAD,
            [(tick, "run", f"{tick:%H:%M:%S} UTC") for tick in _next(found, visit.now, visit.now + AHEAD, MAX_DRAWN)],
        ),
        "axis": charts.axis(visit.now, visit.now + AHEAD, 5),
        "lateness": charts.line(f"How late the last ticks of {name} were", begins, late, "warn", height=60, unit="s")
        if len(late) > 1
        else None,
        "year": year,
        "policy": found["policy"],
    }


def _tick(tick: dict[str, Any], grace: timedelta) -> dict[str, Any]:
    fired = tick["outcome"] == "fired"
    late = max(timedelta(), tick["decided_at"] - tick["due_at"]) if fired else None
    by_hand = fired and str(tick["reason"] or "").startswith(("triggered", "backfill"))
    return {
        **tick,
        "late_s": None if late is None or by_hand else late.total_seconds(),
        "is_late": late is not None and late > grace and not by_hand,
    }


def _grace(policy: Any) -> timedelta:
    try:
        return SchedulePolicy.from_json(policy).grace
    except ConfigError:
        return LATE


def _ahead(schedule: dict[str, Any], now: datetime, until: datetime) -> Any:
    ticks = _next(schedule, now, until, MAX_DRAWN)
    marks = [(tick, "run", f"{schedule['name']} {tick:%H:%M:%S} UTC") for tick in ticks]
    return charts.timeline(f"Next ticks of {schedule['name']} in 24 hours", now, until, marks)


def _next(schedule: dict[str, Any], now: datetime, until: datetime, most: int) -> list[datetime]:
    if schedule["state"] != "active":
        return []
    begin = datetime.fromtimestamp(now.timestamp() // STEP.total_seconds() * STEP.total_seconds(), UTC)
    try:
        ticks = _ticks(specs.from_json(schedule["spec"]), begin, until - now + STEP, most + 60)
    except ConfigError:
        return []
    return [tick for tick in ticks if now < tick <= until][:most]


@lru_cache(maxsize=2_000)
def _ticks(spec: specs.Spec, begin: datetime, within: timedelta, most: int) -> tuple[datetime, ...]:
    return tuple(spec.between(begin, begin + within, most))
