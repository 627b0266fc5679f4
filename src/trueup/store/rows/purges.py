"""Moving and deleting rows of users' tables in batches, without handlers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import orjson
import psycopg

from trueup.clock import Clock
from trueup.jobs.limits import grant
from trueup.reconcile.counts import Counts
from trueup.reconcile.lateness import BOUNDS_S
from trueup.reconcile.purge import Purge
from trueup.store.db import message
from trueup.store.db.connect import TIMED_OUT, may_pass, unanswered
from trueup.store.db.load import Statements
from trueup.store.db.message import Answers, Fetched, Part, Query
from trueup.store.db.own_connection import fetch
from trueup.store.db.repository import Database
from trueup.store.db.texts import text_of
from trueup.store.fitted import Look, PurgeStatements
from trueup.store.rows.compose import Purging
from trueup.store.rows.evaluating import Evaluated, KnownRow, Refusal, drop_unreadable, evaluate
from trueup.store.rows.on_table import OnTable
from trueup.store.rows.tables import Found

ALIKE = 0.01  # rows whose lateness differs by a smaller share than this count as evenly spread
BEFORE = 2  # statements in front of each batch: `begin`, and the planner's settings


@dataclass(frozen=True, slots=True)
class Picked(KnownRow):
    """A row to be taken by its key."""

    order: str | None
    key_texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """How many rows were asked for, taken and picked. Rows that were picked and not taken were kept by a trigger."""

    asked: int = 0
    count: int = 0
    picked: int = 0
    ask_again_after: timedelta | None = None
    over: bool = False  # no further batch may be taken


@dataclass(frozen=True, slots=True)
class Clearance:
    """How many rows may be taken before `max_fraction` is compared again (None: any number), or why none may be taken."""

    rows: int | None = None
    refusal: str | None = None


class Purges(OnTable[PurgeStatements]):
    """The statements of one move or deletion over one table."""

    def __init__(
        self,
        database: Database,
        statements: Statements,
        clock: Clock,
        purge: Purge,
        found: Found,
        timeout: timedelta,
        look: Look | None = None,
    ) -> None:
        make = partial(PurgeStatements, statements, purge)
        super().__init__(database, statements, clock, timeout, found, make, look)
        self.purge = purge
        self.passing = False  # whether it has records of rows, which are passed over

    @property
    def composer(self) -> Purging:
        return self.made.composer

    def statement(self) -> tuple[bytes, dict[str, Any]]:
        """The first statement of a sweep, to examine its plan."""
        state = next(iter(self.purge.selection.states), None)
        return self.made.take(state, "all"), {**self._params(), "most": self.purge.batch}

    @property
    def in_a_row(self) -> bool:
        """Whether one message may have several batches. With a rate, a batch depends on how many rows the one before took."""
        return self.purge.lane is None

    async def take(
        self,
        state: str | None,
        counts: Counts,
        batches: int = 1,
        rows: Sequence[Picked] | None = None,
        *,
        most: int | None = None,
    ) -> Taken:
        """Move or delete rows in this state, oldest first: several batches, each in its own transaction, in one message.

        With `rows`, it takes these rows. Batches that succeed are counted even if a later one fails. `most` makes batches smaller
        than declared.
        """
        most = self.purge.batch if most is None else most
        batch, before = most if rows is None else min(most, len(rows)), counts.changed
        if self.purge.lane is not None:
            return await self._take_in_turn(self.purge.lane, state, counts, batch, rows)
        parts = [b"BEGIN", Query(self.steer, {}), *self._parts(state, batch, rows), b"COMMIT"]
        picked = 0

        def answered(answers: Answers) -> None:
            nonlocal picked
            for begin in range(0, len(answers) - len(parts) + 1, len(parts)):
                picked += self._count(answers, begin + BEFORE, counts)

        await self.claiming.repeat(batches, parts, answered)
        return Taken(batch * batches, counts.changed - before, picked)

    async def _take_in_turn(
        self, lane: str, state: str | None, counts: Counts, batch: int, rows: Sequence[Picked] | None
    ) -> Taken:
        """Take as many rows as the fleet's rate allows."""
        async with self.claiming.transaction() as connection:
            locked = await fetch(connection, self.statements["lanes/lock"], {"now": self.clock.now(), "lane": lane})
            if not locked:
                return Taken(ask_again_after=timedelta(milliseconds=50))
            now, next_start_at, last_key = locked[0]
            granted = grant(self.purge.rate, next_start_at, now, batch)
            asked = len(granted.slots)
            if not asked:
                return Taken(ask_again_after=granted.wait)
            parts = self._parts(state, asked, rows)
            texts = [message.filled(connection, part) if isinstance(part, Query) else part for part in parts]
            answers = await message.send(connection, self.steer, *texts)
            taken = Counts()
            picked = self._count(answers.check(), 1, taken)
            if taken.changed:
                next_start = granted.next_start_at(taken.changed, self.purge.rate)
                advanced = {"lane": lane, "next_start_at": next_start, "last_key": last_key}
                await fetch(connection, self.statements["lanes/advance"], advanced)
        counts.include(taken)
        return Taken(asked, taken.changed, picked)

    def _parts(self, state: str | None, most: int, rows: Sequence[Picked] | None) -> list[Part]:
        """A batch, and how late its rows were."""
        params = {**self._params(), "most": most, "reconciler": self.purge.name}
        if rows is None:
            call = Query(self.made.take(state, "passing" if self.passing else "all"), params)
        else:
            keys = zip(*(row.key_texts for row in rows[:most]), strict=True)
            params |= {f"k{n}": list(column) for n, column in enumerate(keys, 1)}
            call = Query(self.made.take(state, "keyed"), params)
        return [call] if self.found.partitioned else [call, Query(self.statements["rows/told"], {})]

    def _count(self, answers: Answers, n: int, counts: Counts) -> int:
        """Count the results of the batch whose first answer is number `n`. Returns how many rows it picked."""
        if self.found.partitioned:
            ((picked, count, latest, earliest, each),) = answers.rows(n)
        else:
            count, ((text,),) = answers.count(n), answers.rows(n + 1)
            told = orjson.loads(text)
            picked, latest, earliest, each = (told.get(name) for name in ("picked", "latest", "earliest", "each"))
        counts.claimed += count
        counts.changed += count
        if each is not None:
            for seconds in each[:count]:  # a trigger may have kept some rows, and it is not known which
                counts.lateness.add(seconds)
        elif latest is not None and earliest is not None:
            counts.lateness.add_alike(count, latest, earliest)
        return int(picked)

    # -- rows that are refused ----------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Find out whether there are records of rows to pass over."""
        params = {"reconciler": self.purge.name}
        ((self.passing,),) = await self.claiming.fetch(self.statements["rows/any_known"], params)

    async def probe(self, state: str | None) -> None:
        """Run the statement for no row. Raises when the database refuses even that, so that no row is to blame."""
        params = {**self._params(), "most": 0, "reconciler": self.purge.name}
        async with self.claiming.transaction() as connection:
            await connection.execute(self.steer)
            await connection.execute(self.made.take(state, "passing"), params)

    async def pick(
        self, state: str | None, after: Picked | None = None, *, where: bool = True, most: int | None = None
    ) -> list[Picked]:
        """The next batch of rows behind this one; without `where`, a window of rows that need not match `where=`."""
        params: dict[str, Any] = self.about_window()
        params["most"] = most or (self.purge.batch if where else params["window"])
        if after is not None:
            params |= {"after_order": after.order}
            params |= {f"after_{n}": text for n, text in enumerate(after.key_texts, 1)}
        query = self.made.pick(state, after=after is not None, where=where)
        rows = await self.claiming.fetch_steered(self.steer, query, params)
        return [
            Picked(key, whole, of, attempt, term, last_error, order, tuple(texts))
            for key, whole, of, order, attempt, term, last_error, *texts in rows
        ]

    def about_window(self) -> dict[str, Any]:
        return {"now": self.clock.now(), "reconciler": self.purge.name, "window": max(1_000, self.purge.batch)}

    async def evaluate_in(self, state: str | None, rows: Sequence[KnownRow]) -> Evaluated:
        """Find out which of these rows, all in one state, are to be taken, and which raise."""
        return await evaluate(self, self.made.evaluate(state), rows)

    async def evaluate(self, rows: Sequence[KnownRow]) -> Evaluated:
        """The same, of rows in any state."""
        return await evaluate(self, self.made.forgetting.evaluate(), rows)

    async def drop_unreadable(self, rows: Sequence[KnownRow]) -> set[str]:
        """Delete the records of these rows whose keys no row can have any more. Returns their keys."""
        return await drop_unreadable(self, self.made.forgetting.readable(), rows)

    async def refuse(self, refusals: Sequence[Refusal]) -> set[str]:
        self.passing = True
        return await super().refuse(refusals)

    async def forget(self, unread: Sequence[str] = ()) -> None:
        """Delete some of the records of rows that are gone or no longer match.

        `unread` are keys of rows whose evaluation raises; their records stay.
        """
        await self._forget(self.made.forgetting.forget(), self.about_window(), unread)

    # -- how much -----------------------------------------------------------------------------------------------------

    async def clearance(self) -> Clearance:
        """Whether `max_fraction` lets a sweep begin, and for how many rows. Rows that cannot be counted are refused."""
        fraction = self.purge.max_fraction
        if fraction is None:
            return Clearance()
        params = {**self.about_window(), "fraction": repr(fraction)}
        try:
            ((due, needed, there),) = await self._counted("share", params)
        except psycopg.Error as error:
            if not may_pass(error):
                raise
            why = error.diag.message_primary or type(error).__name__
            return Clearance(0, f"the table could not be counted for max_fraction={fraction:g}: {why}")
        if there >= needed:
            return Clearance(due)
        return Clearance(0, f"{due:,} of {there:,} rows would be changed, more than max_fraction={fraction:g} allows")

    async def listed(self, most: int) -> Fetched:
        """(key, state, due since) of the rows that match now, oldest first."""
        return await self._counted("listed", {**self.about_window(), "most": most})

    async def _counted(self, name: str, params: dict[str, Any]) -> Fetched:
        try:
            return await self.claiming.fetch_steered(self.steer, getattr(self.composer, name)(), params)
        except psycopg.Error as error:
            if unanswered(error) or isinstance(error, TIMED_OUT) or self.found.spec.where is None:
                raise
        return await self.claiming.fetch_steered(self.steer, getattr(self.made.guarded, name)(), params)

    def _params(self) -> dict[str, Any]:
        values = {
            f"c{n}": text_of(self.purge.columns[name], self.found.columns[name])
            for n, name in enumerate(sorted(self.purge.columns), 1)
        }
        return {
            "now": self.clock.now(),
            "alike": ALIKE,
            "bounds": [-bound for bound in reversed(BOUNDS_S)],
            **values,
        }
