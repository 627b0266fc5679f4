"""Moves and deletes stale rows at the database's own speed: one statement per batch, no handler, no claim.

Every instance does it; rows that another has locked are left to it. While there are whole batches to take, several are asked for in
one message, so that the database need not wait for this process. With a rate the fleet takes turns at the lane's row, a batch at a time.
Before it begins, `max_fraction` is compared with how much of the table would be touched, as it is then; and again when it has taken as
many rows as there were at that moment, since whatever came meanwhile was not part of the comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from uuid import UUID

import psycopg
from psycopg import errors

from trueup.clock import Clock, elapsed
from trueup.events import Events, ServiceFailed, SweepRefused
from trueup.reconcile.counts import Counts
from trueup.store.connect import RETRYABLE
from trueup.store.purges import Clearance, Purges
from trueup.store.reconcilers import Gate, Reconcilers
from trueup.worker.rows.pace import LOOK_AT_GATE, PAUSED_LOOK, completed, first_after, next_batches, wait_for_rate
from trueup.worker.service import Service, jittered

Progress = Callable[[Counts], None]


class Purger(Service):
    def __init__(
        self, purges: Purges, log: Reconcilers, clock: Clock, events: Events, holder: Callable[[], UUID]
    ) -> None:
        super().__init__(events)
        self.purges = purges
        self.purge = purges.purge
        self.name = f"purger of {purges.purge.name}"
        self._log = log
        self._clock = clock
        self._holder = holder
        self._first = True

    async def run_once(self) -> float:
        gate = await self._log.gate(self.purge.name)
        if gate.paused:
            return PAUSED_LOOK
        if self._first:
            self._first = False
            first_in = first_after(self.purge.every, self.purge.run_at_start, gate)
            if first_in > 0:
                return first_in
        try:
            await self.sweep(gate)
        except errors.QueryCanceled:
            hint = "a statement took longer than statement_timeout; an index may be missing, or batch= be too large"
            self.events.emit(ServiceFailed(self.name, "QueryCanceled", hint))
        return jittered(self.purge.every.total_seconds())

    async def sweep(self, gate: Gate | None = None, *, progress: Progress | None = None) -> Counts:
        """Until no row is left for it, its time is up, or a person pauses it."""
        gate = gate or await self._log.gate(self.purge.name)
        counts = Counts()
        if gate.paused:
            return counts
        begun_at, started = gate.now, elapsed()
        clearance = await self._cleared()
        if clearance is None or clearance.rows == 0:
            await self._log.swept(self.purge.name)
            return counts
        try:
            await self._take_all(gate, counts, started, progress, clearance.rows)
        except psycopg.Error:  # what was taken before it is gone all the same
            with suppress(*RETRYABLE):
                await self._tell(begun_at, counts, elapsed() - started)
            raise
        await self._log.swept(self.purge.name)
        await self._tell(begun_at, counts, elapsed() - started)
        return counts

    async def _cleared(self) -> Clearance | None:
        """None: `max_fraction` does not allow it, which is told."""
        clearance = await self.purges.clearance()
        if clearance.refusal is None:
            return clearance
        self.events.emit(SweepRefused(self.purge.name, clearance.refusal))
        return None

    async def _take_all(
        self, gate: Gate, counts: Counts, started: float, progress: Progress | None, cleared_to: int | None
    ) -> None:
        """`cleared_to`: after so many rows `max_fraction` is compared anew; None: never."""
        until = float("inf") if self.purge.deadline is None else started + self.purge.deadline.total_seconds()
        looked = started
        for state in self.purge.selection.states or (None,):
            batches = 1
            while not self._stop.is_set() and elapsed() < until and not gate.paused:
                sent = elapsed()
                if sent >= looked + LOOK_AT_GATE:
                    gate, looked = await self._log.gate(self.purge.name), sent
                    if gate.paused:
                        break
                if cleared_to is not None:
                    if counts.changed >= cleared_to:
                        cleared = await self._cleared()
                        if cleared is None or not cleared.rows:
                            return
                        cleared_to = counts.changed + cleared.rows
                    batches = max(1, min(batches, (cleared_to - counts.changed) // self.purge.batch))
                taken = await self.purges.take(state, counts, batches)
                if taken.ask_again_after is not None:
                    if await wait_for_rate(taken.ask_again_after, self._stop, self._clock):
                        continue
                    break
                if progress is not None:
                    progress(counts)
                if taken.count < taken.asked:
                    break
                if self.purges.in_a_row:
                    batches = next_batches(batches, elapsed() - sent)

    async def _tell(self, begun_at: datetime, counts: Counts, seconds: float) -> None:
        if counts.claimed:
            await self._log.log(self.purge.name, self._holder(), begun_at, counts)
            self.events.emit(completed(self.purge.name, counts, seconds))
