"""What happens to schedules, their ticks and their runs."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.events.event import Event


@dataclass(frozen=True, slots=True)
class RunPostponed(Event):
    """A run of a schedule with `lease=` could not reach the lease backend: it waits, and spends no attempt."""

    name = "tick.postponed"
    schedule: str
    due_at: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunHandledElsewhere(Event):
    """A run of a schedule with `lease=` found the lease taken: its tick counts as skipped."""

    name = "tick.handled_elsewhere"
    schedule: str
    due_at: str
    reason: str


@dataclass(frozen=True, slots=True)
class TicksDecided(Event):
    """A pass of the planner, with the numbers of ticks it fired and skipped."""

    name = "tick.decided"
    fired: int
    skipped: int


@dataclass(frozen=True, slots=True)
class ScheduleChanged(Event):
    """A schedule was declared, changed, paused, resumed, deleted, or retired by a person."""

    name = "schedule.changed"
    schedule: str
    what: str


@dataclass(frozen=True, slots=True)
class ScheduleUndeclared(Event):
    """No living worker declares this schedule, and it still fires: it is retired after `retire_after`, if its service runs."""

    name = "schedule.undeclared"
    schedule: str
    queue: str
    declared_at: str | None


@dataclass(frozen=True, slots=True)
class ScheduleRetired(Event):
    """A schedule was retired, because its service has been running for `retire_after` without declaring it."""

    name = "schedule.retired"
    schedule: str
    queue: str
    declared_at: str | None


@dataclass(frozen=True, slots=True)
class ScheduleAhead(Event):
    """An active schedule fires nothing until `until`: its ticks up to then were decided while the clock was ahead.

    `trueup schedules rewind` brings it back.
    """

    name = "schedule.ahead"
    schedule: str
    until: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ScheduleUnreadable(Event):
    """A schedule's row has a value that this release does not know; workers of a newer release must plan it."""

    name = "schedule.unreadable"
    schedule: str
    error: str


@dataclass(frozen=True, slots=True)
class ScheduleRefused(Event):
    """PostgreSQL refuses a tick of a schedule, or its declaration, for the reason in `error`. It is tried again alone with
    backoff, next in `retry_in_s` seconds. All other schedules continue.
    """

    name = "schedule.refused"
    schedule: str
    error: str
    refusals: int
    retry_in_s: float
