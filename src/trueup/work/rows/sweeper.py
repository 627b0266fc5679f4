"""Sweeps: looks for a reconciler's rows at the interval `every`, and sees each row through to its outcome.

The loop claims and waits in turn; the claimed rows are handled and written beside it. `timetable` says when to look, `walker`
claims, `hand` runs the handlers, `breakers` stop it for a while, and `sweeps` knows which sweeps are not over.

A whole sweep takes batches of two kinds in turn, until neither has any left: rows that are due again (failed before, to be
revisited, or left behind by a process that died), longest due first; and rows without a record, in the declared order. Each
kind continues where its last batch ended. So no row is looked at twice in a sweep, rows that always fail or are locked do not
prolong it, and neither kind can starve the other. Rows that may have crashed a process are taken one at a time beside the
sweep, in one place. A sweep ends when nothing is left to claim; rows that are still being handled then are settled beside the
next one. Between whole sweeps the loop wakes for rows that are due again. Every instance sweeps; the records in the database
divide the rows among them.

While the reconciler is paused, by a person or by its breaker, nothing is claimed; a sweep that a pause cuts short is made up
for when the pause is over.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from datetime import datetime, timedelta

from trueup.clock import elapsed
from trueup.errors import ConfigError
from trueup.events import Events, ServiceFailed
from trueup.reconcile.counts import Counts
from trueup.store.db.connect import is_away
from trueup.store.db.pool import HandlerConnections
from trueup.store.rows.batch import DuePosition
from trueup.store.rows.reconcilers import Gate, Reconcilers
from trueup.store.rows.rows import Rows
from trueup.work.calling import Caller
from trueup.work.registration import Holder
from trueup.work.rows.beside import Beside, Changes
from trueup.work.rows.breakers import Breakers
from trueup.work.rows.evaluation import forget
from trueup.work.rows.finisher import RowFinisher
from trueup.work.rows.hand import RowHand
from trueup.work.rows.handling import Handling
from trueup.work.rows.held import RowInHand
from trueup.work.rows.judge import Judge
from trueup.work.rows.options import SweepOptions
from trueup.work.rows.pace import LOOK_AT_GATE, PAUSED_LOOK, report_failure, wait_for_rate
from trueup.work.rows.sweep import Progress, Sweep, Walk
from trueup.work.rows.sweeps import Sweeps
from trueup.work.rows.timetable import Timetable
from trueup.work.rows.walker import Walker
from trueup.work.service import Service


class Sweeper(Service):
    def __init__(
        self,
        rows: Rows,
        log: Reconcilers,
        connections: HandlerConnections,
        caller: Caller,
        events: Events,
        holder: Holder,
        *,
        gather_for: timedelta,
        options: SweepOptions | None = None,
    ) -> None:
        """`options`: of a sweep by hand."""
        super().__init__(events)
        self._options = options or SweepOptions()
        self.rows = rows
        self.reconciler = rows.reconciler
        self.name = f"sweeper of {rows.reconciler.name}"
        self._log = log
        rng = random.Random()  # noqa: S311 - jitter
        self.changes, self._beside = Changes(), Beside(self.name)
        self.timetable = Timetable(rows, self._wake, self._stop)
        self._sweeps = Sweeps(
            rows.reconciler.name, log, events, holder, self._options, self.timetable, self.changes, self._beside
        )
        self.finisher = RowFinisher(rows, events, rng, self._sweeps, gather_for=gather_for)
        self._breakers = Breakers(
            rows, log, events, self.finisher, self._options, self.timetable, self.changes, self._beside
        )
        judge, handling = Judge(rows, rng, self._breakers), Handling(rows, connections, caller, rng)
        self.hand = RowHand(rows, handling, self.finisher, events, judge, self._breakers, self.changes)
        self.finisher.failures.hand = self.hand
        self._walker = Walker(rows, self.hand, self.finisher, events, holder, self._options)
        self._suspects: asyncio.Task[Counts] | None = None
        self._cut_short = False  # whether a pause, or the end of this process, cut the sweep short
        self._looked = 0.0  # when the gate was last read

    def in_hand(self) -> Iterable[RowInHand]:
        """The rows that wait, are being handled, or are still to be written. Also called on the renewer's thread."""
        return [*self.hand.in_hand(), *self.finisher.in_hand()]

    async def run_once(self) -> float:
        self.timetable.begin_pass()
        gate = await self._gate()
        if gate.closed:
            return min(PAUSED_LOOK, gate.rests_for or PAUSED_LOOK)
        if self.hand.stuck:
            hint = "all running handlers have lost their rows, were cancelled, and do not end"
            self.events.emit(ServiceFailed(self.name, "Stuck", hint))
            return PAUSED_LOOK
        begun = elapsed()
        made, sweep = self.rows.made, Sweep(gate.now, self.timetable.begin_sweep(gate, begun))
        try:
            await self._sweep(sweep, gate, hasty=True)
        except Exception as error:
            if is_away(error):
                raise
            try:
                if await self.rows.changed_since(made):
                    return 0.0
            except ConfigError as unfit:
                error = unfit
            again = self.timetable.after_failure()
            where = "" if self.rows.found.spec.where is None else ", or where= takes long for a row"
            slow = f"an index may be missing{where}"
            await report_failure(self._log, self.events, self.reconciler.name, error, again, slow)
            return again
        self.timetable.end_sweep(begun, complete=sweep.whole and not self._was_cut_short)
        return await self.timetable.pause(None if sweep.counts.claimed or gate.is_due else gate, begun)

    async def _gate(self) -> Gate:
        return self._options.opened(await self._log.gate(self.reconciler.name))

    # -- one sweep ----------------------------------------------------------------------------------------------------

    async def sweep(self, gate: Gate | None = None, *, whole: bool = True, progress: Progress | None = None) -> Counts:
        """Sweep once: over all rows of the reconciler, or (not `whole`) only over rows that are due again.

        When this returns, every claimed row has an outcome. On a clock that is moved by hand, a sweep also ends when the rate
        allows no more for the moment.
        """
        gate = gate or await self._gate()
        sweep = Sweep(gate.now, whole, progress)
        if gate.closed:
            return sweep.counts
        try:
            await self._sweep(sweep, gate)
        except Exception:  # the database is away, for example: the rows in hand are still finished
            await self._see_through(sweep)
            raise
        await self._see_through(sweep)
        for suspects in sweep.suspects:
            sweep.counts.include(suspects.result())
        return sweep.counts

    async def _sweep(self, sweep: Sweep, gate: Gate, *, hasty: bool = False) -> None:
        """Claim every row that is due now. Outcomes may be settled during the next sweep.

        `hasty`: if very many rows rest, this sweep need not walk past all of them.
        """
        self._cut_short, self._breakers.opened = gate.closed, False
        await self._refit(gate)
        await self._breakers.heed(gate)
        self.finisher.start()
        self._looked = elapsed()
        self._sweeps.begin(sweep)
        try:
            walk = Walk(gate.now, gate.now, fresh=sweep.whole, again=gate.is_due)
            if gate.is_due:
                await self._take_suspects(sweep, gate.now)
            if sweep.whole and not await self._walker.probe(walk, gate, hasty=hasty):
                walk.fresh = False
            await self._batches(sweep, walk)
        finally:
            if self._enough():
                self.hand.release()
            self._sweeps.claimed_all(sweep)
        if sweep.whole and not self._was_cut_short:
            if gate.is_due or gate.set_aside:
                await forget(self.rows)
            walked = walk.complete and not walk.fresh
            if not self._options.shadow and not self._options.cut_short:
                await self._log.swept(self.reconciler.name, walk.passed if walked else None, gate.writes)
            self.timetable.swept()

    async def _see_through(self, sweep: Sweep) -> None:
        """Wait until no row is in hand, suspects included, and all outcomes are written."""
        if sweep.suspects:
            await asyncio.wait(sweep.suspects)
        await self.changes.until(lambda: self.hand.idle)
        self.finisher.hurry()
        await self.changes.until(lambda: self.hand.idle and self._sweeps.all_over)
        await self._beside.ended()

    @property
    def _was_cut_short(self) -> bool:
        return self._cut_short or self._breakers.opened

    def _enough(self) -> bool:
        return self._stop.is_set() or self._was_cut_short or self.hand.stuck

    async def _take_suspects(self, sweep: Sweep, now: datetime) -> None:
        """Take the rows that may have crashed a process: one at a time, beside the other rows."""
        if self._suspects is None or self._suspects.done():
            self._suspects = self._beside.start(self._one_by_one(now))
            self._suspects.add_done_callback(lambda _: self.changes.note())
        sweep.suspects.add(self._suspects)
        if self._breakers.probing:  # a probing breaker allows one row altogether
            await asyncio.wait({self._suspects})

    async def _one_by_one(self, now: datetime) -> Counts:
        sweep, after = Sweep(now, whole=False), DuePosition()
        self._sweeps.begin(sweep)
        try:
            while not self._enough() and self._options.at_most(1):
                batch = await self._walker.next_suspect(sweep, now, after)
                wait = batch.ask_again_after
                if wait is not None:
                    if not await wait_for_rate(wait, self._stop, self.rows.clock):
                        break
                    continue
                await self.changes.until(lambda: sweep.settled)
                if batch.exhausted:
                    break
                after = batch.due_position or after
        except Exception:
            return sweep.counts  # the sweep meets the same error
        finally:
            self._sweeps.claimed_all(sweep)
        return sweep.counts

    async def _batches(self, sweep: Sweep, walk: Walk) -> None:
        every, deadline = self.reconciler.every.total_seconds(), self.reconciler.deadline
        begun = elapsed()
        until = float("inf") if deadline is None else begun + deadline.total_seconds()
        refresh = begun + every
        while walk.unfinished and not self._enough() and elapsed() < until:
            await self.changes.until(lambda: self._has_room(sweep))
            gate = await self._look()
            if self._enough():
                break
            if gate is not None and self._looked >= refresh:
                # A sweep may be long, or never end. Rows that became due again need not wait for its end, nor do fresh rows in front
                # of its position.
                refresh = self._looked + every
                walk.cut_off, walk.again, walk.due_position = gate.now, gate.is_due, None
                self._walker.look_back(walk)
                if gate.is_due:
                    await self._take_suspects(sweep, gate.now)
            most = 1 if self._breakers.probing else self.reconciler.batch
            wait = (await self._walker.next(sweep, walk, most)).ask_again_after
            if wait is not None and not await wait_for_rate(wait, self._stop, self.rows.clock):
                return
        self._cut_short = self._enough()

    async def _look(self) -> Gate | None:
        """Read the gate again when it is time to. A pause cuts the sweep short."""
        if elapsed() < self._looked + LOOK_AT_GATE:
            return None
        gate = await self._gate()
        self._looked = elapsed()
        self._cut_short = self._cut_short or gate.closed
        await self._refit(gate)
        await self._breakers.heed_keys()
        return gate

    async def _refit(self, gate: Gate) -> None:
        """Inspect the table again if it has changed. Raises ConfigError when it can no longer be worked on."""
        if gate.sign != self.rows.found.sign:
            await self.rows.changed_since(self.rows.made)

    def _has_room(self, sweep: Sweep) -> bool:
        """Whether to claim more: up to half a batch ahead of the running handlers, or nothing if rows are so large that a batch is
        limited by that; while probing, only after the last outcome.
        """
        if self._enough():
            return True
        if self._breakers.probing:
            return sweep.settled
        ahead = 0 if self._walker.heavy else self.reconciler.batch // 2
        return self.hand.waiting + self.finisher.backlog <= ahead

    # -- stopping -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.hand.stopping = False
        super().start()

    def interrupt(self) -> None:
        """Cancel the handlers that still run; their rows are released."""
        self.hand.interrupt()

    async def stop(self) -> None:
        """Claim no more rows. Returns when all handlers have ended and their outcomes are written."""
        self.hand.stopping = True
        self._stop.set()
        self.hand.release()
        self.changes.note()  # a sweep that waits for room wakes and ends
        await super().stop()
        self.finisher.hurry()
        await self.changes.until(lambda: self.hand.idle and self._sweeps.all_over)
        await self.finisher.stop()
        await self._beside.ended()

    async def kill(self) -> None:
        self._beside.cancel()
        await self.hand.kill()
        self._sweeps.forget()
        await super().kill()
        await self.finisher.kill()
        await self._beside.ended()
