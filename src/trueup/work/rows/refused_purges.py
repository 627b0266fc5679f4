"""Takes rows of a purge by their keys, after the database has refused a batch or a trigger has kept rows of one.

It walks on from row to row in the purge's order, so neither kind can end or starve a sweep. What is refused is sent again in halves,
down to the row: that is a failed attempt of that row, with PostgreSQL's words and none of the row's contents. A refusal that may pass (a
lock, a timeout, a full disk) is noted, and spends no attempt. The row is passed over
until it is worth another attempt, and is quarantined after the last. When the database refuses to note that as well (its disk is full,
say), the sweep ends with that error, and no row is blamed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import psycopg

from trueup.clock import Clock, elapsed
from trueup.events import Events, RowQuarantined, RowRetried
from trueup.jobs.failure import Failure, describe, type_name
from trueup.reconcile.counts import Counts
from trueup.store.db.connect import may_pass, unanswered
from trueup.store.rows.purges import Picked, Purges, Taken
from trueup.work.rows.options import SweepOptions
from trueup.work.rows.pace import wait_for_rate
from trueup.work.rows.refusals import MAX_REPEATS
from trueup.work.writing import REPEAT_PAUSE, parts, to_repeat

MAX_IN_A_ROW = 1_000  # refused rows without one that goes: the rest is left to the next sweep
FUTILE_FOR = 60.0  # seconds without one that goes, where each refusal takes long


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


class RefusedPurges:
    """For the rest of one state, in one sweep."""

    def __init__(
        self,
        purges: Purges,
        options: SweepOptions,
        state: str | None,
        counts: Counts,
        events: Events,
        stop: asyncio.Event,
        clock: Clock,
    ) -> None:
        self._purges = purges
        self._options = options
        self._state = state
        self._counts = counts
        self._events = events
        self._stop = stop
        self._clock = clock
        self._in_a_row = 0
        self._went_at = elapsed()
        self._over = False

    async def take_all(self, go_on: Callable[[], Awaitable[bool]], told: Callable[[], None]) -> None:
        """Raises what is not about a single row."""
        await self._purges.probe(self._state)
        last: Picked | None = None
        while not self._over and await go_on():
            rows = await self._purges.pick(self._state, last)
            if not rows:
                return
            last = rows[-1]
            await self._take(rows)
            told()

    async def _take(self, rows: Sequence[Picked]) -> None:
        repeats = 0
        while rows and not self._over and not self._stop.is_set():
            try:
                taken = await take(self._purges, self._options, self._state, self._counts, rows=rows)
            except psycopg.Error as error:
                if unanswered(error):
                    raise
                if to_repeat(error) and repeats < (MAX_REPEATS if len(rows) == 1 else 1):
                    repeats += 1
                    await asyncio.sleep(REPEAT_PAUSE)
                    continue
                if len(rows) == 1:
                    await self._refused(rows[0], error)
                    return
                for part in parts(rows, error):
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

    async def _refused(self, row: Picked, error: psycopg.Error) -> None:
        name, retry, spent = self._purges.purge.name, self._purges.purge.retry, not may_pass(error)
        attempt = row.attempt + spent
        failure = Failure(row.attempt + 1, type_name(error), describe(error), "")
        self._over = self._over or self._give_up_for_now()
        delay = retry.delay(row.attempt + 1) if not spent or attempt < retry.max_attempts else None
        reason = failure.message if delay is not None else "out of attempts"
        if not await self._purges.refused(row, failure, delay, reason, attempt):
            return  # another worker has met it, too
        self._counts.claimed += 1
        if delay is None:
            self._counts.quarantined += 1
            quarantined = RowQuarantined(name, row.key, attempt, reason, failure.type, failure.message)
            self._events.emit(quarantined.because(error))
        else:
            self._counts.retry += 1
            ms, most = delay.total_seconds() * 1000, retry.max_attempts
            retried = RowRetried(name, row.key, failure.attempt, most, ms, failure.type, failure.message)
            self._events.emit(retried.because(error))

    def _give_up_for_now(self) -> bool:
        """Whether so much has been refused without anything going that the whole table seems to be concerned."""
        self._in_a_row += 1
        return self._in_a_row >= MAX_IN_A_ROW or (self._in_a_row > 2 and elapsed() - self._went_at > FUTILE_FOR)
