"""Read-only queries about worker processes and leases, for the CLI and the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trueup.clock import Clock
from trueup.store.db.load import Statements
from trueup.store.jobs import Database
from trueup.store.views import Record

WORKER = (
    *("holder", "host", "pid", "release", "queues", "concurrency", "running", "started_at", "renewed_at"),
    *("lease_until", "stopping", "rescued_at", "alive", "service", "kinds", "schedules", "reconcilers", "blocked"),
)
LEASE = ("name", "label", "holder", "term", "acquired_at", "renewed_at", "lease_until", "held")


class Fleet:
    def __init__(self, database: Database, statements: Statements, clock: Clock) -> None:
        self._database = database
        self._statements = statements
        self._clock = clock

    async def workers(self) -> list[Record]:
        """All processes that are registered, those alive first, with what the code of each declares."""
        return [dict(zip(WORKER, row, strict=True)) for row in await self._fetch("fleet")]

    async def leases(self, limit: int = 200) -> list[Record]:
        """Named leases, those that are held first."""
        return [dict(zip(LEASE, row, strict=True)) for row in await self._fetch("leases", limit=limit)]

    async def _fetch(self, name: str, **params: Any) -> Sequence[Sequence[Any]]:
        return await self._database.fetch(self._statements[f"views/{name}"], {"now": self._clock.now(), **params})
