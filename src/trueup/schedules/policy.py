"""The rules for a schedule's ticks, as a value stored in its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from trueup.durations import Duration, duration_of, format_duration, parse_duration
from trueup.errors import ConfigError
from trueup.options import whole
from trueup.schedules import misfire, overlap
from trueup.schedules.misfire import Missed
from trueup.schedules.overlap import MAX_QUEUED, Overlap


@dataclass(frozen=True, slots=True)
class SchedulePolicy:
    """`missed`, `catch_up`, `grace`: see `misfire`. `overlap`, `most_queued`: see `overlap`. `jitter` delays runs, not ticks.
    After `pause_after` dead runs in a row the schedule is paused; None: never."""

    missed: Missed = "latest"
    catch_up: timedelta = timedelta(days=1)
    grace: timedelta = timedelta(seconds=60)
    overlap: Overlap = "skip"
    most_queued: int = MAX_QUEUED
    jitter: timedelta = timedelta()
    pause_after: int | None = None

    def __post_init__(self) -> None:
        self.misfire  # noqa: B018 - raises what is wrong with those three
        overlap.checked(self.overlap)
        if self.jitter < timedelta():
            raise ConfigError("jitter is negative")
        for name in ("most_queued", "pause_after"):
            if (value := getattr(self, name)) is not None:
                whole(name, value)

    @property
    def misfire(self) -> misfire.MisfirePolicy:
        return misfire.MisfirePolicy.parse(self.missed, self.catch_up, self.grace)

    @classmethod
    def of(
        cls,
        *,
        missed: Missed = "latest",
        catch_up: Duration = "1d",
        grace: Duration = "60s",
        overlap: Overlap = "skip",
        most_queued: int = MAX_QUEUED,
        jitter: Duration = "0s",
        pause_after: int | None = None,
    ) -> SchedulePolicy:
        """The policy from options as users write them: durations as text or timedelta."""
        return cls(
            missed,
            duration_of("catch_up", catch_up),
            duration_of("grace", grace),
            overlap,
            most_queued,
            duration_of("jitter", jitter),
            pause_after,
        )

    def to_json(self) -> dict[str, Any]:
        """Only what differs from the default, so that a new field does not change rows that do not use it."""
        written = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }
        return {
            name: format_duration(value) if isinstance(value, timedelta) else value for name, value in written.items()
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SchedulePolicy:
        """Raises ConfigError for anything this release does not know."""
        kinds = {field.name: field.default for field in fields(cls)}
        unknown = sorted(stored.keys() - kinds.keys())
        if unknown:
            raise ConfigError(f"a schedule's policy {', '.join(unknown)} is not known to this release")
        read: dict[str, Any] = {
            name: parse_duration(value) if isinstance(kinds[name], timedelta) else value
            for name, value in stored.items()
        }
        return cls(**read)
