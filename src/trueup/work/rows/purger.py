"""Moves and deletes stale rows at the database's own speed: one statement per batch, without a handler and without claims.

Every instance purges and skips rows that another one has locked. While whole batches are left, one message has several of them, so
that the database need not wait for this process. Rows that the database refuses, or that a trigger keeps, are taken by their keys.
With a rate, the fleet takes turns at the lane's row, batch by batch.

Before a sweep, `max_fraction` is compared with the share of the table that the sweep would touch. It is compared again when the sweep
has taken as many rows as there were then, because rows that came in between were not counted.

Rows that a trigger brings back would be the oldest again and again. If the front of the order does not move, rows are taken by their
keys, too: each of them once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import psycopg

from trueup.clock import Clock, elapsed
from trueup.errors import ConfigError
from trueup.events import Events, SweepRefused
from trueup.reconcile.counts import Counts
from trueup.store.db.connect import RETRYABLE, unanswered
from trueup.store.rows.purges import Clearance, Purges
from trueup.store.rows.reconcilers import Gate, Reconcilers
from trueup.work.registration import Holder
from trueup.work.rows.evaluation import forget, may_be_where, took_too_long
from trueup.work.rows.options import SweepOptions
from trueup.work.rows.pace import (
    LOOK_AT_GATE,
    PAUSED_LOOK,
    completed,
    first_after,
    next_batches,
    report_failure,
    swept_elsewhere,
    wait_for_rate,
)
from trueup.work.rows.refusals import MAX_REPEATS
from trueup.work.rows.refused_purges import RefusedPurges, Search, take
from trueup.work.service import Service, jittered
from trueup.work.writing import to_repeat

Progress = Callable[[Counts], None]


@dataclass(slots=True)
class _Walk:
    """The state of a sweep under way."""

    gate: Gate
    counts: Counts
    looked: float  # when the gate was last read
    until: float
    search: Search
    cleared_to: int | None = None  # after this many rows `max_fraction` is compared again; None: never
    over: bool = False


@dataclass(slots=True)
class _Front:
    """The row that is to be taken next. It stays the same when a trigger puts rows back, or another session has locked it."""

    purges: Purges
    state: str | None
    statements: int = 0
    key: str | None = None

    async def stays(self) -> bool:
        """Whether it is the same as before. It is looked at after 1, 2, 4, 8, … statements."""
        self.statements += 1
        if self.statements.bit_count() > 1:
            return False
        before, self.key = self.key, next((row.key for row in await self.purges.pick(self.state, most=1)), None)
        return self.key is not None and self.key == before


class Purger(Service):
    def __init__(
        self,
        purges: Purges,
        log: Reconcilers,
        clock: Clock,
        events: Events,
        holder: Holder,
        options: SweepOptions | None = None,
    ) -> None:
        """`options`: of a sweep by hand."""
        super().__init__(events)
        self._options = options or SweepOptions()
        self.purges = purges
        self.purge = purges.purge
        self.name = f"purger of {purges.purge.name}"
        self._log = log
        self._clock = clock
        self._holder = holder
        self._first = True
        self._swept_at: float | None = None
        self._repeats = 0  # how often in a row the server has asked for a statement to be repeated
        self._breaks = 0  # how often in a row no answer came to a statement

    async def run_once(self) -> float:
        gate = await self._gate()
        if gate.paused:
            return PAUSED_LOOK
        if self._first:
            self._first = False
            first_in = first_after(self.purge.every, self.purge.run_at_start, gate)
            if first_in > 0:
                return first_in
        if self._clock.now() is None and not (self.purge.run_at_start and self._swept_at is None):
            own_ago = None if self._swept_at is None else elapsed() - self._swept_at
            later = swept_elsewhere(self.purge.every, gate, own_ago)
            if later is not None:
                return later
        try:
            await self.sweep(gate)
        except (psycopg.Error, ConfigError) as error:
            if unanswered(error) or to_repeat(error):
                raise
            slow, again = "an index may be missing, or batch= be too large", self.purge.every.total_seconds()
            await report_failure(self._log, self.events, self.purge.name, error, again, slow)
        return jittered(self.purge.every.total_seconds())

    async def _gate(self) -> Gate:
        return self._options.opened(await self._log.gate(self.purge.name))

    async def _swept(self) -> None:
        self._swept_at = elapsed()
        if not self._options.cut_short:
            await self._log.swept(self.purge.name)

    async def sweep(self, gate: Gate | None = None, *, progress: Progress | None = None) -> Counts:
        """Take rows until none is left, the time is up, or the reconciler is paused."""
        gate = gate or await self._gate()
        counts = Counts()
        if gate.paused:
            return counts
        if gate.sign != self.purges.found.sign:  # the table has changed
            await self.purges.changed_since(self.purges.made)
        begun_at, started = gate.now, elapsed()
        until = float("inf") if self.purge.deadline is None else started + self.purge.deadline.total_seconds()
        walk = _Walk(gate, counts, started, until, Search(self.purges, counts, self.events))
        try:
            clearance = await self._cleared_past_raising(walk)
            if clearance is None or clearance.rows == 0:
                await self._swept()
                await self._tell(begun_at, counts, elapsed() - started)
                return counts
            walk.cleared_to = clearance.rows
            await self.purges.look()
            await self._take_all(walk, progress)
            await walk.search.end()
            if self.purges.passing:
                await forget(self.purges)
        except (psycopg.Error, ConfigError):  # the batches before the error are committed
            with suppress(*RETRYABLE):
                await self._tell(begun_at, counts, elapsed() - started)
            raise
        self._repeats = self._breaks = 0
        await self._swept()
        await self._tell(begun_at, counts, elapsed() - started)
        return counts

    async def _cleared_past_raising(self, walk: _Walk) -> Clearance | None:
        """`_cleared`. Rows for which `where=` raises cannot be counted, so they are found and passed over first."""
        made, begun = self.purges.made, elapsed()
        try:
            return await self._cleared()
        except psycopg.Error as error:
            slow = took_too_long(error, begun) and not may_be_where(self.purges, error)
            if unanswered(error) or slow or (to_repeat(error) and self._again()):
                raise
            if not await self.purges.changed_since(made, refusal=error):
                for state in self.purge.selection.states or (None,):
                    await self._refused(state, walk).find_all(lambda: self._go_on(walk))
                await walk.search.end()
        return await self._cleared()

    async def _cleared(self) -> Clearance | None:
        """After how many rows to compare again. None: `max_fraction` refuses the sweep, and an event says so."""
        clearance = await self.purges.clearance()
        if clearance.refusal is None:
            return clearance
        self.events.emit(SweepRefused(self.purge.name, clearance.refusal))
        return None

    async def _take_all(self, walk: _Walk, progress: Progress | None) -> None:
        counts = walk.counts

        def told() -> None:
            if progress is not None:
                progress(counts)

        for state in self.purge.selection.states or (None,):
            batches, front = 1, _Front(self.purges, state)
            while await self._go_on(walk):
                sent, made = elapsed(), self.purges.made
                if walk.cleared_to is not None:
                    batches = max(1, min(batches, (walk.cleared_to - counts.changed) // self.purge.batch))
                try:
                    taken = await take(self.purges, self._options, state, counts, batches)
                except psycopg.Error as error:
                    if unanswered(error):
                        self._breaks += 1
                        if self._breaks <= MAX_REPEATS:
                            raise
                    elif to_repeat(error) and self._again():
                        raise
                    if await self.purges.changed_since(made, refusal=error):
                        continue
                    await self._by_keys(state, walk, told)
                    break
                if taken.ask_again_after is not None:
                    if await wait_for_rate(taken.ask_again_after, self._stop, self._clock):
                        continue
                    break
                told()
                last = taken.over or taken.count < taken.asked
                if taken.count < taken.picked or (not last and await front.stays()):
                    await self._by_keys(state, walk, told)
                    break
                if last:
                    break
                if self.purges.in_a_row and self._options.limit is None:
                    batches = next_batches(batches, elapsed() - sent)

    async def _by_keys(self, state: str | None, walk: _Walk, told: Callable[[], None]) -> None:
        """Take the rest of this state by keys, and pass over rows that are refused or kept."""
        await self._refused(state, walk).take_all(lambda: self._go_on(walk), told)

    def _refused(self, state: str | None, walk: _Walk) -> RefusedPurges:
        return RefusedPurges(
            self.purges, self._options, state, walk.counts, self.events, self._stop, self._clock, walk.search
        )

    def _again(self) -> bool:
        """Whether to repeat a statement that the server asks to repeat."""
        self._repeats += 1
        return self._repeats < MAX_REPEATS

    async def _go_on(self, walk: _Walk) -> bool:
        """Whether to take more: there is time, the reconciler is not paused, and `max_fraction` allows it."""
        if walk.over or self._stop.is_set() or elapsed() >= walk.until:
            return False
        if elapsed() >= walk.looked + LOOK_AT_GATE:
            walk.gate, walk.looked = await self._gate(), elapsed()
        if walk.gate.paused:
            return False
        if walk.cleared_to is not None and walk.counts.changed >= walk.cleared_to:
            cleared = await self._cleared()
            if cleared is None or not cleared.rows:
                walk.over = True
                return False
            walk.cleared_to = walk.counts.changed + cleared.rows
        return True

    async def _tell(self, begun_at: datetime, counts: Counts, seconds: float) -> None:
        if counts.claimed:
            await self._log.log(self.purge.name, self._holder.id, begun_at, counts)
            self.events.emit(completed(self.purge.name, counts, seconds))
