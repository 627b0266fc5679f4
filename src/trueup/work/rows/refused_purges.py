"""Takes rows of a purge by their keys, after the database has refused a batch or a trigger has kept rows of one.

It walks on from row to row in the purge's order, so refused and kept rows can neither end nor starve a sweep. A refused batch is sent
again in halves, down to the culprit, which gets a failed attempt with PostgreSQL's message and none of the row's contents. The row is
passed over until its next attempt is due, and is quarantined after the last one. A row for which `where=` raises is treated the same:
rows are then picked without `where=` and evaluated by their keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import psycopg

from trueup.clock import Clock, elapsed
from trueup.events import Events
from trueup.reconcile.counts import Counts
from trueup.store.db.connect import TIMED_OUT, is_away, unanswered
from trueup.store.rows.kept import keeps_state
from trueup.store.rows.purges import Picked, Purges, Taken
from trueup.work.rows.evaluation import MAX_WINDOWS, NOT_EVALUATED, may_be_where, not_evaluated, took_too_long
from trueup.work.rows.options import SweepOptions
from trueup.work.rows.pace import wait_for_rate
from trueup.work.rows.refusals import MAX_REPEATS, OutcomeUndone, blame
from trueup.work.writing import REPEAT_PAUSE, SLOW, ConnectionEnded, parts

FEW = 32  # rows that go together after a refusal that took long
MAX_IN_A_ROW = 1_000  # refused rows without one that is taken; the rest is left to the next sweep
FUTILE_FOR = 60.0  # seconds without a row that is taken, when each refusal takes long


async def take(
    purges: Purges,
    options: SweepOptions,
    state: str | None,
    counts: Counts,
    batches: int = 1,
    rows: Sequence[Picked] | None = None,
) -> Taken:
    """As `Purges.take`, of as many rows as the sweep may claim."""
    most = options.at_most(purges.purge.batch)
    if not most:
        return Taken(over=True)
    taken = await purges.take(state, counts, batches, rows, most=most)
    options.spend(taken.count)
    return taken


class Search:
    """Finds rows for which `where=` raises, in one sweep. As long as no row can be evaluated, none is blamed."""

    def __init__(self, purges: Purges, counts: Counts, events: Events) -> None:
        self._purges = purges
        self._counts = counts
        self._events = events
        self.error: psycopg.Error | None = None  # the error of a statement over many rows
        self.works = False  # whether any row can be evaluated
        self._windows = 0
        self._raising: list[tuple[Picked, Exception]] = []

    @property
    def hopeless(self) -> bool:
        return self._windows >= MAX_WINDOWS and not self.works

    async def among(self, state: str | None, rows: Sequence[Picked]) -> list[Picked]:
        """The rows among these that are to be taken."""
        evaluated = await self._purges.evaluate_in(state, rows)
        self._windows += 1
        self.works = self.works or evaluated.any_works
        self._raising += [(row, evaluated.refused[row.key]) for row in rows if row.key in evaluated.refused]
        if self.works:
            await self._blame()
        return [row for row in rows if row.key in evaluated.free]

    async def end(self) -> None:
        """Raises the error of the statement if no row could be evaluated: then the expression itself is broken."""
        works = self.works or self._counts.changed > 0
        raising = self._raising
        self._raising = [(row, error) for row, error in raising if works or row.last_error == NOT_EVALUATED]
        innocent = len(raising) - len(self._raising)
        await self._blame()
        if innocent and self.error is not None:
            raise self.error

    async def _blame(self) -> None:
        purge, where = self._purges.purge, self._purges.found.spec.where
        refused = [(row, not_evaluated(where, error)) for row, error in self._raising]
        self._raising = []
        if refused:
            await blame(purge.name, purge.retry, refused, self._purges.refuse, self._counts, self._events)


@dataclass(eq=False)
class RefusedPurges:
    """Takes the rest of one state, in one sweep."""

    _purges: Purges
    _options: SweepOptions
    _state: str | None
    _counts: Counts
    _events: Events
    _stop: asyncio.Event
    _clock: Clock
    _search: Search
    _in_a_row: int = 0
    _went_at: float = field(default_factory=elapsed)
    _over: bool = False

    async def take_all(self, go_on: Callable[[], Awaitable[bool]], told: Callable[[], None]) -> None:
        """Raises an error that is not about a single row."""
        await self._purges.probe(self._state)
        async for rows in self._picked(go_on):
            await self._take(rows)
            told()

    async def find_all(self, go_on: Callable[[], Awaitable[bool]]) -> None:
        """Blame the rows for which `where=` raises, and take none."""
        async for _ in self._picked(go_on):
            pass

    async def _picked(self, go_on: Callable[[], Awaitable[bool]]) -> AsyncIterator[list[Picked]]:
        """The rows that are left, batch by batch. If `where=` raises for one of them, they are evaluated apart."""
        last: Picked | None = None
        apart = False
        while not self._over and not self._search.hopeless and await go_on():
            begun = elapsed()
            try:
                rows = await self._purges.pick(self._state, last, where=not apart)
            except psycopg.Error as error:
                slow = took_too_long(error, begun) and not may_be_where(self._purges, error)
                if apart or unanswered(error) or slow:
                    raise
                self._search.error, apart = error, True
                continue
            if not rows:
                return
            last = rows[-1]
            self._search.works = self._search.works or not apart
            picked = await self._search.among(self._state, rows) if apart else rows
            if picked:
                yield picked

    async def _take(self, rows: Sequence[Picked]) -> None:
        repeats = 0
        while rows and not self._over and not self._stop.is_set():
            begun = elapsed()
            try:
                taken = await take(self._purges, self._options, self._state, self._counts, rows=rows)
            except psycopg.Error as error:
                if unanswered(error):
                    await self._purges.probe(self._state)  # raises if the server itself is away
                if is_away(error) and repeats < (MAX_REPEATS if len(rows) == 1 else 1):
                    repeats += 1
                    await asyncio.sleep(REPEAT_PAUSE)
                    continue
                if len(rows) == 1:
                    await self._refused(rows[0], ConnectionEnded.by(error) if unanswered(error) else error)
                    return
                for part in _divided(rows, error, elapsed() - begun):
                    await self._take(part)
                return
            if taken.ask_again_after is not None:
                self._over = not await wait_for_rate(taken.ask_again_after, self._stop, self._clock)
                continue
            self._over = taken.over
            kept = taken.picked - taken.count
            self._counts.claimed += kept
            self._counts.undone += kept
            if taken.count:
                self._in_a_row, self._went_at = 0, elapsed()
            rows = rows[taken.asked :]

    async def _refused(self, row: Picked, error: Exception) -> None:
        if keeps_state(error):
            error = OutcomeUndone(f"a trigger of table {self._purges.found.spec} keeps the row in its state")
        self._over = self._over or self._give_up_for_now()
        purge = self._purges.purge
        await blame(purge.name, purge.retry, [(row, error)], self._purges.refuse, self._counts, self._events)

    def _give_up_for_now(self) -> bool:
        """Whether so many rows were refused, and none was taken, that the whole table seems to be the reason."""
        self._in_a_row += 1
        return self._in_a_row >= MAX_IN_A_ROW or (self._in_a_row > 2 and elapsed() - self._went_at > FUTILE_FOR)


def _divided(rows: Sequence[Picked], error: Exception, took: float) -> list[Sequence[Picked]]:
    """A row that is slow would slow down each half that it is in: after a refusal that took long, a few rows go together, then each alone."""
    if took < SLOW or isinstance(error, TIMED_OUT):
        return [*parts(rows, error, took)]
    size = FEW if len(rows) > FEW else 1
    return [rows[first : first + size] for first in range(0, len(rows), size)]
