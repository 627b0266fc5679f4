"""What happens to schedules, their ticks and their runs."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.events.event import Event


@dataclass(frozen=True, slots=True)
class RunPostponed(Event):
    """A run of a schedule with `lease=` could not ask for it: it waits for whoever keeps the lease, and spends no attempt."""

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
    """A pass of the planner: so many ticks were fired, so many skipped with a reason."""

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
    """An active schedule fires nothing until `until`: its ticks up to then were decided about on a clock that was ahead.

    `trueup schedules rewind` brings it back.
    """

    name = "schedule.ahead"
    schedule: str
    until: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ScheduleUnreadable(Event):
    """A schedule's row says something this release does not know; its newer planners must see to it."""

    name = "schedule.unreadable"
    schedule: str
    error: str


@dataclass(frozen=True, slots=True)
class ScheduleRefused(Event):
    """A tick of a schedule, or what code declares about it, cannot be stored, for the reason in `error`. It is tried again alone,
    ever more rarely, in `retry_in_s` seconds for now. All other schedules go on.
    """

    name = "schedule.refused"
    schedule: str
    error: str
    refusals: int
    retry_in_s: float
