"""Schedules: next ticks on a timeline, past ticks with how late they were, skips with their reasons, and backfills."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any

from trueup.durations import Rate
from trueup.errors import ConfigError
from trueup.operate.schedules import BackfillPreview
from trueup.schedules import spec as specs
from trueup.schedules.policy import SchedulePolicy
from trueup.web.dashboard import bulk, charts
from trueup.web.dashboard.bulk import BulkRun
from trueup.web.dashboard.formats import duration
from trueup.web.dashboard.visit import Visit, moment

AHEAD = timedelta(hours=24)
STEP = timedelta(minutes=1)  # for which computed ticks are cached; a schedule has at most 60 in it
QUARTER = timedelta(minutes=15)
MAX_DRAWN = 100  # ticks on a line; more would merge into a block
MAX_LINES = 50  # schedules with a line; each costs some milliseconds
SHOWN = 60  # past ticks
RATE = "100/s"  # of a backfill, unless the form says otherwise
LATE = timedelta(seconds=60)  # where a schedule's policy cannot be read


async def schedules(visit: Visit) -> dict[str, Any]:
    found = await visit.source.shared("schedules", visit.app.schedules.list)
    order = {"active": 0, "paused": 1}
    found = sorted(
        found,
        key=lambda each: (not each["refused"], each["last_run"] != "dead", order.get(each["state"], 2), each["name"]),
    )
    until = visit.now + AHEAD
    # Computing ticks takes time, which must not block other pages.
    lines = await asyncio.to_thread(lambda: [_ahead(each, visit.now, until) for each in found[:MAX_LINES]])
    shown = found[: visit.most]
    return {
        "schedules": [
            {**each, "line": line} for each, line in zip(shown, [*lines, *[None] * len(shown)], strict=False)
        ],
        "hidden": len(found) - len(shown),
        "axis": charts.axis(visit.now, until, 4),  # beside other columns,
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
        "line": _line(found, visit.now, visit.now + AHEAD),
        "axis": charts.axis(visit.now, visit.now + AHEAD),
        "lateness": charts.line(f"How late the last ticks of {name} were", begins, late, "warn", seconds=True)
        if len(late) > 1
        else None,
        "year": year,
        "policy": _policy(found["policy"]),
        "backfill": await _backfill(visit, name, ticks),
    }


@dataclass(frozen=True, slots=True)
class Backfill:
    """The range and rate of a backfill, read from the form."""

    start: datetime
    end: datetime
    rate: Rate

    @classmethod
    def read(cls, start: str, end: str, rate: str) -> Backfill:
        """Raises ConfigError."""
        return cls(moment(start, "From"), moment(end, "To"), Rate.parse(rate))

    def preview(self, visit: Visit, name: str) -> Awaitable[BackfillPreview]:
        look = partial(visit.app.schedules.preview_backfill, name, self.start, self.end)
        return visit.source.shared(("backfill", name, self.start, self.end), look)

    async def begin(self, visit: Visit, name: str) -> BulkRun:
        """Raises ConfigError when there is nothing to fire."""
        preview = await self.preview(visit, name)
        if not preview.to_fire:
            raise ConfigError(f"every tick of {name} in that range was fired already")
        work = bulk.backfill(visit.source, name, self.start, self.end, self.rate)
        what = f"{self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC"
        about = ("schedules", name)
        return visit.bulk.start(
            visit.source, work, "backfill", visit.person.name, what, about=about, total=preview.ticks
        )


async def _backfill(visit: Visit, name: str, ticks: list[dict[str, Any]]) -> dict[str, Any]:
    """The form with its values, what the range of the address would fire, and backfills under way."""
    skipped = [tick["due_at"] for tick in ticks if tick["outcome"] == "skipped"] or [visit.now - AHEAD, visit.now]
    start, end, rate = visit.text("start", 40), visit.text("end", 40), visit.text("rate", 20) or RATE
    asked = preview = problem = None
    if start and end:
        try:
            asked = Backfill.read(start, end, rate)
            preview = await asked.preview(visit, name)
        except ConfigError as error:
            problem = str(error)
    return {
        "start": _local(asked.start if asked else min(skipped)),
        "end": _local(asked.end if asked else max(skipped)),
        "rate": rate,
        "preview": preview,
        "problem": problem,
        "runs": visit.bulk.of(visit.source.name, ("schedules", name)),
        "undo_for": visit.bulk.undo_for,
    }


def _local(at: datetime) -> str:
    """The value of a field of type datetime-local."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


def _tick(tick: dict[str, Any], grace: timedelta) -> dict[str, Any]:
    fired = tick["outcome"] == "fired"
    late = max(timedelta(), tick["decided_at"] - tick["due_at"]) if fired else None
    by_hand = fired and str(tick["reason"] or "").startswith(("triggered", "backfill"))
    return {
        **tick,
        "late_s": None if late is None or by_hand else late.total_seconds(),
        "is_late": late is not None and late > grace and not by_hand,
    }


def _policy(policy: Any) -> dict[str, Any]:
    """The policy with its defaults, which are not stored."""
    try:
        read = SchedulePolicy.from_json(policy)
    except ConfigError:
        return dict(policy)
    values = {field.name: getattr(read, field.name) for field in fields(read)}
    return {name: duration(value) if isinstance(value, timedelta) else value for name, value in values.items()}


def _grace(policy: Any) -> timedelta:
    try:
        return SchedulePolicy.from_json(policy).grace
    except ConfigError:
        return LATE


def _line(schedule: dict[str, Any], now: datetime, until: datetime) -> Any:
    """The same with the time of each tick to point at, if they are few enough."""
    ticks = _next(schedule, now, until, MAX_DRAWN)
    if len(ticks) == MAX_DRAWN:
        return _ahead(schedule, now, until)
    marks = [(tick, "run", f"{tick:%H:%M:%S} UTC") for tick in ticks]
    return charts.timeline(f"Ticks of {schedule['name']} in the next 24 hours", now, until, marks)


def _ahead(schedule: dict[str, Any], now: datetime, until: datetime) -> Any:
    ticks = _next(schedule, now, until, MAX_DRAWN)
    spans = _quarters(schedule, now, until) if len(ticks) == MAX_DRAWN else [(tick, tick) for tick in ticks]
    return charts.ticks(f"Next ticks of {schedule['name']} in 24 hours", now, until, spans)


def _quarters(schedule: dict[str, Any], now: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """The quarters of an hour with a tick, joined: so many ticks would merge anyway."""
    spec = specs.from_json(schedule["spec"])
    joined: list[tuple[datetime, datetime]] = []
    begin = now
    while (tick := spec.next_after(begin)) is not None and tick <= until:
        begin = max(begin, now + (tick - now) // QUARTER * QUARTER)
        end = min(begin + QUARTER, until)
        joined = [*joined[:-1], (joined[-1][0], end)] if joined and joined[-1][1] >= begin else [*joined, (begin, end)]
        begin = end
    return joined


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
