"""Moving and deleting rows of users' tables in batches, by the database alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

from trueup.clock import Clock
from trueup.jobs.limits import grant
from trueup.reconcile.counts import Counts
from trueup.reconcile.lateness import BOUNDS_S, Lateness
from trueup.reconcile.purge import Purge
from trueup.store.compose import Purging, quoted
from trueup.store.jobs import Database
from trueup.store.line import Rows, fetch
from trueup.store.load import Statements
from trueup.store.tables import Found
from trueup.store.texts import text_of

ALIKE = 0.01  # rows whose lateness differs by less than this part of it are taken for evenly spread
COUNTED = 100_000  # rows up to which a table is counted; larger ones are judged by their statistics


@dataclass(frozen=True, slots=True)
class Taken:
    """What one statement did."""

    asked: int = 0
    count: int = 0
    lateness: Lateness = field(default_factory=Lateness)
    ask_again_after: timedelta | None = None

    def add_to(self, counts: Counts) -> None:
        counts.claimed += self.count
        counts.changed += self.count
        counts.lateness.include(self.lateness)


class Purges:
    """One of them, over one table. `also` are further connections, for as many batches more under way at a time."""

    def __init__(
        self,
        database: Database,
        statements: Statements,
        clock: Clock,
        purge: Purge,
        found: Found,
        timeout: timedelta,
        *,
        also: Sequence[Database] = (),
    ) -> None:
        self._database = database
        self._lines = (database, *also)
        self._statements = statements
        self._clock = clock
        self.purge = purge
        self.found = found
        # Of unknown age is not old: nobody looks at these rows again before they go.
        self.composer = Purging(statements, found, purge.selection, found.spec.key, nulls_are_stale=False)
        self._columns = tuple(sorted(purge.columns))
        self._steer = statements.compose("rows/steer", milliseconds=quoted(str(round(timeout.total_seconds() * 1000))))
        self._take = cache(self._statement)

    def _statement(self, state: str | None) -> bytes:
        to = self.purge.to
        return self.composer.delete(state) if to is None else self.composer.move(state, to, self._columns)

    def statement(self) -> tuple[bytes, dict[str, Any]]:
        """What a sweep begins with, for looking at its plan."""
        state = next(iter(self.purge.selection.states), None)
        return self._take(state), {**self._params(), "most": self.purge.batch}

    @property
    def at_once(self) -> int:
        """How many batches may be under way at a time. With a rate the next one has to know how much this one took."""
        return len(self._lines) if self.purge.lane is None else 1

    async def take(self, state: str | None, line: int = 0) -> Taken:
        """Move or delete up to a batch of the rows in this state, oldest first."""
        purge = self.purge
        if purge.lane is None:
            params = {**self._params(), "most": purge.batch}
            return _taken(purge.batch, await self._lines[line].fetch_steered(self._steer, self._take(state), params))
        async with self._database.transaction() as connection:
            locked = await fetch(
                connection, self._statements["lanes/lock"], {"now": self._clock.now(), "lane": purge.lane}
            )
            if not locked:
                return Taken(ask_again_after=timedelta(milliseconds=50))
            now, next_start_at, last_key = locked[0]
            granted = grant(purge.rate, next_start_at, now, purge.batch)
            if not granted.slots:
                return Taken(ask_again_after=granted.wait)
            await connection.execute(self._steer)
            params = {**self._params(), "most": len(granted.slots)}
            taken = _taken(len(granted.slots), await fetch(connection, self._take(state), params))
            if taken.count:
                next_start = granted.next_start_at(taken.count, purge.rate)
                advanced = {"lane": purge.lane, "next_start_at": next_start, "last_key": last_key}
                await fetch(connection, self._statements["lanes/advance"], advanced)
        return taken

    async def too_much(self) -> str | None:
        """Why it must not begin: it would touch more of the table than `max_fraction`. None: it may."""
        fraction = self.purge.max_fraction
        if fraction is None:
            return None
        total = await self._count(self.composer.size(), COUNTED + 1)
        if total > COUNTED:
            total = max(total, self.found.estimate)
        allowed = int(total * fraction)
        due = await self.waiting(allowed + 1)
        if due <= allowed:
            return None
        return f"more than {allowed:,} of about {total:,} rows would be touched; max_fraction={fraction:g} does not allow it"

    async def waiting(self, most: int, *, late_by: timedelta | None = None) -> int:
        """How many rows there are for it now, up to a number; only those that have been due or stale for so long, if given."""
        return await self._count(self.composer.purgeable(), most, late_by)

    async def _count(self, query: bytes, most: int, late_by: timedelta | None = None) -> int:
        seconds = None if late_by is None else late_by.total_seconds()
        params = {"now": self._clock.now(), "most": most, "late_by": seconds}
        ((count,),) = await self._database.fetch_steered(self._steer, query, params)
        return int(count)

    async def listed(self, most: int) -> Rows:
        """(key, state, due since) of rows there are for it now, oldest first."""
        params = {"now": self._clock.now(), "most": most}
        return await self._database.fetch_steered(self._steer, self.composer.purge_list(), params)

    def _params(self) -> dict[str, Any]:
        values = {
            f"c{n}": text_of(self.purge.columns[name], self.found.columns[name])
            for n, name in enumerate(self._columns, 1)
        }
        return {
            "now": self._clock.now(),
            "alike": ALIKE,
            "bounds": [-bound for bound in reversed(BOUNDS_S)],
            **values,
        }


def _taken(asked: int, rows: Rows) -> Taken:
    ((count, latest, earliest, each),) = rows
    lateness = Lateness()
    if each is not None:
        for seconds in each:
            lateness.add(seconds)
    elif count:
        lateness.add_alike(count, latest, earliest)
    return Taken(asked, count, lateness)
