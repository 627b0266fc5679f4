"""Read-only queries about worker processes and leases, for the CLI and the dashboard."""

from __future__ import annotations

from trueup.store.db.own_connection import Record
from trueup.store.db.repository import Repository


class Fleet(Repository):
    async def workers(self) -> list[Record]:
        """All registered workers, living ones first, each with what its code declares."""
        return await self._records("views/fleet")

    async def leases(self, limit: int = 200) -> list[Record]:
        """Named leases, held ones first."""
        return await self._records("views/leases", limit=limit)
