"""Claiming through a lane: one taker at a time for the whole fleet, within the lane's limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from trueup.clock import Clock
from trueup.jobs.job import ClaimedJob
from trueup.jobs.limits import Controls, grant
from trueup.store.jobs import Database
from trueup.store.line import fetch
from trueup.store.load import Statements

MOST_KEYS = 500  # keys given a turn in one claim; the next claim goes on after the last of them


@dataclass(frozen=True, slots=True)
class LaneClaim:
    """Jobs and how long to wait before starting each; or how long to wait before asking again."""

    jobs: list[tuple[ClaimedJob, timedelta]] = field(default_factory=list)
    ask_again_after: timedelta | None = None


class Lanes:
    def __init__(self, database: Database, statements: Statements, clock: Clock) -> None:
        self._database = database
        self._statements = statements
        self._clock = clock

    async def register(self, lanes: Sequence[str]) -> None:
        await self._database.fetch(self._statements["lanes/register"], {"lanes": list(lanes)})

    async def waiting(self, lanes: Sequence[str]) -> list[str]:
        """Those lanes that have a due job."""
        params = {"now": self._clock.now(), "lanes": list(lanes)}
        return [row[0] for row in await self._database.fetch(self._statements["lanes/waiting"], params)]

    async def claim(self, holder: UUID, lane: str, controls: Controls, most: int) -> LaneClaim:
        """queued -> running within the lane's limits. Empty at once when somebody else is claiming through it."""
        async with self._database.transaction() as connection:
            now = self._clock.now()
            locked = await fetch(connection, self._statements["lanes/lock"], {"now": now, "lane": lane})
            if not locked:
                return LaneClaim()
            started_at, next_start_at, last_key = locked[0]
            granted = grant(controls.rate, next_start_at, started_at, most)
            if not granted.slots:
                return LaneClaim(ask_again_after=granted.wait)
            await fetch(connection, self._statements["session/steer"])
            place = {
                "lane": lane,
                "total": controls.limit.total if controls.limit else None,
                "last_key": last_key,
                "keys": MOST_KEYS,
            }
            rows = await fetch(
                connection,
                self._statements["lanes/claim"],
                {
                    **place,
                    "now": now,
                    "holder": holder,
                    "most": len(granted.slots),
                    "per_key": controls.limit.per_key if controls.limit else None,
                },
            )
            jobs = [ClaimedJob(holder, *row) for row in rows]
            if jobs:
                advanced = {
                    "lane": lane,
                    "next_start_at": granted.next_start_at(len(jobs), controls.rate),
                    "last_key": jobs[-1].key,
                }
                await fetch(connection, self._statements["lanes/advance"], advanced)
            elif controls.fair_by is not None:
                await fetch(connection, self._statements["lanes/skip"], place)
        return LaneClaim([(job, granted.start_after(position)) for position, job in enumerate(jobs)])
