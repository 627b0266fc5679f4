"""Schedules whose ticks are refused: by the database, or because their row is invalid.

They are kept in a separate table, because the row in `schedules` may be what cannot be changed. So all planners of a fleet know
them, each is tried alone with backoff, and people see the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from trueup.store.db.repository import Repository

FIRST_PAUSE, MAX_PAUSE = timedelta(seconds=1), timedelta(minutes=1)  # until a schedule that is refused is tried again
MAX_TRIED = 20  # schedules that were refused and are tried again in one pass


@dataclass(frozen=True, slots=True)
class Refused:
    """A version of a schedule whose tick was refused."""

    name: str
    version: int
    error: str


@dataclass(frozen=True, slots=True)
class Noted:
    """How often a schedule was refused, and its current backoff."""

    refused: Refused
    refusals: int
    pause: float


class PlanRefused(Exception):
    """A pass over these schedules, name to version, was undone. The cause is the error."""

    def __init__(self, versions: dict[str, int], error: Exception) -> None:
        super().__init__(str(error))
        self.versions = versions
        self.error = error


class Refusals(Repository):
    async def note(self, refused: Sequence[Refused]) -> list[Noted]:
        by_name = {each.name: each for each in refused}
        rows = await self._fetch(
            "schedules/refuse",
            names=list(by_name),
            versions=[each.version for each in by_name.values()],
            errors=[each.error for each in by_name.values()],
            first=FIRST_PAUSE.total_seconds(),
            longest=MAX_PAUSE.total_seconds(),
        )
        return [Noted(by_name[name], refusals, float(pause)) for name, refusals, pause in rows]

    async def due(self, excluded: dict[str, Any]) -> list[str]:
        """Names of those to be tried again now."""
        return [name for (name,) in await self._fetch("schedules/refused_due", most=MAX_TRIED, **excluded)]
