"""The rows of worker processes: the lease under everything they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from trueup.clock import Clock
from trueup.store.jobs import Database
from trueup.store.load import Statements


@dataclass(frozen=True, slots=True)
class Identity:
    """A worker's life: `holder` is random per life; host, pid and release are for people."""

    holder: UUID
    host: str
    pid: int
    release: str | None
    queues: tuple[str, ...]
    concurrency: int


class Workers:
    def __init__(self, database: Database, statements: Statements, clock: Clock) -> None:
        self._database = database
        self._statements = statements
        self._clock = clock

    async def register(self, identity: Identity, lease_for: timedelta) -> None:
        """Begin a life."""
        await self._database.fetch(
            self._statements["workers/register"],
            {
                "now": self._clock.now(),
                "holder": identity.holder,
                "host": identity.host,
                "pid": identity.pid,
                "release": identity.release,
                "queues": list(identity.queues),
                "concurrency": identity.concurrency,
                "lease_for": lease_for.total_seconds(),
            },
        )

    async def renew(self, holder: UUID, lease_for: timedelta) -> bool:
        """Extend the lease. False: it has passed, or somebody has rescued the jobs."""
        return bool(
            await self._database.fetch(
                self._statements["workers/renew"], self.renewal(holder, lease_for, stopping=False)
            )
        )

    def renewal(self, holder: UUID, lease_for: timedelta, *, stopping: bool) -> dict[str, Any]:
        """Parameters of the renewing statement, for those who send it on a connection of their own."""
        return {
            "now": self._clock.now(),
            "holder": holder,
            "lease_for": lease_for.total_seconds(),
            "stopping": stopping,
        }

    async def leave(self, holder: UUID) -> bool:
        """Go. False: jobs are still in hand, so the row stays until it expires and they are rescued."""
        return bool(await self._database.fetch(self._statements["workers/leave"], {"holder": holder}))

    async def forget(self) -> Sequence[tuple[UUID, str, int]]:
        """Remove the rows of rescued workers that hold nothing any more; returns (holder, host, pid) of each."""
        return [(row[0], row[1], row[2]) for row in await self._database.fetch(self._statements["workers/forget"])]
