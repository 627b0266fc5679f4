"""The rows about reconcilers themselves: declarations, pauses and circuit breakers, results of sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from trueup.reconcile.breaker import MAX_KEYS
from trueup.reconcile.counts import Counts
from trueup.reconcile.table import TableSpec
from trueup.store.db.load import Statements
from trueup.store.db.repository import Database, Repository
from trueup.store.rows.tables import signed


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether the reconciler may sweep: not while it is paused, nor while its breaker is open (`rests_for`)."""

    paused: bool
    rests_for: float | None
    pauses: int
    swept_ago: float | None
    now: datetime
    next_due_in: float | None = None  # seconds until the first resting or held row is due
    set_aside: bool = True  # whether rows are in quarantine or discarded
    sign: int | None = None  # the fingerprint of its table now
    walked_ago: float | None = None  # seconds since a walk past all its rows ended
    walked_past: int | None = None  # rows with a record that the walk passed over
    walked_writes: int | None = None  # how often the table had been written to when that walk began
    writes: int | None = None  # and until now, as far as sessions have reported; None: the server does not count

    @property
    def is_due(self) -> bool:
        """Whether a row is due again, or the lease of a row has expired."""
        return self.next_due_in is not None and self.next_due_in <= 0

    @property
    def closed(self) -> bool:
        return self.paused or (self.rests_for is not None and self.rests_for > 0)


class KeyPause(NamedTuple):
    key: str
    rests_for: float
    pauses: int


class Reconcilers(Repository):
    def __init__(self, database: Database, statements: Statements) -> None:
        super().__init__(database, statements)
        self._declared: dict[str, dict[str, str]] = {}
        self._tables: dict[str, TableSpec] = {}

    async def put(self, name: str, table: TableSpec, declared: Mapping[str, Any]) -> None:
        self._tables[name] = table
        self._declared[name] = {"place": str(table), "declared": orjson.dumps(dict(declared)).decode()}
        await self._fetch("reconcilers/put", name=name, **self._declared[name])

    async def gate(self, name: str) -> Gate:
        """Whether it may sweep. If its row is missing, because the database was restored, it is declared again and may sweep."""
        table = self._tables.get(name)
        asked = signed(table) if table is not None else {"table_schema": None, "table_name": None}
        ((known, *gate),) = await self._fetch_kept("reconcilers/gate", name=name, **asked)
        if not known and name in self._declared:
            await self._fetch("reconcilers/put", name=name, **self._declared[name])
        return Gate(*gate)

    async def swept(self, name: str, past: int | None = None, writes: int | None = None) -> None:
        """A whole sweep has ended. `past`: it walked past all rows, and these were known already; `writes` as in Gate, when it began."""
        await self._fetch_kept("reconcilers/swept", name=name, past=past, writes=writes)

    async def failed(self, name: str, error: str) -> None:
        """An error ended a sweep; people see it until a sweep succeeds."""
        await self._fetch("reconcilers/failed", name=name, error=error)

    async def log(self, name: str, holder: UUID, started_at: datetime, counts: Counts) -> None:
        lateness = counts.lateness
        await self._fetch(
            "reconcilers/log",
            reconciler=name,
            holder=holder,
            started_at=started_at,
            **counts.as_dict(),
            late=lateness.late,
            worst_lateness_s=lateness.worst_s,
            total_lateness_s=lateness.total_s,
            lateness=lateness.counts,
        )

    async def rest(self, name: str, pause: timedelta, note: str, *, extend: bool = False) -> bool:
        """Open the breaker; with `extend`, one that is open stays open for longer. False when nothing changed."""
        return bool(
            await self._fetch("reconcilers/rest", name=name, seconds=pause.total_seconds(), note=note, extend=extend)
        )

    async def pauses(self, name: str) -> list[KeyPause]:
        """The keys whose breaker is open or probing."""
        return [KeyPause(*row) for row in await self._fetch("reconcilers/pauses", name=name)]

    async def rest_key(self, name: str, key: str, pause: timedelta, note: str, *, extend: bool = False) -> bool:
        """Open the breaker of one key. False when it was open, or when too many are."""
        params = {"seconds": pause.total_seconds(), "note": note, "extend": extend, "max_keys": MAX_KEYS}
        return bool(await self._fetch("reconcilers/rest_key", name=name, key=key, **params))

    async def work_key(self, name: str, key: str) -> bool:
        """Close the breaker of one key. False when it was closed."""
        return bool(await self._fetch("reconcilers/work_key", name=name, key=key))

    async def work(self, name: str) -> bool:
        """Close the breaker. False when it was closed."""
        return bool(await self._fetch("reconcilers/work", name=name))

    async def set_state(self, name: str, state: str, note: str | None) -> bool:
        return bool(await self._fetch("reconcilers/set_state", name=name, state=state, note=note))

    async def declared_by(self, name: str) -> list[str]:
        """The living workers that declare it, as host:pid, without workers of releases that do not record what they declare."""
        return [f"{host}:{pid}" for host, pid in await self._fetch("reconcilers/declared_by", name=name)]

    async def forget_rows(self, name: str, limit: int) -> tuple[int, int]:
        """Delete up to that many records of its rows. Returns how many were deleted, and how many stay because they are held."""
        ((gone, held),) = await self._fetch("reconcilers/forget_rows", name=name, limit=limit)
        return int(gone), int(held)

    async def forget(self, name: str) -> bool:
        """Delete it and the record of its sweeps. False when it was not known."""
        return bool(await self._fetch("reconcilers/forget", name=name))
