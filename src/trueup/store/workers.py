"""The rows of worker processes: the lease under everything they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from trueup.store.db.repository import Repository

# Time without a worker that is no downtime: a restart, or a deployment that stops the old workers first.
GRACE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Downtime:
    """When no worker was alive: from the last heartbeat to the first worker afterwards."""

    since: datetime
    until: datetime

    @property
    def length(self) -> timedelta:
        return self.until - self.since


@dataclass(frozen=True, slots=True)
class Identity:
    """A worker's registration: `holder` is random per registration; host, pid and release are for people."""

    holder: UUID
    host: str
    pid: int
    release: str | None
    queues: tuple[str, ...]
    concurrency: int
    declaration: str | None = None  # the digest of its Declaration


class Workers(Repository):
    async def register(self, identity: Identity, lease_for: timedelta) -> Downtime | None:
        """Register. Returns the downtime that it ended, to the one worker that did."""
        rows = await self._fetch_steered(
            "workers/register",
            "workers/lock",
            **(asdict(identity) | {"queues": list(identity.queues)}),
            lease_for=lease_for.total_seconds(),
            grace=GRACE.total_seconds(),
        )
        return Downtime(*rows[0]) if rows else None

    async def renew(self, holder: UUID, lease_for: timedelta) -> bool:
        """Extend the lease. False: it has expired, or another worker has rescued the jobs."""
        return bool(await self._fetch("workers/renew", **self.renewal(holder, lease_for, stopping=False)))

    def renewal(
        self, holder: UUID, lease_for: timedelta, *, stopping: bool, blocked: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Parameters of the renewing statement, for those who send it on a connection of their own.

        `blocked` is what was found blocking the event loop since the last renewal.
        """
        return {
            "now": self._clock.now(),
            "holder": holder,
            "lease_for": lease_for.total_seconds(),
            "stopping": stopping,
            "blocked": None if blocked is None else orjson.dumps(blocked).decode(),
        }

    async def leave(self, holder: UUID) -> bool:
        """Delete the row. False: the worker still holds jobs, so the row stays until it expires and they are rescued."""
        async with self._database.transaction() as connection:
            await self._fetch_on(connection, "workers/hold", holder=holder)
            return bool(await self._fetch_on(connection, "workers/leave", holder=holder))

    async def forget(self) -> Sequence[tuple[UUID, str, int]]:
        """Remove the rows of rescued workers that hold no more jobs; returns (holder, host, pid) of each."""
        return [(row[0], row[1], row[2]) for row in await self._fetch("workers/forget")]
