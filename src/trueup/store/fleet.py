"""Read-only queries about worker processes and leases, for the CLI and the dashboard."""

from __future__ import annotations

from trueup.store.db.repository import Repository
from trueup.store.views import Record

WORKER = (
    *("holder", "host", "pid", "release", "queues", "concurrency", "running", "started_at", "renewed_at"),
    *("lease_until", "stopping", "rescued_at", "alive", "service", "kinds", "schedules", "reconcilers", "blocked"),
)
LEASE = ("name", "label", "holder", "term", "acquired_at", "renewed_at", "lease_until", "held")


class Fleet(Repository):
    async def workers(self) -> list[Record]:
        """All processes that are registered, those alive first, with what the code of each declares."""
        return [dict(zip(WORKER, row, strict=True)) for row in await self._fetch("views/fleet")]

    async def leases(self, limit: int = 200) -> list[Record]:
        """Named leases, those that are held first."""
        return [dict(zip(LEASE, row, strict=True)) for row in await self._fetch("views/leases", limit=limit)]
