"""Sweeps: looks for a reconciler's rows, `every` so often, and sees each of them through.

A whole sweep first takes, one at a time, rows whose process died with them. Then batches of two kinds in turn, until neither
has any left: rows whose time has come again (failed before, or to be revisited), longest due first; and rows that nothing is
known about, in the order asked for, from wherever the sweep has come to. So no row is looked at twice in a sweep, rows that
always fail end it like others, and neither kind can starve the other. Between whole sweeps it wakes for rows whose time has
come again. Every instance does this; the rows are shared by what is known about them in the database.

While the reconciler is paused, by a person or by its breaker, nothing is claimed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from psycopg import errors

from trueup import faults
from trueup.clock import elapsed
from trueup.errors import DatabaseUnavailable, LostClaim
from trueup.events import (
    Events,
    ReconcilerPaused,
    ReconcilerResumed,
    RowsClaimed,
    ServiceFailed,
)
from trueup.jobs.failure import Failure, type_name
from trueup.jobs.outcome import GiveUp
from trueup.reconcile.breaker import Breaker
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.counts import Counts
from trueup.reconcile.decide import BackOff, SetAside, Verdict
from trueup.store.connect import RETRYABLE
from trueup.store.pool import Pool
from trueup.store.reconcilers import Gate, Reconcilers
from trueup.store.rows import Batch, Position, Rows
from trueup.worker.rows.crew import Crew
from trueup.worker.rows.handling import Handled, Handling
from trueup.worker.rows.held import Held
from trueup.worker.rows.pace import PAUSED_LOOK, completed, first_after
from trueup.worker.rows.settler import Count, Settler, Settling
from trueup.worker.service import Service, jittered
from trueup.worker.threads import Threads

SOONEST = (0.05, 1.0)  # seconds between two looks for rows whose time has come again: a tenth of `every`, within these

Progress = Callable[[Counts], None]


@dataclass(slots=True)
class Walk:
    """How far a sweep has come."""

    cut_off: datetime  # rows due again later than this are for the next one
    fresh: bool  # there may be rows that nothing is known about
    turn_of_again: bool
    again: bool = True  # there may be rows whose time has come again
    position: Position | None = None

    @property
    def unfinished(self) -> bool:
        return self.again or self.fresh

    def takes_again(self) -> bool:
        """Which kind is next; they take turns while both have some."""
        turn, self.turn_of_again = self.turn_of_again, not self.turn_of_again
        return self.again and (turn or not self.fresh)


class Sweeper(Service):
    def __init__(
        self,
        rows: Rows,
        log: Reconcilers,
        pool: Pool,
        threads: Threads,
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
        handling = Handling(rows, pool, threads, self._random)
        self.crew = Crew(
            rows, handling, self.settler, events, self._random, judge=self._judge, on_settled=self._settled
        )
        self._breaker = Breaker(self.reconciler.pause_after, self.reconciler.pause_for)
        self._resting: asyncio.Task[None] | None = None
        self._streak: list[ClaimedRow] = []
        self._counts = Counts()
        self._progress: Progress | None = None
        self._again_first = False
        self._due: float | None = None

    # -- when ---------------------------------------------------------------------------------------------------------

    async def run_once(self) -> float:
        gate = await self._log.gate(self.reconciler.name)
        if gate.closed:
            return min(PAUSED_LOOK, gate.rests_for or PAUSED_LOOK)
        if self._due is None:
            self._due = elapsed() + first_after(self.reconciler.every, self.reconciler.run_at_start, gate)
        whole = elapsed() >= self._due
        try:
            await self.sweep(gate, whole=whole)
        except errors.QueryCanceled:
            hint = "a statement took longer than statement_timeout; an index may be missing"
            self.events.emit(ServiceFailed(self.name, "QueryCanceled", hint))
        if whole:
            self._due = elapsed() + jittered(self.reconciler.every.total_seconds())
        return await self._pause()

    async def _pause(self) -> float:
        assert self._due is not None
        whole_in = max(0.0, self._due - elapsed())
        next_in = await self.rows.next_due_in()
        soonest = min(max(self.reconciler.every.total_seconds() / 10, SOONEST[0]), SOONEST[1])
        return whole_in if next_in is None else min(whole_in, max(next_in, soonest))

    # -- one sweep ----------------------------------------------------------------------------------------------------

    async def sweep(self, gate: Gate | None = None, *, whole: bool = True, progress: Progress | None = None) -> Counts:
        """Look at every row there is for it, once. Not whole: only at those whose time has come again."""
        gate = gate or await self._log.gate(self.reconciler.name)
        counts = self._counts = Counts()
        self._progress = progress
        self._breaker.probing = self._breaker.probing or gate.pauses > 0
        self.settler.start()
        started = elapsed()
        try:
            await self._crashed(gate.now)
            await self._batches(gate.now, whole=whole)
        except Exception:  # the database is away, say: what is in hand is seen through all the same
            await self._see_through()
            raise
        await self._see_through()
        if whole:
            await self.rows.forget()
        if whole:
            await self._log.swept(self.reconciler.name)
        if counts.claimed and (
            whole or counts.unchanged < counts.claimed
        ):  # passes that change nothing come every second
            await self._log.log(self.reconciler.name, self._holder(), gate.now, counts)
            self.events.emit(completed(self.reconciler.name, counts, elapsed() - started))
        return counts

    async def _see_through(self) -> None:
        if self._stop.is_set():
            self.crew.give_back()
        await self.crew.until(lambda: self._over)

    @property
    def _over(self) -> bool:
        return self.crew.idle and self._counts.settled >= self._counts.claimed

    @property
    def _enough(self) -> bool:
        return self._stop.is_set() or self._resting is not None

    async def _crashed(self, started_at: datetime) -> None:
        """Rows that were in a process when it died, one at a time: the one that kills must not take others along again."""
        while not self._enough:
            batch = await self._claim(self.rows.claim_again(self._holder(), 1, started_at, crashed=True))
            if not batch.rows:
                return
            await self.crew.until(lambda: self._over)

    async def _batches(self, started_at: datetime, *, whole: bool) -> None:
        walk = Walk(started_at, fresh=whole, turn_of_again=self._again_first)
        self._again_first = not self._again_first
        every, deadline = self.reconciler.every.total_seconds(), self.reconciler.deadline
        until = float("inf") if deadline is None else elapsed() + deadline.total_seconds()
        refresh = elapsed() + every
        while walk.unfinished and not self._enough and elapsed() < until:
            if elapsed() >= refresh:  # a long sweep: rows whose time has come meanwhile need not wait for its end
                refresh = elapsed() + every
                walk.cut_off, walk.again = (await self._log.gate(self.reconciler.name)).now, True
            batch = await self._next(walk)
            if batch.ask_again_after is not None:
                await self._wait(batch.ask_again_after.total_seconds())
            await self.crew.until(self._has_room)

    async def _next(self, walk: Walk) -> Batch:
        """One claim, of the two kinds in turn."""
        most = 1 if self._breaker.probing else self.reconciler.batch
        if walk.takes_again():
            batch = await self._claim(self.rows.claim_again(self._holder(), most, walk.cut_off, crashed=False))
            if not batch.rows and batch.ask_again_after is None:
                walk.again = bool(await self.rows.forget())
        else:
            batch = await self._claim(self.rows.claim_fresh(self._holder(), most, walk.position))
            if batch.ask_again_after is None:
                walk.position = batch.position or walk.position
                walk.fresh = not batch.exhausted
        return batch

    def _has_room(self) -> bool:
        """Whether to claim more: half a batch ahead of what runs; while probing, when all is known of the last one."""
        if self._breaker.probing:
            return self._over
        return self._enough or self.crew.waiting + self.settler.pending <= self.reconciler.batch // 2

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

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._stop.wait()
        except TimeoutError:
            return

    def _settled(self, settling: Settling, count: Count) -> None:
        setattr(self._counts, count, getattr(self._counts, count) + 1)
        if self._progress is not None:
            self._progress(self._counts)
        self.crew.note()

    # -- the breaker --------------------------------------------------------------------------------------------------

    def _judge(self, held: Held, handled: Handled, verdict: Verdict) -> Verdict:
        """After a handler's run: may the reconciler go on?"""
        error = handled.ended
        if not isinstance(error, BaseException):
            self._streak.clear()
            if self._breaker.worked():
                asyncio.ensure_future(self._work()).add_done_callback(_ignore)
            return verdict
        if self.reconciler.pause_after is None or isinstance(error, GiveUp | LostClaim):
            return verdict
        kind = type_name(error)
        if self._resting is None and not self._breaker.failed(kind):
            self._streak.append(held.row)
            return verdict
        failure = verdict.failure if isinstance(verdict, BackOff | SetAside) else Failure.of(error, held.row.attempt)
        if self._resting is None:
            self._resting = asyncio.ensure_future(self._rest(kind, failure.message))
        return BackOff(self._breaker.pause(0), failure, spend=False)

    async def _rest(self, kind: str, message: str) -> None:
        """Stop trying for a while: what failed is not the rows' fault."""
        streak, self._streak = self._streak, []
        self._breaker.opened()
        name = self.reconciler.name
        try:
            pauses = (await self._log.gate(name)).pauses
            pause = self._breaker.pause(pauses)
            note = f"failed over and over with {kind}: {message:.200}"
            if await self._log.rest(name, pause, note):
                self.events.emit(ReconcilerPaused(name, note, pause.total_seconds()))
            await self.crew.until(lambda: not self.settler.pending)
            if streak:
                await self.rows.refund(streak)
        except (*RETRYABLE, DatabaseUnavailable):
            return  # the failures are known to this process all the same: it stops for now
        finally:
            self._resting = None

    async def _work(self) -> None:
        if await self._log.work(self.reconciler.name):
            self.events.emit(ReconcilerResumed(self.reconciler.name))

    # -- stopping -----------------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Cancel the handlers that still run; their rows go back."""
        self.crew.interrupt()

    async def stop(self) -> None:
        """Claim nothing more; returns when what runs has ended and is written."""
        self.crew.give_back()
        await super().stop()
        await self.settler.stop()

    async def kill(self) -> None:
        for held in self.crew.in_hand():
            held.cancel("lost")
        await super().kill()
        await self.settler.kill()


def _ignore(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
