"""Claims batch after batch for a sweep: rows that are due again and rows without a record in turn, or one suspect.

Claimed rows go into the hand. A row that could not be marked goes straight to the finisher. Between sweeps the walker
remembers which kind is next, and where the last walk past all rows ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trueup import faults
from trueup.clock import elapsed
from trueup.events import Events, RowsClaimed
from trueup.reconcile.decide import Release
from trueup.store.rows.batch import Batch, DuePosition, Position
from trueup.store.rows.reconcilers import Gate
from trueup.store.rows.rows import Rows
from trueup.work.registration import Holder
from trueup.work.rows.claims import ClaimBatch, Claimed, Claims
from trueup.work.rows.evaluation import forget
from trueup.work.rows.finisher import RowFinisher
from trueup.work.rows.hand import RowHand
from trueup.work.rows.held import RowInHand
from trueup.work.rows.options import SweepOptions
from trueup.work.rows.pace import is_walk_due
from trueup.work.rows.reports import RowEnding
from trueup.work.rows.sweep import Sweep, Walk

MANY_KNOWN = 1_000  # rows with a record; every sweep walks past fewer than this


@dataclass(eq=False)
class Walker:
    _rows: Rows
    _hand: RowHand
    _finisher: RowFinisher
    _events: Events
    _holder: Holder
    _options: SweepOptions
    heavy: bool = False  # whether the last batch was as large as a batch may be
    _again_is_next: bool = False
    _walked_to: Position | None = None  # the last row of the last walk past all rows

    def __post_init__(self) -> None:
        self._reconciler = self._rows.reconciler
        self._claims = Claims(self._rows, self._events)

    async def probe(self, walk: Walk, gate: Gate, *, hasty: bool) -> bool:
        """Find out whether there may be rows without a record. If many rows have one, note in `walk` which of them to pass over."""
        end = self._walked_to
        if (
            hasty
            and self._reconciler.pause_by is None  # rows of keys that were paused may be anywhere
            and end is not None
            and (gate.walked_past or 0) >= MANY_KNOWN
            and not is_walk_due(self._reconciler.every, gate, anywhere=self._reconciler.selection.due_anywhere)
        ):
            walk.skip_to, walk.complete = end, False
            return (await self._claims.evaluation.probe(gate.now, end))[0]
        fresh, count = await self._claims.evaluation.probe(gate.now)
        if fresh or count is None:
            return True
        walk.passed = count
        return False

    def look_back(self, walk: Walk) -> None:
        """Have the walk look again at the rows in front of its position, and then continue from there."""
        if walk.fresh and walk.skip_to is None and walk.position is not None:
            walk.position, walk.skip_to, walk.complete = None, walk.position, False

    async def next(self, sweep: Sweep, walk: Walk, most: int) -> Batch:
        """Claim the next batch: the two kinds take turns while both have rows."""
        most = self._options.at_most(most)
        if not most:
            walk.fresh = walk.again = False
            return Batch(exhausted=True)
        if walk.again and (self._again_is_next or not walk.fresh):
            return await self._next_again(sweep, walk, most)
        return await self._next_fresh(sweep, walk, most)

    async def _next_again(self, sweep: Sweep, walk: Walk, most: int) -> Batch:
        holder = self._holder.id
        claimed = await self._claim(
            sweep, walk, lambda mark: self._rows.claims.again(holder, most, walk.cut_off, walk.due_position, mark=mark)
        )
        batch = claimed.batch
        if batch.ask_again_after is None:
            self._again_is_next = False
            walk.due_position = batch.due_position
            walk.again = not batch.exhausted
            if not walk.again and not sweep.whole:
                await forget(self._rows)  # rows that no longer match must not wake the sweeper again and again
        return batch

    async def _next_fresh(self, sweep: Sweep, walk: Walk, most: int) -> Batch:
        holder = self._holder.id
        claimed = await self._claim(
            sweep, walk, lambda mark: self._rows.claims.fresh(holder, most, walk.position, walk.begun_at, mark=mark)
        )
        batch = claimed.batch
        if batch.ask_again_after is None:
            self._again_is_next = True
            walk.position = batch.position or walk.position
            walk.fresh = not batch.exhausted
            walk.passed += batch.passed
            if not walk.fresh:
                self._walked_to = walk.position
            if walk.skip_to is not None and walk.fresh and not claimed.rows:
                walk.position, walk.skip_to = walk.skip_to, None
        return batch

    async def next_suspect(self, sweep: Sweep, now: datetime, after: DuePosition) -> Batch:
        """Claim one row that may have crashed a process."""
        walk = Walk(now, now, fresh=False, due_position=after)
        holder = self._holder.id
        claimed = await self._claim(
            sweep, walk, lambda mark: self._rows.claims.again(holder, 1, now, after, suspects=True, mark=mark)
        )
        return claimed.batch

    async def _claim(self, sweep: Sweep, walk: Walk, claim: ClaimBatch) -> Claimed:
        faults.hit("before_row_claim")
        begun, sent = elapsed(), self._rows.clock.elapsed()
        claimed = await self._claims.claim(claim, walk, sweep.counts)
        self.heavy = claimed.batch.heavy
        rows = claimed.rows
        if not rows:
            return claimed
        faults.hit("after_row_claim")
        sweep.counts.claimed += len(rows)
        self._options.spend(len(rows))
        for row in rows:
            if row.due_at is not None:
                sweep.counts.lateness.add((row.claimed_at - row.due_at).total_seconds())
        if self._events.wants(RowsClaimed):
            ms = round((elapsed() - begun) * 1000, 3)
            self._events.emit(RowsClaimed(self._reconciler.name, str(self._holder.id), len(rows), ms))
        for row, error in claimed.refused:  # the claim wrote nothing to it, so there is nothing to undo
            held = RowInHand(row, sent, state="writing", sweep=sweep)
            if claimed.batch.rows:
                self._hand.refused_beside_others(held)
            self._finisher.put(RowEnding(held, self._hand.refused(held, error), touch=False))
        for row in claimed.taken:
            held = RowInHand(row, sent, state="writing", sweep=sweep)
            self._finisher.put(RowEnding(held, Release(), counts_as="conflict", touch=False))
        self._hand.put(claimed.batch, sent, sweep)
        return claimed
