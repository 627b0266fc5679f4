"""Sweeps: looks for a reconciler's rows, `every` so often, and sees each of them through.

A whole sweep takes batches of two kinds in turn, until neither has any left: rows whose time has come again (failed before, to be
revisited, or left behind by a process that died), longest due first; and rows that nothing is known about, in the order asked
for; each from wherever the sweep has come to. So no row is looked at twice in a sweep, rows that always fail or that a transaction has
locked end it like others, and neither kind can starve the other. Rows that may have brought a process down are taken one at a
time beside it, in one place. A sweep ends when nothing is left to claim: what runs then is settled beside the next one. Between
whole sweeps it wakes for rows whose time has come again. Every instance does this; the rows are shared by what is known about
them in the database.

While the reconciler is paused, by a person or by its breaker, nothing is claimed; a sweep that a pause cuts short is made up
for when the pause is over.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import errors

from trueup import faults
from trueup.clock import elapsed
from trueup.errors import ConfigError, DatabaseUnavailable
from trueup.events import (
    Events,
    ReconcilerPaused,
    ReconcilerResumed,
    RowsClaimed,
    ServiceFailed,
    SweepFailed,
)
from trueup.jobs.failure import describe, type_name
from trueup.reconcile.breaker import MAX_KEYS, Breaker
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.counts import Counts
from trueup.reconcile.decide import GiveBack, Move
from trueup.store.db.connect import RETRYABLE, is_away
from trueup.store.db.pool import HandlerConnections
from trueup.store.rows.reconcilers import Gate, Reconcilers
from trueup.store.rows.rows import Batch, DuePosition, Position, Rows
from trueup.work.calling import Caller
from trueup.work.rows.claims import Claim, Claimed, Claims
from trueup.work.rows.evaluation import forget
from trueup.work.rows.finisher import Count, Ending, RowFinisher
from trueup.work.rows.hand import RowHand
from trueup.work.rows.handled import Handled
from trueup.work.rows.handling import Handling
from trueup.work.rows.held import Held
from trueup.work.rows.judge import Judge, Opens
from trueup.work.rows.keyed import Keyed
from trueup.work.rows.options import SweepOptions
from trueup.work.rows.pace import (
    LOOK_AT_GATE,
    PAUSED_LOOK,
    completed,
    first_after,
    is_walk_due,
    swept_elsewhere,
    wait_for_rate,
)
from trueup.work.rows.sweep import Progress, Sweep, Walk
from trueup.work.service import Service, jittered

MIN_PAUSES = (
    0.05,
    1.0,
)  # seconds between two looks for rows whose time has come again: a tenth of `every`, within these
MANY = 1_000  # rows that are known: fewer are walked past at every sweep


class Sweeper(Service):
    def __init__(
        self,
        rows: Rows,
        log: Reconcilers,
        connections: HandlerConnections,
        caller: Caller,
        events: Events,
        holder: Callable[[], UUID],
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
        self._holder = holder
        self._random = random.Random()  # noqa: S311 - jitter
        self.finisher = RowFinisher(rows, events, self._random, gather_for=gather_for, on_settled=self._settled)
        handling = Handling(rows, connections, caller, self._random)
        self._keyed = None if rows.reconciler.pause_by is None else Keyed(rows)
        self.hand = RowHand(rows, handling, self.finisher, events, judge=self._judge, held_up=self._held_up)
        self._judging = Judge(rows, self._random, self._keyed)
        self._breaker = self._judging.breaker
        self._claims = Claims(rows, events)
        self._sweeps: set[Sweep] = set()  # whose rows are not all settled
        self._suspects: asyncio.Task[Counts] | None = None
        self._aside: set[asyncio.Task[Any]] = set()
        self._failures = 0  # sweeps in a row that an error has ended
        self._turn_of_again = False
        self._asked_to_sweep = False  # because a key works again
        self._cut_short = False  # by a pause, or the end of this process
        self._looked = 0.0
        # When the pause between two passes ends, or while one is under way, when the first row is due that came to rest during it.
        self._wakes_at = float("-inf")
        self._due: float | None = None
        self._swept_at: float | None = None  # when this one's last whole sweep ended
        self._walked_to: Position | None = None  # the last row of the last walk past all rows

    def in_hand(self) -> Iterable[Held]:
        """What is waiting, being handled, or still to be written. Also called on the renewer's thread."""
        return [*self.hand.in_hand(), *self.finisher.in_hand()]

    # -- when ---------------------------------------------------------------------------------------------------------

    async def run_once(self) -> float:
        self._wakes_at = float("inf")  # before the gate is read: what comes to rest from here on may not be in it
        gate = await self._gate()
        if gate.closed:
            return min(PAUSED_LOOK, gate.rests_for or PAUSED_LOOK)
        if self.hand.stuck:
            hint = "every handler that runs here has lost its row, was cancelled, and does not end"
            self.events.emit(ServiceFailed(self.name, "Stuck", hint))
            return PAUSED_LOOK
        if self._due is None:
            self._due = elapsed() + first_after(self.reconciler.every, self.reconciler.run_at_start, gate)
        begun = elapsed()
        asked, self._asked_to_sweep = self._asked_to_sweep, False
        if begun >= self._due and not asked and (later := self._swept_elsewhere(gate)) is not None:
            self._due = begun + later
        whole = begun >= self._due
        made, sweep = self.rows.made, Sweep(gate.now, whole)
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
            return await self._ended_by(error)
        self._failures = 0
        if whole and not self._cut_short and not self._asked_to_sweep:
            # At once after one that took longer: it has left alone what became due since it began.
            self._due = max(elapsed(), begun + jittered(self.reconciler.every.total_seconds()))
        return await self._pause(None if sweep.counts.claimed or gate.is_due else gate, begun)

    def _swept_elsewhere(self, gate: Gate) -> float | None:
        """Seconds until this one's turn, when another worker has just swept. On a clock that is moved by hand there is no wait."""
        if self.rows.clock.now() is not None or (self.reconciler.run_at_start and self._swept_at is None):
            return None
        return swept_elsewhere(
            self.reconciler.every, gate, None if self._swept_at is None else elapsed() - self._swept_at
        )

    async def _gate(self) -> Gate:
        return self._options.opened(await self._log.gate(self.reconciler.name))

    async def _ended_by(self, error: Exception) -> float:
        """A sweep was ended by something that is not about a single row. People can see it until one goes through."""
        self._failures += 1
        again = min(2.0 ** min(self._failures - 1, 20), max(self.reconciler.every.total_seconds(), MIN_PAUSES[1]))
        said = describe(error)
        if isinstance(error, errors.QueryCanceled):
            why = "" if self.rows.found.spec.where is None else ", or where= takes long for a row"
            said = f"a statement took longer than statement_timeout; an index may be missing{why} ({said})"
        try:
            await self._log.failed(self.reconciler.name, f"{type_name(error)}: {said}")
        finally:
            self.events.emit(SweepFailed(self.reconciler.name, type_name(error), said, again).because(error))
        return again

    async def _pause(self, gate: Gate | None, begun: float) -> float:
        """`gate`: what was known when the sweep began, if nothing was claimed since. Rows that came to rest meanwhile are in `_wakes_at`."""
        assert self._due is not None
        next_in = gate.next_due_in if gate is not None else await self.rows.next_due_in()
        if gate is not None and next_in is not None:
            next_in -= elapsed() - begun
        now = elapsed()
        wakes_at = self._due if next_in is None else min(self._due, now + max(next_in, self._soonest))
        self._wakes_at = min(self._wakes_at, wakes_at)
        return max(0.0, self._wakes_at - now)

    @property
    def _soonest(self) -> float:
        return min(max(self.reconciler.every.total_seconds() / 10, MIN_PAUSES[0]), MIN_PAUSES[1])

    def _due_again(self, delay: timedelta) -> None:
        """A row that was claimed here rests now: it is to be looked at then, also when no sweep waits for it any more."""
        pause = max(delay.total_seconds(), self._soonest)
        if elapsed() + pause < self._wakes_at:
            self._wakes_at = elapsed() + pause
            asyncio.get_running_loop().call_later(pause, self.wake)

    # -- one sweep ----------------------------------------------------------------------------------------------------

    async def sweep(self, gate: Gate | None = None, *, whole: bool = True, progress: Progress | None = None) -> Counts:
        """Look at every row there is for it, once. Not whole: only at those whose time has come again.

        When this returns, it is known what became of each. On a clock that is moved by hand, a sweep also ends when the
        rate allows no more for the moment.
        """
        gate = gate or await self._gate()
        sweep = Sweep(gate.now, whole, progress)
        self._cut_short = gate.closed
        if gate.closed:
            return sweep.counts
        try:
            await self._sweep(sweep, gate)
        except Exception:  # the database is away, say: what is in hand is still seen through
            await self._see_through(sweep)
            raise
        await self._see_through(sweep)
        for suspects in sweep.suspects:
            sweep.counts.include(suspects.result())
        return sweep.counts

    async def _sweep(self, sweep: Sweep, gate: Gate, *, hasty: bool = False) -> None:
        """Claim all that there is for it now. What came of it is settled beside whatever comes next.

        `hasty`: where a great many rows rest, it need not walk past all of them each time.
        """
        self._cut_short = gate.closed
        await self._refit(gate)
        await self._heed(gate)
        self.finisher.start()
        self._looked = elapsed()
        self._sweeps.add(sweep)
        try:
            walk = Walk(gate.now, gate.now, fresh=sweep.whole, again=gate.is_due)
            if gate.is_due:
                await self._take_suspects(sweep, gate.now)
            if sweep.whole and not await self._probe(walk, gate, hasty=hasty):
                walk.fresh = False
            await self._batches(sweep, walk)
        finally:
            sweep.claiming = False
            if self._enough():
                self.hand.give_back()
            self._conclude_if_over(sweep)
        if sweep.whole and not self._cut_short:
            if gate.is_due or gate.set_aside:
                await forget(self.rows)
            walked = walk.complete and not walk.fresh
            if self._options.counts and not self._options.cut_short:
                await self._log.swept(self.reconciler.name, walk.passed if walked else None, gate.writes)
            self._swept_at = elapsed()

    async def _probe(self, walk: Walk, gate: Gate, *, hasty: bool) -> bool:
        """Whether there may be rows that nothing is known about. Where many are known, it says which of them to pass over."""
        end = self._walked_to
        if (
            hasty
            and self.reconciler.pause_by is None  # rows of keys that were paused may be anywhere
            and end is not None
            and (gate.walked_past or 0) >= MANY
            and not is_walk_due(self.reconciler.every, gate, anywhere=self.reconciler.selection.due_anywhere)
        ):
            walk.skip_to, walk.complete = end, False
            return (await self._claims.evaluation.probe(gate.now, end))[0]
        fresh, count = await self._claims.evaluation.probe(gate.now)
        if fresh or count is None:
            return True
        walk.passed = count
        return False

    async def _see_through(self, sweep: Sweep) -> None:
        """Until nothing is in hand, suspects included, and all that is to be said about it is written."""
        if sweep.suspects:
            await asyncio.wait(sweep.suspects)
        await self.hand.until(lambda: self.hand.idle)
        self.finisher.hurry()
        await self.hand.until(lambda: self.hand.idle and not self._sweeps)
        if self._aside:
            await asyncio.wait(set(self._aside))

    def _conclude_if_over(self, sweep: Sweep) -> None:
        if not sweep.over or sweep not in self._sweeps:
            return
        self._sweeps.discard(sweep)
        if sweep.worth_telling:
            self._beside(self._conclude(sweep))

    async def _conclude(self, sweep: Sweep) -> None:
        assert sweep.began_at is not None
        try:
            if self._options.counts:
                await self._log.log(self.reconciler.name, self._holder(), sweep.began_at, sweep.counts)
        except (*RETRYABLE, DatabaseUnavailable):
            return  # the outcomes are written; that nothing is on record about their sweep is said by DatabaseLost
        self.events.emit(completed(self.reconciler.name, sweep.counts, elapsed() - sweep.started))

    def _beside(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=f"trueup beside {self.name}")
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)
        return task

    def _enough(self) -> bool:
        return self._stop.is_set() or self._cut_short or self.hand.stuck

    async def _take_suspects(self, sweep: Sweep, now: datetime) -> None:
        """Rows that may have brought a process down: one at a time, in one place, beside all others."""
        if self._suspects is None:
            self._suspects = self._beside(self._one_by_one(now))
            self._suspects.add_done_callback(self._no_suspects)
        sweep.suspects.add(self._suspects)
        if self._breaker.probing:  # then there is one place altogether
            await asyncio.wait({self._suspects})

    def _no_suspects(self, task: asyncio.Task[Counts]) -> None:
        self._suspects = None
        self.hand.note()

    async def _one_by_one(self, now: datetime) -> Counts:
        sweep, after = Sweep(now, whole=False), DuePosition()
        self._sweeps.add(sweep)
        try:
            while not self._enough() and self._options.at_most(1):
                claimed = await self._claim(
                    sweep,
                    Walk(now, now, fresh=False, due_position=after),
                    lambda mark, after=after: self.rows.claim_again(  # type: ignore[misc]
                        self._holder(), 1, now, after, suspects=True, mark=mark
                    ),
                )
                batch = claimed.batch
                wait = batch.ask_again_after
                if wait is not None:
                    if not await wait_for_rate(wait, self._stop, self.rows.clock):
                        break
                    continue
                await self.hand.until(lambda: sweep.settled)
                if batch.exhausted:
                    break
                after = batch.due_position or after
        except Exception:
            return sweep.counts  # the sweep beside it meets the same
        finally:
            sweep.claiming = False
            self._conclude_if_over(sweep)
        return sweep.counts

    async def _batches(self, sweep: Sweep, walk: Walk) -> None:
        every, deadline = self.reconciler.every.total_seconds(), self.reconciler.deadline
        begun = elapsed()
        until = float("inf") if deadline is None else begun + deadline.total_seconds()
        refresh = begun + every
        while walk.unfinished and not self._enough() and elapsed() < until:
            await self.hand.until(lambda: self._has_room(sweep))
            gate = await self._look()
            if self._enough():
                break
            if gate is not None and self._looked >= refresh:
                # A long sweep: rows whose time has come meanwhile need not wait for its end.
                refresh = self._looked + every
                walk.cut_off, walk.again, walk.due_position = gate.now, gate.is_due, None
                if gate.is_due:
                    await self._take_suspects(sweep, gate.now)
            wait = (await self._next(sweep, walk)).batch.ask_again_after
            if wait is not None and not await wait_for_rate(wait, self._stop, self.rows.clock):
                return
        self._cut_short = self._enough()

    async def _look(self) -> Gate | None:
        """The gate, when it is time to look at it again. A pause cuts the sweep short."""
        if elapsed() < self._looked + LOOK_AT_GATE:
            return None
        gate = await self._gate()
        self._looked = elapsed()
        self._cut_short = self._cut_short or gate.closed
        await self._refit(gate)
        if self._keyed is not None:
            self._keyed.heed(await self._log.pauses(self.reconciler.name))
        return gate

    async def _refit(self, gate: Gate) -> None:
        """Look at the table anew when it has changed. Raises ConfigError when it cannot be worked on any more."""
        if gate.sign != self.rows.found.sign:
            await self.rows.changed_since(self.rows.made)

    async def _next(self, sweep: Sweep, walk: Walk) -> Claimed:
        """One claim, of the two kinds in turn while both have some; a turn is remembered from sweep to sweep."""
        rows, holder = self.rows, self._holder()
        most = self._options.at_most(1 if self._breaker.probing else self.reconciler.batch)
        if not most:
            walk.fresh = walk.again = False
            return Claimed(Batch(exhausted=True))
        if walk.again and (self._turn_of_again or not walk.fresh):
            claimed = await self._claim(
                sweep, walk, lambda mark: rows.claim_again(holder, most, walk.cut_off, walk.due_position, mark=mark)
            )
            if claimed.batch.ask_again_after is None:
                self._turn_of_again = False
                walk.due_position = claimed.batch.due_position
                walk.again = not claimed.batch.exhausted
                if not walk.again and not sweep.whole:
                    await forget(self.rows)  # what is not for it any more must not wake it again and again
        else:
            claimed = await self._claim(
                sweep, walk, lambda mark: rows.claim_fresh(holder, most, walk.position, walk.begun_at, mark=mark)
            )
            if claimed.batch.ask_again_after is None:
                self._turn_of_again = True
                walk.position = claimed.batch.position or walk.position
                walk.fresh = not claimed.batch.exhausted
                walk.passed += claimed.batch.passed
                if not walk.fresh:
                    self._walked_to = walk.position
                if walk.skip_to is not None and walk.fresh and not claimed.count:
                    walk.position, walk.skip_to = walk.skip_to, None
        return claimed

    def _has_room(self, sweep: Sweep) -> bool:
        """Whether to claim more: half a batch ahead of what runs; while probing, when all is known of the last one."""
        if self._enough():
            return True
        if self._breaker.probing:
            return sweep.settled
        return self.hand.waiting + self.finisher.backlog <= self.reconciler.batch // 2

    async def _claim(self, sweep: Sweep, walk: Walk, claim: Claim) -> Claimed:
        faults.hit("before_row_claim")
        begun, sent = elapsed(), self.rows.clock.elapsed()
        claimed = await self._claims.claim(claim, walk, sweep.counts)
        if not claimed.count:
            return claimed
        faults.hit("after_row_claim")
        sweep.counts.claimed += claimed.count
        self._options.spend(claimed.count)
        for row in claimed.rows:
            if row.due_at is not None:
                sweep.counts.lateness.add((row.claimed_at - row.due_at).total_seconds())
        if self.events.wants(RowsClaimed):
            ms = round((elapsed() - begun) * 1000, 3)
            self.events.emit(RowsClaimed(self.reconciler.name, str(self._holder()), claimed.count, ms))
        for row, error in claimed.refused:  # nothing was written to it, so nothing is there to be undone
            held = Held(row, sent, state="writing", sweep=sweep)
            self.finisher.put(Ending(held, self.finisher.failure(row, error), touch=False))
        for row in claimed.taken:
            held = Held(row, sent, state="writing", sweep=sweep)
            self.finisher.put(Ending(held, GiveBack(), counts_as="conflict", touch=False))
        self.hand.put(claimed.batch, sent, sweep)
        return claimed

    def _settled(self, ending: Ending, count: Count) -> None:
        held = ending.held
        sweep, held.state = held.sweep, "gone"
        rests_for = getattr(ending.move, "delay", None) or getattr(ending.move, "rest_for", None)
        if rests_for is not None:
            self._due_again(rests_for)
        setattr(sweep.counts, count, getattr(sweep.counts, count) + 1)
        if sweep.progress is not None:
            sweep.progress(sweep.counts)
        self._conclude_if_over(sweep)
        self.hand.note()

    # -- the breaker --------------------------------------------------------------------------------------------------

    async def _heed(self, gate: Gate) -> None:
        """What the fleet knows: whether a worker has found it working since it rested."""
        if self._keyed is not None:
            self._keyed.heed(await self._log.pauses(self.reconciler.name))
        if gate.pauses > 0:
            self._breaker.probing = True
        elif self._breaker.probing:
            self._breaker.close()

    def _judge(self, held: Held, handled: Handled) -> Move:
        """After a handler's run: what becomes of its row, and may the reconciler go on?"""
        judged = self._judging.of(held, handled)
        match judged.change:
            case Opens(why, exactly):
                self._open(held, judged.breaker, why, exactly)
            case "closes":
                self._beside(self._close() if self._keyed is None else self._close_key(self._keyed.key(held)))
        return judged.move

    def _held_up(self, held: Held) -> timedelta | None:
        return None if self._keyed is None else self._keyed.held_up(held)

    def _open(self, held: Held, breaker: Breaker, why: str, exactly: timedelta | None = None) -> None:
        """Stop trying for a while: everything, or with `pause_by=` rows of this key."""
        if breaker.opening and exactly is None:
            return
        spent, breaker.spent = breaker.spent, []
        breaker.open(elapsed())
        breaker.opening = True
        if self._keyed is None:
            self._cut_short = True
            self.hand.give_back()
            work = self._rest(breaker, why, spent, exactly)
        else:
            key = self._keyed.key(held)
            self._keyed.opened(key, exactly or breaker.pause(0))
            work = self._rest_key(key, breaker, why, spent, exactly)
        self._beside(work)

    async def _rest(self, breaker: Breaker, why: str, spent: list[ClaimedRow], exactly: timedelta | None) -> None:
        """What failed is not the rows' fault: their attempts come back."""
        name = self.reconciler.name
        try:
            pause = exactly or breaker.pause((await self._gate()).pauses)
            if await self._log.rest(name, pause, why, extend=exactly is not None):
                self.events.emit(ReconcilerPaused(name, why, pause.total_seconds()))
            await self._refund(spent)
        except (*RETRYABLE, DatabaseUnavailable):
            return  # the sweep is over anyway, and the next one begins by asking the database
        finally:
            breaker.opening = False
            self.hand.note()

    async def _rest_key(
        self, key: str, breaker: Breaker, why: str, spent: list[ClaimedRow], exactly: timedelta | None
    ) -> None:
        assert self._keyed is not None
        name = self.reconciler.name
        try:
            known = {each.key: each.pauses for each in await self._log.pauses(name)}
            pause = exactly or breaker.pause(known.get(key, 0))
            self._keyed.opened(key, pause)
            if await self._log.rest_key(name, key, pause, why, extend=exactly is not None):
                self.events.emit(ReconcilerPaused(name, why, pause.total_seconds(), key))
            elif key not in known and len(known) >= MAX_KEYS and await self._log.rest(name, pause, why):
                self._cut_short = True
                self.events.emit(ReconcilerPaused(name, why, pause.total_seconds()))
            asyncio.get_running_loop().call_later(pause.total_seconds(), self._sweep_soon)
            await self._refund(spent)
        except (*RETRYABLE, DatabaseUnavailable):
            return
        finally:
            breaker.opening = False
            self.hand.note()

    async def _refund(self, spent: list[ClaimedRow]) -> None:
        if spent:
            await self.hand.until(lambda: not self.finisher.backlog)
            await self.rows.refund(spent)

    async def _close(self) -> None:
        """A row has worked again."""
        try:
            if await self._log.work(self.reconciler.name):
                self.events.emit(ReconcilerResumed(self.reconciler.name))
        except (*RETRYABLE, DatabaseUnavailable):
            return  # then it is tried by one row once more

    async def _close_key(self, key: str) -> None:
        assert self._keyed is not None
        self._keyed.closed(key)
        self._sweep_soon()
        try:
            if await self._log.work_key(self.reconciler.name, key):
                self.events.emit(ReconcilerResumed(self.reconciler.name, key))
        except (*RETRYABLE, DatabaseUnavailable):
            return

    def _sweep_soon(self) -> None:
        """Rows that waited for their key are looked for at once, not when the next sweep is due."""
        if self._due is not None and not self._stop.is_set():
            self._asked_to_sweep = True  # also while one is under way: it has passed over rows of this key
            self._due = min(self._due, elapsed())
            self.wake()

    # -- stopping -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.hand.stopping = False
        super().start()

    def interrupt(self) -> None:
        """Cancel the handlers that still run; their rows go back."""
        self.hand.interrupt()

    async def stop(self) -> None:
        """Claim nothing more; returns when what runs has ended and is written."""
        self.hand.stopping = True
        self._stop.set()
        self.hand.give_back()
        self.hand.note()  # a sweep that waits for room goes on to its end
        await super().stop()
        self.finisher.hurry()
        await self.hand.until(lambda: self.hand.idle and not self._sweeps)
        await self.finisher.stop()
        if self._aside:
            await asyncio.wait(self._aside)

    async def kill(self) -> None:
        aside = list(self._aside)
        for task in aside:
            task.cancel()
        await self.hand.abandon()
        self._sweeps.clear()  # nothing that was in hand is waited for
        await super().kill()
        await self.finisher.kill()
        if aside:
            await asyncio.wait(aside)
