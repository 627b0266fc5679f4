"""Sweeps: looks for a reconciler's rows, `every` so often, and sees each of them through.

A whole sweep first takes, one at a time, rows whose process died with them. Then batches of two kinds in turn, until neither
has any left: rows whose time has come again (failed before, or to be revisited), longest due first; and rows that nothing is
known about, in the order asked for, from wherever the sweep has come to. So no row is looked at twice in a sweep, rows that
always fail end it like others, and neither kind can starve the other. Between whole sweeps it wakes for rows whose time has
come again. Every instance does this; the rows are shared by what is known about them in the database.

While the reconciler is paused, by a person or by its breaker, nothing is claimed; a sweep that a pause cuts short is made up
for when the pause is over.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from psycopg import errors

from trueup import faults
from trueup.clock import elapsed
from trueup.errors import ConfigError, DatabaseUnavailable, LostClaim
from trueup.events import (
    Events,
    ReconcilerPaused,
    ReconcilerResumed,
    RowsClaimed,
    ServiceFailed,
)
from trueup.jobs.failure import Failure, describe, type_name
from trueup.jobs.outcome import GiveUp
from trueup.reconcile.breaker import Breaker
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.counts import Counts
from trueup.reconcile.decide import BackOff, Change, SetAside, Verdict, decide
from trueup.store.connect import RETRYABLE
from trueup.store.pool import Few
from trueup.store.reconcilers import Gate, Reconcilers
from trueup.store.rows import Batch, Position, Rows
from trueup.worker.calling import Caller
from trueup.worker.rows.crew import Crew
from trueup.worker.rows.handled import Handled
from trueup.worker.rows.handling import Handling, check_outcome
from trueup.worker.rows.held import Held
from trueup.worker.rows.pace import LOOK_AT_GATE, PAUSED_LOOK, completed, first_after, wait_for_rate
from trueup.worker.rows.settler import Count, Settler, Settling
from trueup.worker.service import Service, jittered

SOONEST = (0.05, 1.0)  # seconds between two looks for rows whose time has come again: a tenth of `every`, within these
PATIENT_FROM = 2  # failures for the same reason, one after the other: more than one row has it

Progress = Callable[[Counts], None]


@dataclass(slots=True)
class Walk:
    """How far a sweep has come."""

    begun_at: datetime  # rows due later than this are for the next one
    cut_off: datetime  # and so are rows due again later than this
    fresh: bool  # there may be rows that nothing is known about
    again: bool = True  # there may be rows whose time has come again
    position: Position | None = None

    @property
    def unfinished(self) -> bool:
        return self.again or self.fresh


class Sweeper(Service):
    def __init__(
        self,
        rows: Rows,
        log: Reconcilers,
        connections: Few,
        caller: Caller,
        events: Events,
        holder: Callable[[], UUID],
        *,
        gather_for: timedelta,
    ) -> None:
        super().__init__(events)
        self.rows = rows
        self.reconciler = rows.reconciler
        self.name = f"sweeper of {rows.reconciler.name}"
        self._log = log
        self._holder = holder
        self._random = random.Random()  # noqa: S311 - jitter
        self.settler = Settler(rows, events, self._random, gather_for=gather_for, on_settled=self._settled)
        handling = Handling(rows, connections, caller, self._random)
        self.crew = Crew(rows, handling, self.settler, events, judge=self._judge)
        self._breaker = Breaker(self.reconciler.pause_after, self.reconciler.pause_for)
        self._opened_at = 0.0
        self._streak: list[ClaimedRow] = []
        self._resting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._counts = Counts()
        self._progress: Progress | None = None
        self._turn_of_again = False
        self._cut_short = False  # by a pause, or the end of this process
        self._looked = 0.0
        self._due: float | None = None

    def in_hand(self) -> Iterable[Held]:
        """What is waiting, being handled, or still to be written. Also called on the keeper's thread."""
        return [*self.crew.in_hand(), *self.settler.in_hand()]

    # -- when ---------------------------------------------------------------------------------------------------------

    async def run_once(self) -> float:
        gate = await self._log.gate(self.reconciler.name)
        if gate.closed:
            return min(PAUSED_LOOK, gate.rests_for or PAUSED_LOOK)
        if self.crew.stuck:
            hint = "every handler that runs here has lost its row, was cancelled, and does not end"
            self.events.emit(ServiceFailed(self.name, "Stuck", hint))
            return PAUSED_LOOK
        if self._due is None:
            self._due = elapsed() + first_after(self.reconciler.every, self.reconciler.run_at_start, gate)
        begun = elapsed()
        whole = begun >= self._due
        try:
            await self.sweep(gate, whole=whole)
        except errors.QueryCanceled:
            hint = "a statement took longer than statement_timeout; an index may be missing"
            self.events.emit(ServiceFailed(self.name, "QueryCanceled", hint))
        if whole and not self._cut_short:
            # At once after one that took longer: it has left alone what became due since it began.
            self._due = max(elapsed(), begun + jittered(self.reconciler.every.total_seconds()))
        return await self._pause()

    async def _pause(self) -> float:
        assert self._due is not None
        whole_in = max(0.0, self._due - elapsed())
        next_in = await self.rows.next_due_in()
        soonest = min(max(self.reconciler.every.total_seconds() / 10, SOONEST[0]), SOONEST[1])
        return whole_in if next_in is None else min(whole_in, max(next_in, soonest))

    # -- one sweep ----------------------------------------------------------------------------------------------------

    async def sweep(self, gate: Gate | None = None, *, whole: bool = True, progress: Progress | None = None) -> Counts:
        """Look at every row there is for it, once. Not whole: only at those whose time has come again.

        On a clock that somebody moves by hand, a sweep also ends when the rate allows no more for the moment.
        """
        gate = gate or await self._log.gate(self.reconciler.name)
        counts = self._counts = Counts()
        self._progress = progress
        self._cut_short = gate.closed
        if gate.closed:
            return counts
        self._heed(gate)
        self.settler.start()
        started = self._looked = elapsed()
        try:
            await self._crashed(gate.now)
            await self._batches(Walk(gate.now, gate.now, fresh=whole))
        except Exception:  # the database is away, say: what is in hand is seen through all the same
            await self._see_through()
            raise
        await self._see_through()
        if whole and not self._cut_short:
            await self.rows.forget()
            await self._log.swept(self.reconciler.name)
        if counts.claimed and (whole or counts.unchanged < counts.claimed):  # passes without a change come every second
            await self._log.log(self.reconciler.name, self._holder(), gate.now, counts)
            self.events.emit(completed(self.reconciler.name, counts, elapsed() - started))
        return counts

    async def _see_through(self) -> None:
        """Until nothing of this sweep is in hand, and all that is to be said about it is written."""
        if self._enough():
            self.crew.give_back()
        await self.crew.until(lambda: self.crew.idle)
        self.settler.hurry()
        await self.crew.until(lambda: self._over)
        aside = [task for task in (self._resting, self._closing) if task is not None]
        if aside:
            await asyncio.wait(aside)

    @property
    def _over(self) -> bool:
        return self.crew.idle and self._counts.settled >= self._counts.claimed

    def _enough(self) -> bool:
        return self._stop.is_set() or self._cut_short or self.crew.stuck

    async def _crashed(self, started_at: datetime) -> None:
        """Rows that were in a process when it died, one at a time: the one that kills must not take others along again."""
        while not self._enough():
            await self._look()
            if self._enough():
                return
            batch = await self._claim(self.rows.claim_again(self._holder(), 1, started_at, crashed=True))
            if batch.ask_again_after is not None:
                if not await wait_for_rate(batch.ask_again_after, self._stop, self.rows.clock):
                    return
            elif not batch.rows:
                return
            await self.crew.until(lambda: self._over)

    async def _batches(self, walk: Walk) -> None:
        every, deadline = self.reconciler.every.total_seconds(), self.reconciler.deadline
        begun = elapsed()
        until = float("inf") if deadline is None else begun + deadline.total_seconds()
        refresh = begun + every
        while walk.unfinished and not self._enough() and elapsed() < until:
            gate = await self._look()
            if self._enough():
                break
            if gate is not None and self._looked >= refresh:
                # A long sweep: rows whose time has come meanwhile need not wait for its end.
                refresh = self._looked + every
                walk.cut_off, walk.again = gate.now, True
                await self.crew.until(lambda: self._over)
                await self._crashed(gate.now)
            batch = await self._next(walk)
            wait = batch.ask_again_after
            if wait is not None and not await wait_for_rate(wait, self._stop, self.rows.clock):
                return
            await self.crew.until(self._has_room)
        self._cut_short = self._enough()

    async def _look(self) -> Gate | None:
        """The gate, when it is time to look at it again. A pause cuts the sweep short."""
        if elapsed() < self._looked + LOOK_AT_GATE:
            return None
        gate = await self._log.gate(self.reconciler.name)
        self._looked = elapsed()
        self._cut_short = self._cut_short or gate.closed
        return gate

    async def _next(self, walk: Walk) -> Batch:
        """One claim, of the two kinds in turn while both have some; a turn is remembered from sweep to sweep."""
        most = 1 if self._breaker.probing else self.reconciler.batch
        if walk.again and (self._turn_of_again or not walk.fresh):
            batch = await self._claim(self.rows.claim_again(self._holder(), most, walk.cut_off, crashed=False))
            if batch.ask_again_after is None:
                self._turn_of_again = False
                if not batch.rows:
                    walk.again = bool(await self.rows.forget())
        else:
            batch = await self._claim(self.rows.claim_fresh(self._holder(), most, walk.position, walk.begun_at))
            if batch.ask_again_after is None:
                self._turn_of_again = True
                walk.position = batch.position or walk.position
                walk.fresh = not batch.exhausted
        return batch

    def _has_room(self) -> bool:
        """Whether to claim more: half a batch ahead of what runs; while probing, when all is known of the last one."""
        if self._breaker.probing:
            return self._over
        return self._enough() or self.crew.waiting + self.settler.pending <= self.reconciler.batch // 2

    async def _claim(self, claim: Awaitable[Batch]) -> Batch:
        if faults.ARMED:
            faults.hit("before_row_claim")
        begun, sent = elapsed(), self.rows.clock.elapsed()
        batch = await claim
        if not batch.rows:
            return batch
        if faults.ARMED:
            faults.hit("after_row_claim")
        self._counts.claimed += len(batch.rows)
        for row in batch.rows:
            if row.due_at is not None:
                self._counts.lateness.add((row.claimed_at - row.due_at).total_seconds())
        if self.events.wants(RowsClaimed):
            ms = round((elapsed() - begun) * 1000, 3)
            self.events.emit(RowsClaimed(self.reconciler.name, str(self._holder()), len(batch.rows), ms))
        self.crew.put(batch, sent)
        return batch

    def _settled(self, settling: Settling, count: Count) -> None:
        setattr(self._counts, count, getattr(self._counts, count) + 1)
        if self._progress is not None:
            self._progress(self._counts)
        self.crew.note()

    # -- the breaker --------------------------------------------------------------------------------------------------

    def _heed(self, gate: Gate) -> None:
        """What the fleet knows: it has rested and nobody has found it working yet, or somebody has."""
        if gate.pauses > 0:
            self._breaker.probing = True
        elif self._breaker.probing:
            self._breaker.close()

    def _judge(self, held: Held, handled: Handled) -> Verdict:
        """After a handler's run: what becomes of its row, and may the reconciler go on?"""
        row, error = held.row, handled.ended
        if not isinstance(error, BaseException):
            self._worked(held)
            return self._decide(held, handled)
        if handled.unspent:
            return BackOff(self.reconciler.retry.delay(1), Failure.of(error, row.attempt), spend=False)
        own = isinstance(error, GiveUp | LostClaim) or row.spent or not self.reconciler.retry.worth_retrying(error)
        if own or not self._breaker.counts(row.key):
            return self._decide(held, handled)
        kind = type_name(error)
        if not self._breaker.failed(row.key, kind):
            if self._breaker.streak < PATIENT_FROM:
                self._streak.clear()
            self._streak.append(row)
            return self._decide(held, handled, patient=self._breaker.streak >= PATIENT_FROM and self._breaker.others)
        if self._resting is None:
            streak, self._streak = self._streak, []
            self._breaker.open()
            self._opened_at = elapsed()
            self._cut_short = True
            self.crew.give_back()
            self._resting = asyncio.create_task(self._rest(kind, describe(error), streak), name="trueup breaker")
        return BackOff(self._breaker.pause(0), Failure.of(error, row.attempt), spend=False)

    def _decide(self, held: Held, handled: Handled, *, patient: bool = False) -> Verdict:
        row, running_for = held.row, timedelta(seconds=self.rows.clock.elapsed() - held.claimed)
        verdict = decide(
            handled.ended,
            row,
            self.reconciler,
            self._random,
            made=handled.made,
            patient=patient,
            running_for=running_for,
        )
        if isinstance(handled.ended, BaseException) and isinstance(verdict, Change | BackOff) and verdict.outcome:
            try:  # so say exhausted= and failed=
                check_outcome(self.rows, verdict.outcome)
            except ConfigError as wrong:
                if isinstance(verdict, BackOff):
                    return replace(verdict, outcome=None)
                return SetAside(
                    f"out of attempts, and exhausted= cannot be: {wrong}", Failure.of(handled.ended, row.attempt)
                )
        return verdict

    def _worked(self, held: Held) -> None:
        if self._breaker.probing and (held.started or 0.0) < self._opened_at:
            return  # begun before the others failed: that says nothing about now
        self._streak.clear()
        if self._breaker.worked(held.row.key) and self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="trueup breaker")

    async def _rest(self, kind: str, message: str, streak: list[ClaimedRow]) -> None:
        """Stop trying for a while: what failed is not the rows' fault."""
        name = self.reconciler.name
        try:
            pause = self._breaker.pause((await self._log.gate(name)).pauses)
            note = f"failed over and over with {kind}: {message:.200}"
            if await self._log.rest(name, pause, note):
                self.events.emit(ReconcilerPaused(name, note, pause.total_seconds()))
            await self.crew.until(lambda: not self.settler.pending)
            if streak:
                await self.rows.refund(streak)
        except (*RETRYABLE, DatabaseUnavailable):
            return  # the sweep is over all the same, and the next one begins by asking the database
        finally:
            self._resting = None
            self.crew.note()

    async def _close(self) -> None:
        """A row has worked again."""
        try:
            if await self._log.work(self.reconciler.name):
                self.events.emit(ReconcilerResumed(self.reconciler.name))
        except (*RETRYABLE, DatabaseUnavailable):
            return  # then it is tried by one row once more
        finally:
            self._closing = None

    # -- stopping -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.crew.stopping = False
        super().start()

    def interrupt(self) -> None:
        """Cancel the handlers that still run; their rows go back."""
        self.crew.interrupt()

    async def stop(self) -> None:
        """Claim nothing more; returns when what runs has ended and is written."""
        self.crew.stopping = True
        self.crew.give_back()
        await super().stop()
        await self.settler.stop()

    async def kill(self) -> None:
        aside = [task for task in (self._resting, self._closing) if task is not None]
        for task in aside:
            task.cancel()
        await self.crew.abandon()
        await super().kill()
        await self.settler.kill()
        if aside:
            await asyncio.wait(aside)
