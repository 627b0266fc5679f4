"""A schedule with a single tick."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trueup.schedules.when import When, in_utc


@dataclass(frozen=True, slots=True)
class Once(When):
    """One tick at `at`, and never another."""

    at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", in_utc(self.at, "at"))

    def next_after(self, t: datetime) -> datetime | None:
        return self.at if self.at > in_utc(t, "t") else None

    def describe(self) -> str:
        """The moment in words, for people."""
        return f"Once at {self.at.isoformat()}"
