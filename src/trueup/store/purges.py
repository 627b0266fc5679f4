"""Moving and deleting rows of users' tables in batches, by the database alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import orjson
import psycopg

from trueup.clock import Clock
from trueup.jobs.limits import grant
from trueup.reconcile.counts import Counts
from trueup.reconcile.lateness import BOUNDS_S
from trueup.reconcile.purge import Purge
from trueup.store import message
from trueup.store.compose import Purging, steering
from trueup.store.connect import may_pass
from trueup.store.jobs import Database
from trueup.store.line import fetch
from trueup.store.load import Statements
from trueup.store.message import Answers, Call, Part, Rows
from trueup.store.tables import Found
from trueup.store.texts import text_of

ALIKE = 0.01  # rows whose lateness differs by less than this part of it are taken for evenly spread
BEFORE = 2  # in each transaction: `begin`, and what steers it


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of so many rows at most that were asked for."""

    asked: int = 0
    count: int = 0
    ask_again_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Clearance:
    """How many rows may be taken before `max_fraction` is compared anew (None: any number), or why none may be taken."""

    rows: int | None = None
    refusal: str | None = None


class Purges:
    """One of them, over one table."""

    def __init__(
        self,
        database: Database,
        statements: Statements,
        clock: Clock,
        purge: Purge,
        found: Found,
        timeout: timedelta,
    ) -> None:
        self._database = database
        self._statements = statements
        self._clock = clock
        self.purge = purge
        self.found = found
        # Of unknown age is not old: nobody looks at these rows again before they go.
        self.composer = Purging(statements, found, purge.selection, found.spec.key, nulls_are_stale=False)
        self._columns = tuple(sorted(purge.columns))
        self._steer = steering(statements, timeout)
        self._take = cache(self._statement)

    def _statement(self, state: str | None) -> bytes:
        to = self.purge.to
        return self.composer.delete(state) if to is None else self.composer.move(state, to, self._columns)

    def statement(self) -> tuple[bytes, dict[str, Any]]:
        """What a sweep begins with, for looking at its plan."""
        state = next(iter(self.purge.selection.states), None)
        return self._take(state), {**self._params(), "most": self.purge.batch}

    @property
    def in_a_row(self) -> bool:
        """Whether several batches may be asked for together. With a rate the next one has to know how much this one took."""
        return self.purge.lane is None

    async def take(self, state: str | None, counts: Counts, batches: int = 1) -> Taken:
        """Move or delete rows in this state, oldest first: so many batches, each in a transaction of its own, in one message.

        What was taken is counted, also when a batch after it fails.
        """
        batch, before = self.purge.batch, counts.changed
        if self.purge.lane is not None:
            return await self._take_in_turn(self.purge.lane, state, counts)
        parts = [b"BEGIN", Call(self._steer, {}), *self._parts(state, batch), b"COMMIT"]

        def answered(answers: Answers) -> None:
            for begin in range(0, len(answers) - len(parts) + 1, len(parts)):
                self._count(answers, begin + BEFORE, counts)

        await self._database.repeat(batches, parts, answered)
        return Taken(batch * batches, counts.changed - before)

    async def _take_in_turn(self, lane: str, state: str | None, counts: Counts) -> Taken:
        """As much as the fleet's rate allows."""
        async with self._database.transaction() as connection:
            locked = await fetch(connection, self._statements["lanes/lock"], {"now": self._clock.now(), "lane": lane})
            if not locked:
                return Taken(ask_again_after=timedelta(milliseconds=50))
            now, next_start_at, last_key = locked[0]
            granted = grant(self.purge.rate, next_start_at, now, self.purge.batch)
            asked = len(granted.slots)
            if not asked:
                return Taken(ask_again_after=granted.wait)
            answers = await message.send(connection, self._steer, *self._parts(state, asked))
            taken = Counts()
            self._count(answers.check(), 1, taken)
            if taken.changed:
                next_start = granted.next_start_at(taken.changed, self.purge.rate)
                advanced = {"lane": lane, "next_start_at": next_start, "last_key": last_key}
                await fetch(connection, self._statements["lanes/advance"], advanced)
        counts.claimed += taken.claimed
        counts.changed += taken.changed
        counts.lateness.include(taken.lateness)
        return Taken(asked, taken.changed)

    def _parts(self, state: str | None, most: int) -> list[Part]:
        """A batch, and how late its rows were."""
        call = Call(self._take(state), {**self._params(), "most": most})
        return [call] if self.found.partitioned else [call, Call(self._statements["rows/told"], {})]

    def _count(self, answers: Answers, n: int, counts: Counts) -> None:
        """What the batch did that began with this statement."""
        latest = earliest = None
        if self.found.partitioned:
            ((count, latest, earliest, each),) = answers.rows(n)
        else:
            count, ((text,),) = answers.count(n), answers.rows(n + 1)
            each = told = orjson.loads(text)
            if isinstance(told, dict):
                each, latest, earliest = None, told["latest"], told["earliest"]
        counts.claimed += count
        counts.changed += count
        if each is not None:
            for seconds in each[:count]:  # a trigger of the user's may have kept some: which, is not told
                counts.lateness.add(seconds)
        elif latest is not None and earliest is not None:
            counts.lateness.add_alike(count, latest, earliest)

    async def too_much(self) -> str | None:
        """Why it must not begin: it would touch more of the table than `max_fraction`. None: it may."""
        return (await self.clearance()).refusal

    async def clearance(self) -> Clearance:
        """Whether it may begin, by `max_fraction`, and for how many rows. What cannot be counted is refused."""
        fraction = self.purge.max_fraction
        if fraction is None:
            return Clearance()
        params = {"now": self._clock.now(), "fraction": repr(fraction)}
        try:
            ((due, needed, there),) = await self._database.fetch_steered(self._steer, self.composer.share(), params)
        except psycopg.Error as error:
            if not may_pass(error):
                raise
            why = error.diag.message_primary or type(error).__name__
            return Clearance(0, f"the table could not be counted for max_fraction={fraction:g}: {why}")
        if there >= needed:
            return Clearance(due)
        return Clearance(0, f"{due:,} of {there:,} rows would be touched; max_fraction={fraction:g} does not allow it")

    async def waiting(self, most: int, *, late_by: timedelta | None = None) -> int:
        """How many rows there are for it now, up to a number; only those that have been due or stale for so long, if given."""
        seconds = None if late_by is None else late_by.total_seconds()
        params = {"now": self._clock.now(), "most": most, "late_by": seconds}
        ((count,),) = await self._database.fetch_steered(self._steer, self.composer.purgeable(), params)
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
