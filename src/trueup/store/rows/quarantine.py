"""Quarantined rows, and what operators decide about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from trueup.store.db.message import Fetched
from trueup.store.db.own_connection import Record
from trueup.store.db.repository import Repository

SET_ASIDE = ("quarantined", "discarded")


class Quarantine(Repository):
    async def listed(self, reconciler: str | None, limit: int, *, discarded: bool = False) -> list[Record]:
        """The quarantined rows of one reconciler or of all, latest first, each with its last error."""
        state = "discarded" if discarded else "quarantined"
        return await self._records("quarantine/list", reconciler=reconciler, state=state, limit=limit)

    async def show(self, reconciler: str, keys: Sequence[str]) -> dict[str, Record]:
        """The whole record of rows with these keys, in any state."""
        return {row["key"]: row for row in await self._records("quarantine/show", reconciler=reconciler, keys=keys)}

    async def count(self, reconciler: str) -> tuple[int, datetime]:
        """How many rows are in quarantine, and when they were counted."""
        ((count, at),) = await self._fetch("quarantine/count", reconciler=reconciler)
        return int(count), at

    async def keys(self, reconciler: str, until: datetime, limit: int) -> Sequence[str]:
        """The keys of rows that are in quarantine since that moment or longer, oldest first."""
        return [key for (key,) in await self._fetch("quarantine/keys", reconciler=reconciler, until=until, limit=limit)]

    async def release(self, reconciler: str, keys: Sequence[str], states: Sequence[str] = SET_ASIDE) -> set[str]:
        """Have these rows handled again soon, with all their attempts. Returns the keys that were in one of these states."""
        return _keys(await self._fetch("quarantine/release", reconciler=reconciler, keys=keys, states=states))

    async def discard(self, reconciler: str, keys: Sequence[str]) -> set[str]:
        """Ignore these rows as long as they stay in their state. Returns the keys that were in quarantine."""
        return _keys(await self._fetch("quarantine/discard", reconciler=reconciler, keys=keys))

    def _with(self, params: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: [*value] if isinstance(value, list | tuple) else value for name, value in params.items()}
        return super()._with(given)


def _keys(rows: Fetched) -> set[str]:
    return {key for (key,) in rows}
