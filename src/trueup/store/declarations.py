"""What running code declares, stored as rows so that each process knows what the others declare.

A worker's row names its declaration, so a declaration is alive while a worker that made it is alive. Equal code shares one row,
found by its digest. Workers of older releases have none: their declarations are unknown, and schedules that may be theirs are
never retired.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson

from trueup.schedules import spec as specs
from trueup.store.db.load import Statements
from trueup.store.db.repository import Database, Repository
from trueup.store.schedules import Entry


@dataclass(frozen=True, slots=True)
class Declaration:
    """Everything that a worker's code declares, and which queues and lanes that worker serves."""

    service: str | None
    release: str | None
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    lanes: tuple[str, ...]
    schedules: tuple[Entry, ...]
    reconcilers: tuple[str, ...]
    exhausted: tuple[str, ...] = ()  # the kinds that have `exhausted=`

    @property
    def digest(self) -> str:
        """Equal for equal declarations; the release's name does not count, because it changes when nothing else does."""
        entries = [_entry(entry) for entry in self.schedules]
        names = [sorted(each) for each in (self.queues, self.kinds, self.lanes, self.reconcilers)]
        if self.exhausted:  # equal code has the digest that releases without `exhausted=` gave it
            names.append(sorted(self.exhausted))
        content = orjson.dumps([self.service, names, sorted(entries)])
        return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class DeclaredRow:
    """A declared schedule as it is stored. `ours`: no living worker that started later declares it, too."""

    name: str
    version: int | None
    state: str | None
    ours: bool


@dataclass(frozen=True, slots=True)
class Undeclared:
    """An active schedule of code that no living worker declares. Field order is that of `declarations/undeclared.sql`."""

    name: str
    queue: str
    kind: str
    declared_at: datetime | None
    may_be_retired: bool


class Declarations(Repository):
    def __init__(self, database: Database, statements: Statements, retire_after: timedelta) -> None:
        super().__init__(database, statements)
        self.retire_after = retire_after

    async def declare(self, declaration: Declaration, started_at: datetime | None) -> datetime:
        """Record a declaration. Returns when the process started: now, unless `started_at` is given."""
        rows = await self._fetch(
            "declarations/declare",
            digest=declaration.digest,
            service=declaration.service,
            release=declaration.release,
            queues=list(declaration.queues),
            kinds=list(declaration.kinds),
            lanes=list(declaration.lanes),
            schedules=[entry.name for entry in declaration.schedules],
            reconcilers=list(declaration.reconcilers),
            exhausted=list(declaration.exhausted),
            started_at=started_at,
        )
        moment = rows[0][0]
        assert isinstance(moment, datetime)
        return moment

    async def look(self, digest: str, lanes: Iterable[str], every: float) -> tuple[int, int] | None:
        """A heartbeat. Returns how many declared schedules have a row, and the sum of their versions; None when the
        declaration is gone."""
        rows = await self._fetch("declarations/look", digest=digest, lanes=list(lanes), every=every)
        return (rows[0][0], rows[0][1]) if rows else None

    async def rows(self, digest: str) -> list[DeclaredRow]:
        return [DeclaredRow(*row) for row in await self._fetch("declarations/rows", digest=digest)]

    async def undeclared(self) -> list[Undeclared]:
        """Schedules of code that no living worker declares."""
        return [Undeclared(*row) for row in await self._fetch("declarations/undeclared")]

    async def missing(self, declared: Iterable[str] = ()) -> dict[str, str | None]:
        """Schedules that living workers declare, or these, and that do not fire: their state, or None without a row."""
        return dict(await self._fetch("declarations/missing", declared=list(declared)))

    async def declared_by(self, name: str) -> list[tuple[str | None, str | None]]:
        """(service, release) of the living declarations that have this schedule."""
        return [(row[0], row[1]) for row in await self._fetch("declarations/declared_by", name=name)]

    async def forget(self) -> int:
        """Delete declarations that no longer matter. Returns how many."""
        return int((await self._fetch("declarations/forget"))[0][0])

    def _with(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {**super()._with(params), "retire_after": self.retire_after.total_seconds()}


def _entry(entry: Entry) -> list[Any]:
    policy = orjson.dumps(entry.policy.to_json(), option=orjson.OPT_SORT_KEYS).decode()
    spec = orjson.dumps(specs.to_json(entry.spec), option=orjson.OPT_SORT_KEYS).decode()
    job = [entry.kind, entry.queue, entry.lane, entry.priority, entry.max_attempts, entry.args]
    return [entry.name, entry.origin, spec, policy, *job]
